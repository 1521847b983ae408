/* loss.c - entries picked by number, and cross-entropy over the last dim.
 *
 * For pick the last dim may be a part of the whole one: a number that is not here, or negative, gives 0. For
 * ce it is whole. */
#include "ref.h"

struct loss {
    struct tn_ref_base base;
    struct tn_ref_view x, index, rows, dx;       /* x and dx [I...;V], i [I...;], y or dy [I...;] */
    const int64_t *global;                       /* of each entry of the last dim; pick only */
    int64_t n;                                   /* V */
};

static int64_t number(const struct loss *k, const struct tn_launch *l, int64_t row)
{
    return (int64_t)tn_ref_get(l, &k->index, row, 0);
}

static tn_status pick(void *state, const struct tn_launch *l)
{
    const struct loss *k = state;

    for (int64_t r = 0; r < k->index.n_row; r++) {
        int64_t c = tn_ref_find(k->global, k->n, number(k, l, r));

        tn_ref_put(l, &k->rows, r, 0, c < 0 ? 0 : tn_ref_get(l, &k->x, r, c));
    }
    return TN_OK;
}

static tn_status pick_bwd(void *state, const struct tn_launch *l)
{
    const struct loss *k = state;

    for (int64_t r = 0; r < k->index.n_row; r++)
        for (int64_t c = 0; c < k->n; c++)
            tn_ref_put(l, &k->dx, r, c, k->global[c] == number(k, l, r) ? tn_ref_get(l, &k->rows, r, 0) : 0);
    return TN_OK;
}

static tn_status ce(void *state, const struct tn_launch *l)
{
    const struct loss *k = state;
    double *x = l->workspace;

    for (int64_t r = 0; r < k->index.n_row; r++) {
        const int64_t id = number(k, l, r);

        tn_ref_get_row(l, &k->x, r, x);
        tn_ref_put(l, &k->rows, r, 0, id < 0 ? 0 : tn_ref_lse(x, k->n) - (id < k->n ? x[id] : 0));
    }
    return TN_OK;
}

static tn_status ce_bwd(void *state, const struct tn_launch *l)
{
    const struct loss *k = state;
    double *x = l->workspace;

    for (int64_t r = 0; r < k->index.n_row; r++) {
        const int64_t id = number(k, l, r);
        const double dy = tn_ref_get(l, &k->rows, r, 0);
        double lse;

        tn_ref_get_row(l, &k->x, r, x);
        lse = tn_ref_lse(x, k->n);
        for (int64_t c = 0; c < k->n; c++)
            tn_ref_put(l, &k->dx, r, c, id < 0 ? 0 : dy * (exp(x[c] - lse) - (c == id)));
    }
    return TN_OK;
}

/* pick: x, i -> y   pick_bwd: dy, i, like x -> dx */
tn_status tn_ref_pick(const struct tn_problem *p, struct tn_kernel *out)
{
    const int back = !strcmp(p->op, "pick_bwd");
    const struct tn_operand *x = back ? &p->out[0] : &p->in[0];
    const uint32_t rank = p->in[1].rank;
    struct loss *k = tn_ref_state(sizeof *k);

    if (!k)
        return TN_ERR_MEMORY;
    k->global = tn_ref_globals(k, x, rank), k->n = x->size[rank];
    tn_ref_input(k, p, 1, rank, &k->index);
    if (back)
        tn_ref_output(k, p, 0, rank, &k->dx);
    else
        tn_ref_input(k, p, 0, rank, &k->x);
    (back ? tn_ref_input : tn_ref_output)(k, p, 0, rank, &k->rows);
    return tn_ref_ready(out, k, back ? pick_bwd : pick, 0);
}

/* ce: x, i -> y   ce_bwd: dy, x, i -> dx */
tn_status tn_ref_ce(const struct tn_problem *p, struct tn_kernel *out)
{
    const uint32_t back = !strcmp(p->op, "ce_bwd"), rank = p->in[back + 1].rank;
    struct loss *k = tn_ref_state(sizeof *k);

    if (!k)
        return TN_ERR_MEMORY;
    k->n = p->in[back].size[rank];
    tn_ref_input(k, p, back, rank, &k->x);
    tn_ref_input(k, p, back + 1, rank, &k->index);
    (back ? tn_ref_input : tn_ref_output)(k, p, 0, rank, &k->rows);
    if (back)
        tn_ref_output(k, p, 0, rank, &k->dx);
    return tn_ref_ready(out, k, back ? ce_bwd : ce, k->n);
}
