/* remake.c - element-wise results are made again in the backward instead of kept for it.
 *
 * The forward makes g = f(u) (gelu of the widest tensor of a block), and the backward needs both: u for du =
 * dg·f'(u), g for the gradient of the next weight. The step that makes du reads u anyway, so it can give g
 * once more on the side: no pass over memory more, most of the arithmetic is shared, and g need not live from
 * forward to backward.
 *
 * Only that is done: g is an expr of the forward with one result; some expr of the backward reads all
 * temporaries that f reads; and those who need g in the backward come after it, or can, together with the
 * accum of their results. Nothing else is made twice. */
#include "plan/planner.h"
#include "base/arena.h"

struct remake {
    struct tn_planner *p;
    const struct tn_op *expr;
    uint32_t forward, host; /* steps: makes g; will give it again */
    uint8_t *moves;         /* steps that must go behind the host */
    uint32_t *went;         /* while they go: from forward on, the new place of each */
    struct tn_step *moved;  /* room for them */
    uint32_t done;          /* some step has moved */
};

static int reads(const struct tn_step *s, const struct tn_value *v)
{
    for (uint32_t i = 0; i < s->n_in; i++)
        if (s->in[i] == v)
            return 1;
    return 0;
}

/* Does step h read all temporaries that s reads? One at least. */
static int reads_alike(const struct tn_step *h, const struct tn_step *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_in; i++) {
        if (s->in[i]->kind != TN_VALUE_TMP)
            continue;
        if (!reads(h, s->in[i]))
            return 0;
        n++;
    }
    return n > 0;
}

static int find_host(struct remake *r)
{
    const struct tn_step *step = r->p->step, *s = &step[r->forward];

    for (uint32_t i = r->forward + 1; i < r->p->n_step; i++)
        if (!step[i].dead && step[i].list == TN_LIST_BACKWARD && step[i].op == r->expr &&
            !reads(&step[i], s->out[0]) && reads_alike(&step[i], s) &&
            tn_planner_same_shape(r->p, step[i].out[0], s->out[0])) {
            r->host = i;
            return 1;
        }
    return 0;
}

/* Everything that reads v in the backward, up to the host, moves behind it, if those who read its results do.
 */
static int move_readers(struct remake *r, const struct tn_value *v, int all)
{
    const uint32_t *use;
    uint32_t n = tn_planner_uses(r->p, v, &use);

    for (uint32_t u = 0; u < n; u++) {
        const struct tn_step *s = &r->p->step[use[u]];
        if (s->list != TN_LIST_BACKWARD ? all : use[u] == r->host)
            return 0;
        if (s->list != TN_LIST_BACKWARD || use[u] > r->host || r->moves[use[u]])
            continue;
        if (all && !(s->op->flags & TN_OP_ACCUM))
            return 0;
        r->moves[use[u]] = 1;
        for (uint32_t o = 0; o < s->n_out; o++)
            if (s->op->flags & TN_OP_ACCUM ? 0 : !move_readers(r, s->out[o], 1))
                return 0;
    }
    return 1;
}

/* Results of an accum that moves are read behind the host only; nothing is overwritten on the way. */
static int accums_may_move(const struct remake *r)
{
    for (uint32_t i = r->forward + 1; i < r->host; i++) {
        const struct tn_step *s = &r->p->step[i];
        if (!s->dead && s->op->flags & TN_OP_EFFECT)
            return 0;
        for (uint32_t o = 0; r->moves[i] && s->op->flags & TN_OP_ACCUM && o < s->n_out; o++) {
            const uint32_t *use;
            uint32_t n = tn_planner_uses(r->p, s->out[o], &use);
            for (uint32_t u = 0; u < n; u++)
                if (use[u] <= r->host)
                    return 0;
        }
    }
    return 1;
}

static int wanted(struct remake *r)
{
    const struct tn_step *s = &r->p->step[r->forward];
    const uint32_t *use;
    uint32_t n, backward = 0;

    if (s->dead || s->op != r->expr || s->list != TN_LIST_FORWARD || s->n_out != 1 ||
        r->p->spot[s->out[0]->id].kept)
        return 0;
    n = tn_planner_uses(r->p, s->out[0], &use);
    for (uint32_t u = 0; u < n; u++)
        backward += r->p->step[use[u]].list == TN_LIST_BACKWARD;
    if (!backward || !find_host(r))
        return 0;
    memset(r->moves, 0, r->p->n_step);
    return move_readers(r, s->out[0], 0) && accums_may_move(r);
}

