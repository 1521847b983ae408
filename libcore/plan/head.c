/* head.c - the head and its gradient in one launch, while the logits are there.
 *
 * head gives the log-sum-exp and the target's logit of each row and drops the logits; head_bwd has to make them
 * again, a product of rows x vocab x width. But the loss is a sum over tokens, so what head_bwd wants from above,
 * dlse and dz, depends on the targets and on the seed alone: it can be made before the head. Then both steps are
 * one, head_train, at the head's place, and what makes dlse and dz goes in front of it.
 *
 * Where the gradient does depend on the head's results (a cut vocabulary, another loss), where the plugin that takes
 * head_bwd does not take head_train, or where a pipeline has several micro-batches in flight, each of which would keep
 * the gradient from its forward to its backward, nothing changes. This comes before anything is placed. */
#include "plan/planner.h"
#include "base/arena.h"

struct pair {
    struct tn_planner *p;
    uint32_t head, back; /* steps */
    uint8_t *early;      /* steps of the backward that go in front of the head */
};

/* Can v be had before the head? Marks the steps that have to move for it. */
static int comes_early(struct pair *r, const struct tn_value *v)
{
    uint32_t made = r->p->made[v->id];
    const struct tn_step *s;

    if (made == TN_NOWHERE || made < r->head || r->early[made])
        return 1;
    s = &r->p->step[made];
    if (s->list != TN_LIST_BACKWARD || s->once || s->op->flags & (TN_OP_EFFECT | TN_OP_ACCUM | TN_OP_COLLECTIVE))
        return 0;
    for (uint32_t i = 0; i < s->n_in; i++)
        if (tn_step_reads(s, i) && !comes_early(r, s->in[i]))
            return 0;
    r->early[made] = 1;
    return 1;
}

/* The gradient of the head h: the step that reads its log-sum-exp and the same operands. */
static int find_back(struct pair *r, const struct tn_op *head_bwd)
{
    const struct tn_step *h = &r->p->step[r->head];
    const uint32_t *use;
    uint32_t n = tn_planner_uses(r->p, h->out[0], &use), found = 0;

    for (uint32_t u = 0; u < n; u++) {
        const struct tn_step *s = &r->p->step[use[u]];
        if (s->op != head_bwd)
            continue;
        r->back = use[u];
        found += s->list == TN_LIST_BACKWARD && !s->once && s->in[3] == h->out[0] &&
                 !memcmp(s->in, h->in, 3 * sizeof *s->in);
    }
    memset(r->early, 0, r->p->n_step);
    return found == 1 && comes_early(r, r->p->step[r->back].in[4]) && comes_early(r, r->p->step[r->back].in[5]);
}

/* x, w, i, dlse, dz -> lse, z, dx, dw */
static struct tn_step join(const struct pair *r)
{
    const struct tn_step *h = &r->p->step[r->head], *b = &r->p->step[r->back];
    struct tn_step s = *b;

    s.op = tn_op_find("head_train");
    s.list = h->list, s.part = h->part;
    s.merged = h->merged + b->merged;
    s.flops = 3 * h->flops;
    s.n_in = 5, s.n_out = 4;
    s.in = tn_alloc_array(r->p->arena, s.n_in, sizeof *s.in);
    s.out = tn_alloc_array(r->p->arena, s.n_out, sizeof *s.out);
    memcpy(s.in, h->in, 3 * sizeof *s.in);
    memcpy(s.in + 3, b->in + 4, 2 * sizeof *s.in);
    memcpy(s.out, h->out, 2 * sizeof *s.out);
    memcpy(s.out + 2, b->out, 2 * sizeof *s.out);
    return s;
}

/* What comes early, the joined step, the rest; in the end a dead step, for there is one less. */
static void reorder(struct pair *r, const struct tn_step *joined)
{
    struct tn_step *step = r->p->step + r->head;
    uint32_t n = r->back - r->head + 1, put = 0;
    struct tn_step *old = tn_alloc_array(r->p->arena, n, sizeof *old);

    memcpy(old, step, n * sizeof *old);
    for (uint32_t i = 0; i < n; i++)
        if (r->early[r->head + i]) {
            step[put] = old[i];
            step[put].list = joined->list, step[put++].part = joined->part;
        }
    step[put++] = *joined;
    for (uint32_t i = 1; i + 1 < n; i++)
        if (!r->early[r->head + i])
            step[put++] = old[i];
    step[put] = old[n - 1];
    step[put].dead = 1;
    tn_planner_index(r->p);
}

tn_status tn_planner_head(struct tn_planner *p)
{
    struct pair r = {.p = p, .early = tn_alloc(p->arena, p->n_step + 1u)};
    const struct tn_op *head = tn_op_find("head"), *head_bwd = tn_op_find("head_bwd");
    tn_status s = TN_OK;

    for (; r.head < p->n_step && !s && p->in_sequence; r.head++) {
        const struct tn_step *h = &p->step[r.head];
        struct tn_step joined;

        if (h->dead || h->op != head || h->list != TN_LIST_FORWARD || !find_back(&r, head_bwd))
            continue;
        joined = join(&r);
        s = tn_planner_accepts(p, &p->step[r.back], &joined);
        if (!s)
            reorder(&r, &joined);
        s = s == TN_DECLINED ? TN_OK : s;
    }
    return s;
}
