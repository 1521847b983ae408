/* both.c - a forward and its gradient in one launch, while what both need is there.
 *
 * head gives the log-sum-exp and the target's logit of each row and drops the logits; head_bwd has to make them
 * again, a product of rows x vocab x width. But the loss is a sum over tokens, so what head_bwd wants from above,
 * dlse and dz, depends on the targets and on the seed alone: it can be made before the head. Then both steps are
 * one, head_train, at the head's place, and what makes dlse and dz goes in front of it. Nothing here knows heads: the
 * table of operations says of which operation `both` is there, and where its operands come from.
 *
 * Where the gradient does depend on the forward's results (a cut vocabulary, another loss), where the plugin that takes
 * the gradient does not take both, or where a pipeline has several micro-batches in flight, each of which would keep
 * the gradient from its forward to its backward, nothing changes. This comes before anything is placed. */
#include "plan/planner.h"
#include "base/arena.h"

struct pair {
    struct tn_planner *p;
    uint32_t fore, back; /* steps */
    uint8_t *early;      /* steps of the backward that go in front of it */
};

/* Can v be had before the forward? Marks the steps that have to move for it. */
static int comes_early(struct pair *r, const struct tn_value *v)
{
    uint32_t made = r->p->made[v->id];
    const struct tn_step *s;

    if (made == TN_NOWHERE || made < r->fore || r->early[made])
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

/* The one step that reads the forward's first output as its gradient does: the forward's inputs, that output, and what
 * comes from above. */
static int find_back(struct pair *r)
{
    const struct tn_step *f = &r->p->step[r->fore];
    const struct tn_op *back = tn_op_find(f->op->back[0]);
    const uint32_t *use;
    uint32_t n = tn_planner_uses(r->p, f->out[0], &use), found = 0;

    for (uint32_t u = 0; u < n; u++) {
        const struct tn_step *s = &r->p->step[use[u]];
        if (s->op != back)
            continue;
        r->back = use[u];
        found += s->list == TN_LIST_BACKWARD && !s->once && s->in[f->n_in] == f->out[0] && !memcmp(s->in, f->in, f->n_in * sizeof *s->in);
    }
    memset(r->early, 0, r->p->n_step);
    if (found != 1)
        return 0;
    for (uint32_t i = f->n_in + 1; i < r->p->step[r->back].n_in; i++)
        if (!comes_early(r, r->p->step[r->back].in[i]))
            return 0;
    return 1;
}

/* head: x w i, and x w i lse dlse dz -> dx dw, become x w i dlse dz -> lse z dx dw */
static struct tn_step join(const struct pair *r)
{
    const struct tn_step *f = &r->p->step[r->fore], *b = &r->p->step[r->back];
    uint32_t above = b->n_in - f->n_in - 1;
    struct tn_step s = *b;

    s.op = tn_op_find(f->op->both);
    s.list = f->list, s.part = f->part;
    s.merged = f->merged + b->merged;
    s.n_in = f->n_in + above, s.n_out = f->n_out + b->n_out;
    s.in = tn_alloc_array(r->p->arena, s.n_in, sizeof *s.in);
    s.out = tn_alloc_array(r->p->arena, s.n_out, sizeof *s.out);
    memcpy(s.in, f->in, f->n_in * sizeof *s.in);
    memcpy(s.in + f->n_in, b->in + f->n_in + 1, above * sizeof *s.in);
    memcpy(s.out, f->out, f->n_out * sizeof *s.out);
    memcpy(s.out + f->n_out, b->out, b->n_out * sizeof *s.out);
    return s;
}

/* What comes early, the joined step, the rest; in the end a dead step, for there is one less. */
static void reorder(struct pair *r, const struct tn_step *joined)
{
    struct tn_step *step = r->p->step + r->fore;
    uint32_t n = r->back - r->fore + 1, put = 0;
    struct tn_step *old = tn_alloc_array(r->p->arena, n, sizeof *old);

    memcpy(old, step, n * sizeof *old);
    for (uint32_t i = 0; i < n; i++)
        if (r->early[r->fore + i]) {
            step[put] = old[i];
            step[put].list = joined->list, step[put++].part = joined->part;
        }
    step[put++] = *joined;
    for (uint32_t i = 1; i + 1 < n; i++)
        if (!r->early[r->fore + i])
            step[put++] = old[i];
    step[put] = old[n - 1];
    step[put].dead = 1;
    tn_planner_index(r->p);
}

tn_status tn_planner_both(struct tn_planner *p)
{
    struct pair r = {.p = p, .early = tn_alloc(p->arena, p->n_step + 1u)};
    tn_status s = TN_OK;

    for (; r.fore < p->n_step && !s && p->in_sequence; r.fore++) {
        const struct tn_step *f = &p->step[r.fore];
        struct tn_step joined;

        if (f->dead || !f->op->both || f->list != TN_LIST_FORWARD || !find_back(&r))
            continue;
        joined = join(&r);
        s = tn_planner_accepts(p, &p->step[r.back], &joined);
        if (!s)
            reorder(&r, &joined);
        s = s == TN_DECLINED ? TN_OK : s;
    }
    return s;
}
