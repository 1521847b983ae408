/* storage.c - in whose storage a value lies, and with which strides.
 *
 *  - The parts of a split are views of what was split.
 *  - What is only made to be stacked is made in its place in the stack.
 *  - accum: with one micro-batch y is x. With several, or where x is a sum of contributions (a tied weight
 * has two), whoever makes a contribution that nobody else reads writes it straight into y: the first one
 *    overwrites in the first micro-batch, all others add. A table's gradient then exists once, not three
 * times.
 *  - assign: a new value whose maker reads the old one element by element, or not at all, is made in place,
 * if nobody reads the old one in between. In-place results of other nodes are settled later, when lifetimes
 * are known (lifetime.c).
 *  - store: what it makes is the cache itself, always. */
#include "plan/planner.h"
#include "base/arena.h"

int tn_local_rank(const struct tn_value *v, const struct tn_local *l)
{
    return l->flat ? 1 : (int)v->rank;
}

static const struct tn_local *local(const struct tn_planner *p, const struct tn_value *v)
{
    return &p->plan->place[v->id].local;
}

void tn_planner_contiguous(const struct tn_planner *p, const struct tn_value *v, int64_t *stride)
{
    const struct tn_local *l = local(p, v);
    int64_t n = 1;

    if (l->flat) {
        stride[0] = 1;
        return;
    }
    for (uint32_t d = v->rank; d-- > 0;) {
        stride[d] = n;
        n *= l->size[d];
    }
}

/* Same dims in the same order, same local sizes, same chunk. */
int tn_planner_same_shape(const struct tn_planner *p, const struct tn_value *a, const struct tn_value *b)
{
    const struct tn_local *x = local(p, a), *y = local(p, b);

    if (a->rank != b->rank || a->dtype != b->dtype || x->count != y->count || x->flat != y->flat ||
        x->flat_start != y->flat_start)
        return 0;
    for (uint32_t d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d] || x->size[d] != y->size[d])
            return 0;
    return 1;
}

/* --- views and stacks */

static const struct tn_value *cut_whole(const struct tn_step *cut)
{
    return cut->op->flags & TN_OP_VIEW ? cut->in[0] : cut->out[0];
}

static struct tn_value *cut_part(const struct tn_step *cut, uint32_t part)
{
    return cut->op->flags & TN_OP_VIEW ? cut->out[part] : cut->in[part];
}

/* Strides and offset of a part within the storage of the whole; 0 if no strides say it (flat chunks). With as
 * many dims as the whole it is the whole, perhaps under other names, or an equal share of one dim. Else a dim that
 * the part lacks is the one it was cut along, and the part's number is the index there. */
int tn_planner_part(struct tn_planner *p, const struct tn_step *cut, uint32_t part, int64_t *stride,
                    int64_t *offset, const struct tn_value **root)
{
    const struct tn_value *w = cut_whole(cut), *v = cut_part(cut, part);
    const struct tn_spot *whole = tn_planner_spot(p, w);

    if (local(p, w)->flat != local(p, v)->flat || (local(p, w)->flat && v->rank != w->rank))
        return 0;
    *root = whole->root;
    *offset = whole->offset;
    if (local(p, w)->flat) {
        stride[0] = 1;
        return 1;
    }
    for (uint32_t d = 0; d < w->rank; d++) {
        int at = v->rank == w->rank ? (int)d : tn_value_find_dim(v, w->dim[d]);
        if (at >= 0)
            stride[at] = whole->stride[d];
        if (at < 0)
            *offset += part * whole->stride[d];
        else if (local(p, v)->size[at] != local(p, w)->size[d])
            *offset += part * local(p, v)->size[at] * whole->stride[d];
    }
    return 1;
}

static void link_part(struct tn_planner *p, const struct tn_step *cut, uint32_t part, uint32_t how)
{
    struct tn_value *v = cut_part(cut, part);
    struct tn_spot *s = &p->spot[v->id];

    if (s->whole || s->kept || s->into || local(p, v)->flat)
        return;
    s->into = cut_whole(cut);
    s->cut = cut;
    s->part = part;
    s->how = how;
}

/* Is it made by a kernel that we may tell where to write? */
static const struct tn_step *maker(const struct tn_planner *p, const struct tn_value *v)
{
    uint32_t made = p->made[v->id];

    if (made == TN_NOWHERE || p->step[made].dead)
        return NULL;
    if (p->step[made].op->flags & (TN_OP_VIEW | TN_OP_STACK | TN_OP_ACCUM | TN_OP_EFFECT | TN_OP_COLLECTIVE | TN_OP_STORE))
        return NULL;
    return &p->step[made];
}

static void alias_cut(struct tn_planner *p, const struct tn_step *s)
{
    if (s->op->flags & TN_OP_VIEW)
        for (uint32_t i = 0; i < s->n_out; i++)
            link_part(p, s, i, TN_INTO_PART);
    if (s->op->flags & TN_OP_STACK)
        for (uint32_t i = 0; i < s->n_in; i++)
            if (maker(p, s->in[i]) && tn_same_task(maker(p, s->in[i]), s) &&
                tn_planner_uses(p, s->in[i], NULL) == 1)
                link_part(p, s, i, TN_INTO_STACK);
}