/* The second life of v. */
static struct tn_value *twin(struct tn_planner *p, const struct tn_value *v)
{
    struct tn_value *t = tn_alloc(p->arena, sizeof *t);

    *t = *v;
    t->id = p->plan->n_value++;
    t->next_value = p->values;
    p->values = t;
    p->plan->place[t->id].local = p->plan->place[v->id].local;
    p->spot[t->id] = (struct tn_spot){0};
    return t;
}

/* The host with g as one more input, which its expression does not read: so that both can be joined. */
static tn_status with_input(struct tn_planner *p, const struct tn_step *h, struct tn_value *g,
                            struct tn_step *out)
{
    uint32_t map[TN_MAX_IN];

    *out = *h;
    out->in = tn_alloc_array(p->arena, h->n_in + 1u, sizeof *out->in);
    memcpy(out->in, h->in, h->n_in * sizeof *out->in);
    out->in[out->n_in++] = g;
    for (uint32_t i = 0; i < h->n_in; i++)
        map[i] = i;
    out->expr = tn_expr_renumber(p->arena, h->expr, map, out->n_in);
    return out->expr ? TN_OK : TN_DECLINED;
}

/* Where values lie was decided and stays; only the cuts that make them have other places. */
static void follow_cuts(struct remake *r)
{
    struct tn_planner *p = r->p;

    for (uint32_t v = 0; v < p->plan->n_value; v++) {
        const struct tn_step *cut = p->spot[v].cut;
        if (cut && cut > p->step + r->forward && cut <= p->step + r->host)
            p->spot[v].cut = p->step + r->went[cut - p->step];
    }
}

/* Steps that move go right behind the host, in their order. */
static void reorder(struct remake *r)
{
    struct tn_planner *p = r->p;
    uint32_t n = 0, put = r->forward + 1;

    for (uint32_t i = r->forward + 1; i < r->host; i++)
        if (r->moves[i])
            r->moved[n++] = p->step[i];
    if (!n)
        return;
    for (uint32_t i = r->forward + 1; i <= r->host; i++)
        if (i == r->host || !r->moves[i]) {
            r->went[i] = put;
            p->step[put++] = p->step[i];
        }
    memcpy(p->step + put, r->moved, n * sizeof *r->moved);
    for (uint32_t i = r->forward + 1; i < r->host; i++)
        if (r->moves[i])
            r->went[i] = put++;
    follow_cuts(r);
}

static void read_instead(struct tn_planner *p, const struct tn_value *old, struct tn_value *now)
{
    for (uint32_t i = 0; i < p->n_step; i++)
        for (uint32_t k = 0; k < p->step[i].n_in && p->step[i].list == TN_LIST_BACKWARD; k++)
            if (p->step[i].in[k] == old)
                p->step[i].in[k] = now;
}

static tn_status remake(struct remake *r)
{
    struct tn_planner *p = r->p;
    struct tn_value *old = p->step[r->forward].out[0], *g;
    struct tn_step again = p->step[r->forward], host, joined;
    uint32_t n_value = p->plan->n_value;
    tn_status s;

    if (p->step[r->host].n_in == TN_MAX_IN)
        return TN_OK;
    g = twin(p, old);
    again.out = tn_alloc(p->arena, sizeof *again.out);
    again.out[0] = g;
    s = with_input(p, &p->step[r->host], g, &host);
    if (!s)
        s = tn_planner_join(p, &again, &host, 1, &joined);
    if (!s)
        s = tn_planner_accepts(p, &p->step[r->host], &joined);
    if (s) {
        p->values = g->next_value;
        p->plan->n_value = n_value;
        return s == TN_DECLINED ? TN_OK : s;
    }
    joined.node = p->step[r->host].node;
    p->step[r->host] = joined;
    reorder(r);
    read_instead(p, old, g);
    tn_planner_index(p);
    r->done = 1;
    return TN_OK;
}

tn_status tn_planner_remake(struct tn_planner *p)
{
    struct remake r = {.p = p, .expr = tn_op_find("expr"), .moves = tn_alloc(p->arena, p->n_step + 1u)};
    tn_status s = TN_OK;

    r.went = tn_alloc_array(p->arena, p->n_step + 1u, sizeof *r.went);
    r.moved = tn_alloc_array(p->arena, p->n_step + 1u, sizeof *r.moved);
    for (; r.forward < p->n_step && !s; r.forward++)
        if (wanted(&r))
            s = remake(&r);
    if (!s && r.done)
        tn_planner_alias(p);
    return s;
}
