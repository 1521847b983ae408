/* fuse.c - fewer passes over memory: element-wise work joins what makes its inputs.
 *
 * An expr that reads the result of an einsum becomes its epilogue (bias, then gelu, then the residual), an
 * expr that reads the result of another expr becomes one with it. A result that others read too stays, as one
 * more result. The earlier step moves to the place of the later one, so nobody between may read its results,
 * and nothing that it reads may be overwritten between. Layouts never change, and nothing is fused that the
 * plugin which takes the plain step would decline. */
#include "plan/planner.h"
#include "base/arena.h"
#include "base/status.h"

struct fuser {
    struct tn_planner *p;
    const struct tn_op *einsum, *expr;
};

/* The first plugin that takes the step as it is; TN_NOWHERE: none. */
static tn_status taker(struct tn_planner *p, const struct tn_step *s, uint32_t from, uint32_t to,
                       uint32_t *out)
{
    struct tn_arg arg[TN_MAX_IN + TN_MAX_OUT];
    struct tn_ask a = {.step = s, .arg = arg, .n_in = s->n_in, .n_out = s->n_out, .table = from};
    struct tn_kernel k;

    *out = TN_NOWHERE;
    tn_step_args(p, s, 0, arg);
    for (; a.table < to; a.table++) {
        tn_status status = tn_planner_ask(p, &a, &k);
        if (status == TN_DECLINED)
            continue;
        if (!status && k.release)
            k.release(k.state);
        if (!status)
            *out = a.table;
        return status;
    }
    return TN_OK;
}

/* --- may they? */

static int output_of(const struct tn_step *s, const struct tn_value *v)
{
    for (uint32_t o = 0; o < s->n_out; o++)
        if (s->out[o] == v)
            return (int)o;
    return -1;
}

/* The only input of b that a makes: -1 if there is none or more than one. */
static int joint(const struct tn_step *a, const struct tn_step *b)
{
    int at = -1;

    for (uint32_t i = 0; i < b->n_in; i++)
        if (output_of(a, b->in[i]) >= 0) {
            if (at >= 0)
                return -1;
            at = (int)i;
        }
    return at;
}

static int shapes_fit(const struct tn_planner *p, const struct tn_step *a, const struct tn_step *b)
{
    for (uint32_t o = 0; o < a->n_out; o++)
        if (!tn_planner_same_shape(p, a->out[o], b->out[0]) ||
            p->plan->place[a->out[o]->id].local.flat != p->plan->place[b->out[0]->id].local.flat)
            return 0;
    return 1;
}

/* May a's work be done at the place of b? Sets others: somebody else reads a result of a. */
static int may_move(const struct tn_planner *p, uint32_t a, uint32_t b, uint32_t *others)
{
    const struct tn_step *s = &p->step[a];

    *others = 0;
    for (uint32_t i = a + 1; i < b; i++)
        if (!p->step[i].dead && p->step[i].op->flags & TN_OP_EFFECT)
            return 0;
    for (uint32_t o = 0; o < s->n_out; o++) {
        const uint32_t *use;
        uint32_t n = tn_planner_uses(p, s->out[o], &use);
        for (uint32_t u = 0; u < n; u++) {
            if (use[u] < b)
                return 0;
            *others |= use[u] != b;
        }
        *others |= p->spot[s->out[o]->id].kept;
    }
    return 1;
}

/* --- as one */

/* Inputs without doubles, and which of them each input of the joined program is. */
static uint32_t join_inputs(uint32_t contraction, const struct tn_step *a, const struct tn_step *b, int at,
                            struct tn_value **in, uint32_t *map)
{
    uint32_t n = 0, k = 0, first = contraction ? 2 : 0;

    for (uint32_t i = 0; i < first; i++)
        in[n++] = a->in[i];
    if (contraction)
        map[k++] = 0;
    for (uint32_t i = first; i < a->n_in + b->n_in; i++) {
        struct tn_value *v = i < a->n_in ? a->in[i] : b->in[i - a->n_in];
        uint32_t j = first;

        if (i >= a->n_in && i - a->n_in == (uint32_t)at)
            continue;
        while (j < n && in[j] != v)
            j++;
        if (j == n)
            in[n++] = v;
        map[k++] = j - first + contraction;
    }
    return n;
}

/* The expression "a": of an einsum without an epilogue. */
static const struct tn_expr *itself(struct tn_arena *arena)
{
    static const struct tn_expr_name a = {"a", TN_EXPR_INPUT, 0, 0};

    return tn_expr_parse(arena, "a", &a, 1, NULL, 0);
}

/* b reads one result of a: both as one step, at the place of b. keep: a's results stay results, before b's.
 * TN_DECLINED if it would be too long. */