/* --- accumulators */

int tn_expr_is_sum(const struct tn_expr *e, uint32_t n_in)
{
    uint32_t seen = 0, adds = 0;

    if (!e || n_in < 2 || n_in > 31 || e->program.n_result != 1 || e->program.n_uniform ||
        e->program.n_constant)
        return 0;
    for (uint32_t i = 0; i < e->program.n_instr; i++) {
        const struct tn_instr *x = &e->program.instr[i];
        if (x->op == TN_E_ADD)
            adds++;
        else if (x->op != TN_E_IN || seen & 1u << x->a)
            return 0;
        else
            seen |= 1u << x->a;
    }
    return adds == n_in - 1 && seen == (1u << n_in) - 1;
}

/* May its maker add it straight into y? */
static int adds_directly(const struct tn_planner *p, const struct tn_value *x, const struct tn_step *accum)
{
    const struct tn_spot *s = &p->spot[x->id];
    const struct tn_step *m = maker(p, x);

    return m && !s->into && !s->apart && !s->kept && tn_planner_uses(p, x, NULL) == 1 &&
           tn_list_repeats(m->list) && (m->list == TN_LIST_PER_MICRO) == (accum->list == TN_LIST_PER_MICRO) &&
           tn_planner_same_shape(p, x, accum->out[0]);
}

static void add_directly(struct tn_planner *p, const struct tn_value *x, const struct tn_value *y)
{
    struct tn_spot *s = &p->spot[x->id];

    s->into = y;
    s->how = TN_INTO_SAME;
    s->adds = 1;
}

/* The sum that makes x, if nobody else reads x. */
static struct tn_step *sum_of(const struct tn_planner *p, const struct tn_value *x,
                              const struct tn_step *accum)
{
    const struct tn_step *m = maker(p, x);
    const struct tn_spot *s = &p->spot[x->id];

    if (!m || !(m->op->flags & TN_OP_INPLACE) || !tn_same_task(m, accum) || s->kept || s->whole ||
        tn_planner_uses(p, x, NULL) != 1 || !tn_expr_is_sum(m->expr, m->n_in))
        return NULL;
    for (uint32_t i = 0; i < m->n_in; i++)
        if (!tn_planner_same_shape(p, m->in[i], accum->out[0]))
            return NULL;
    return &p->step[p->made[x->id]];
}

/* Input i of accum is a sum: where some of its terms can go straight into the accumulator, all of them become
 * inputs of the accum itself. Returns 1 if so. */
static int take_terms(struct tn_planner *p, struct tn_step *accum, uint32_t i)
{
    struct tn_step *sum = sum_of(p, accum->in[i], accum);
    struct tn_value **in;
    uint32_t direct = 0;

    if (!sum || p->o->no_fuse)
        return 0;
    for (uint32_t k = 0; k < sum->n_in; k++)
        direct += adds_directly(p, sum->in[k], accum) || sum_of(p, sum->in[k], accum);
    if (!direct)
        return 0;
    in = tn_alloc_array(p->arena, accum->n_in + sum->n_in, sizeof *in);
    memcpy(in, accum->in, accum->n_in * sizeof *in);
    in[i] = sum->in[0];
    memcpy(in + accum->n_in, sum->in + 1, (sum->n_in - 1) * sizeof *in);
    sum->dead = 1;
    accum->in = in;
    accum->n_in += sum->n_in - 1;
    tn_planner_index(p);
    return 1;
}

static void set_first_writer(struct tn_planner *p, const struct tn_step *accum)
{
    const struct tn_value *first = NULL;

    for (uint32_t i = 0; i < accum->n_in; i++)
        if (p->spot[accum->in[i]->id].adds && (!first || p->made[accum->in[i]->id] < p->made[first->id]))
            first = accum->in[i];
    if (first)
        p->spot[first->id].first_writer = 1;
}

static void alias_accum(struct tn_planner *p, const struct tn_step *s)
{
    const struct tn_value *x = s->in[0], *y = s->out[0];
    struct tn_spot *to = &p->spot[y->id];

    if (s->n_in == 1 && p->plan->n_micro == 1 && x->kind == TN_VALUE_TMP && !to->whole &&
        !p->spot[x->id].how) {
        to->into = x;
        to->how = TN_INTO_SAME;
        return;
    }
    to->accumulates = 1;
    for (uint32_t i = 0; i < s->n_in; i++)
        if (adds_directly(p, s->in[i], s))
            add_directly(p, s->in[i], y);
    set_first_writer(p, s);
}

/* --- what is written where it replaces something */

static int reads_root(struct tn_planner *p, const struct tn_step *s, const struct tn_value *source)
{
    for (uint32_t i = 0; i < s->n_in; i++)
        if (tn_step_reads(s, i) && tn_planner_spot(p, s->in[i])->root == source)
            return 1;
    return 0;
}

/* Does s read the source only as itself, so that an in-place kernel may overwrite it? */
static int reads_as_is(struct tn_planner *p, const struct tn_step *s, const struct tn_value *source)
{
    for (uint32_t i = 0; i < s->n_in; i++)
        if (tn_step_reads(s, i) && s->in[i] != source && tn_planner_spot(p, s->in[i])->root == source)
            return 0;
    return 1;
}

/* Another output of s lies there already. */
static int writes_root(struct tn_planner *p, const struct tn_step *s, const struct tn_value *source)
{
    for (uint32_t i = 0; i < s->n_out; i++)
        if (tn_planner_spot(p, s->out[i])->root == source)
            return 1;
    return 0;
}

static void alias_assign(struct tn_planner *p, uint32_t at)
{
    const struct tn_step *s = &p->step[at], *m = maker(p, s->in[1]);
    const struct tn_value *source = s->in[0], *x = s->in[1];
    struct tn_spot *spot = &p->spot[x->id];

    if (!m || !tn_same_task(m, s) || spot->into || spot->kept || spot->whole || spot->accumulates ||
        tn_planner_uses(p, x, NULL) != 1 || !tn_planner_same_shape(p, x, source))
        return;
    if (reads_root(p, m, source) && (!(m->op->flags & TN_OP_INPLACE) || !reads_as_is(p, m, source)))
        return;
    if (writes_root(p, m, source))
        return;
    for (const struct tn_step *between = m + 1; between < s; between++)
        if (!between->dead && (reads_root(p, between, source) || writes_root(p, between, source)))
            return;
    spot->ready = 0;
    spot->into = source;
    spot->how = TN_INTO_SAME;
}

/* A view shows what its whole was when it was cut. If the whole is overwritten before the view is last read,
 * it must be a copy. Returns 1 if some view was marked. */
static int mark_stale_views(struct tn_planner *p)
{
    int marked = 0;

    for (uint32_t i = 0; i < p->n_step; i++) {
        const struct tn_step *cut = &p->step[i];
        for (uint32_t o = 0; o < cut->n_out && !cut->dead && cut->op->flags & TN_OP_VIEW; o++) {
            const struct tn_spot *s = tn_planner_spot(p, cut->out[o]);
            const uint32_t *use;
            uint32_t n = tn_planner_uses(p, cut->out[o], &use), last = i;

            if (s->how != TN_INTO_PART || s->root->kind == TN_VALUE_TMP)
                continue;
            for (uint32_t u = 0; u < n; u++)
                last = use[u] > last ? use[u] : last;
            for (uint32_t a = i + 1; a < last; a++)
                if (!p->step[a].dead && p->step[a].op->flags & TN_OP_EFFECT && p->step[a].in[0] == s->root)
                    p->spot[cut->out[o]->id].whole = marked = 1;
        }
    }
    return marked;
}

/* --- all of it */

static void forget(struct tn_planner *p)
{
    for (uint32_t v = 0; v < p->plan->n_value; v++) {
        struct tn_spot *s = &p->spot[v];
        *s = (struct tn_spot){.whole = s->whole, .apart = s->apart, .kept = s->kept};
    }
}

static void decide(struct tn_planner *p)
{
    forget(p);
    for (uint32_t i = 0; i < p->n_step; i++)
        if (!p->step[i].dead && p->step[i].op->flags & TN_OP_STORE)
            p->spot[p->step[i].out[0]->id].into = p->step[i].in[0], p->spot[p->step[i].out[0]->id].how = TN_INTO_SAME;
    for (uint32_t i = 0; i < p->n_step && !p->o->no_alias; i++)
        if (!p->step[i].dead)
            alias_cut(p, &p->step[i]);
    for (uint32_t i = 0; i < p->n_step; i++) {
        struct tn_step *s = &p->step[i];
        if (s->dead || !(s->op->flags & TN_OP_ACCUM))
            continue;
        if (p->o->no_alias) {
            p->spot[s->out[0]->id].accumulates = 1;
            continue;
        }
        for (uint32_t k = 0; k < s->n_in;)
            k += !take_terms(p, s, k);
        alias_accum(p, s);
    }
    for (uint32_t i = 0; i < p->n_step && !p->o->no_inplace; i++)
        if (!p->step[i].dead && p->step[i].op->flags & TN_OP_EFFECT && p->step[i].n_in == 2)
            alias_assign(p, i);
}

/* Decides anew, minding the marks. */
void tn_planner_alias(struct tn_planner *p)
{
    do
        decide(p);
    while (mark_stale_views(p));
}

const struct tn_spot *tn_planner_spot(struct tn_planner *p, const struct tn_value *v)
{
    struct tn_spot *s = &p->spot[v->id];

    if (s->ready)
        return s;
    if (s->how == TN_INTO_SAME) {
        const struct tn_spot *to = tn_planner_spot(p, s->into);
        s->root = to->root;
        s->offset = to->offset;
        memcpy(s->stride, to->stride, sizeof s->stride);
    } else if (s->how == TN_INTO_NONE ||
               !tn_planner_part(p, s->cut, s->part, s->stride, &s->offset, &s->root)) {
        s->into = NULL;
        s->how = TN_INTO_NONE;
        s->root = v;
        s->offset = 0;
        tn_planner_contiguous(p, v, s->stride);
    }
    s->ready = 1;
    return s;
}