tn_status tn_planner_join(struct tn_planner *p, const struct tn_step *a, const struct tn_step *b,
                          uint32_t keep, struct tn_step *out)
{
    struct tn_arena *arena = p->arena;
    uint32_t map[TN_MAX_IN * 2 + 2], contraction = a->op == tn_op_find("einsum");
    const struct tn_expr *first = a->expr ? a->expr : itself(arena), *e;
    int at = joint(a, b);

    *out = *b;
    out->op = a->op;
    out->node = contraction ? a->node : b->node;
    out->merged = a->merged + b->merged;
    out->flops = a->flops + b->flops;
    out->in = tn_alloc_array(arena, a->n_in + b->n_in, sizeof *out->in);
    out->n_in = join_inputs(contraction, a, b, at, out->in, map);
    out->n_out = b->n_out + (keep ? a->n_out : 0);
    if (out->n_in + out->n_out > TN_MAX_OPERANDS)
        return TN_DECLINED;
    out->out = tn_alloc_array(arena, out->n_out, sizeof *out->out);
    memcpy(out->out, a->out, (keep ? a->n_out : 0) * sizeof *out->out);
    memcpy(out->out + out->n_out - b->n_out, b->out, b->n_out * sizeof *out->out);
    e = !first ? NULL
               : tn_expr_compose(arena, first, (uint32_t)output_of(a, b->in[at]), b->expr, (uint32_t)at,
                                 (int)keep);
    if (e)
        e = tn_expr_renumber(arena, e, map, out->n_in - contraction);
    out->expr = e;
    if (!e)
        tn_error_clear();
    return e ? TN_OK : TN_DECLINED;
}

/* Does the plugin that takes the plain step take the other one too? TN_DECLINED if not. */
tn_status tn_planner_accepts(struct tn_planner *p, const struct tn_step *plain, const struct tn_step *other)
{
    uint32_t table, takes = TN_NOWHERE;
    tn_status s = taker(p, plain, 0, p->o->n_kernels, &table);

    if (!s && table != TN_NOWHERE)
        s = taker(p, other, table, table + 1, &takes);
    return s ? s : takes == TN_NOWHERE ? TN_DECLINED : TN_OK;
}

/* Fuses step a into step b, if that is right and wanted. */
static tn_status fuse(struct fuser *f, uint32_t ia, uint32_t ib, int alone, int *done)
{
    struct tn_planner *p = f->p;
    struct tn_step *a = &p->step[ia], *b = &p->step[ib], joined;
    uint32_t others;
    tn_status s;

    if (!tn_same_task(a, b) || joint(a, b) < 0 || !shapes_fit(p, a, b) || !may_move(p, ia, ib, &others))
        return TN_OK;
    if ((alone && others) || (!others && a->n_out > 1)) /* a result that nobody wants cannot be dropped */
        return TN_OK;
    if (others && a->n_out > 1 && tn_planner_uses(p, b->in[joint(a, b)], NULL) == 1 &&
        !p->spot[b->in[joint(a, b)]->id].kept)
        return TN_OK;
    s = tn_planner_join(p, a, b, others, &joined);
    if (!s)
        s = tn_planner_accepts(p, a, &joined);
    if (s)
        return s == TN_DECLINED ? TN_OK : s;
    tn_planner_joined(p, ia, ib, &joined);
    *done = 1;
    return TN_OK;
}

/* Steps between that do something other than element-wise work: then a result that others need anyway is
 * better made early, for the sake of what it is made from. */
static int is_near(const struct fuser *f, uint32_t a, uint32_t b)
{
    for (uint32_t i = a + 1; i < b; i++)
        if (!f->p->step[i].dead && f->p->step[i].op != f->expr &&
            !(f->p->step[i].op->flags & (TN_OP_VIEW | TN_OP_STACK)))
            return 0;
    return 1;
}

/* One try for step b: with an expr that only it reads, with an einsum, with an expr that others read too. */
static tn_status fuse_into(struct fuser *f, uint32_t ib, int *done)
{
    struct tn_planner *p = f->p;
    tn_status s = TN_OK;

    for (int way = 0; way < 3 && !s && !*done; way++)
        for (uint32_t i = 0; i < p->step[ib].n_in && !s && !*done; i++) {
            uint32_t ia = p->made[p->step[ib].in[i]->id];
            if (ia == TN_NOWHERE || ia >= ib || p->step[ia].dead)
                continue;
            if (p->step[ia].op != (way == 1 ? f->einsum : f->expr) || (way == 2 && !is_near(f, ia, ib)))
                continue;
            s = fuse(f, ia, ib, way == 0, done);
        }
    return s;
}

tn_status tn_planner_fuse(struct tn_planner *p)
{
    struct fuser f = {.p = p, .einsum = tn_op_find("einsum"), .expr = tn_op_find("expr")};
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < p->n_step && !s; i++) {
        int done = 1;
        while (done && !s && !p->step[i].dead && p->step[i].op == f.expr) {
            done = 0;
            s = fuse_into(&f, i, &done);
        }
    }
    return s;
}
