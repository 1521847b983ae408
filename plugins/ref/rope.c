/* rope.c - rotary positions: the pairs (x[i], x[i + D/2]) of each row turned by the angles of its position.
 *
 * Angles come as a table of cosines and sines by position; a position that has no row there gives 0. */
#include "ref.h"

struct rope {
    struct tn_ref_base base;
    struct tn_ref_view x, pos, table, y;         /* x, y […;D], pos [T;], table [R;D] */
    int64_t times, inner;                        /* rows with one position beside each other, and how many positions */
    double sign;
};

static tn_status rope(void *state, const struct tn_launch *l)
{
    const struct rope *k = state;
    const int64_t half = k->x.n_col / 2;

    for (int64_t r = 0; r < k->x.n_row; r++) {
        const double t = tn_ref_get(l, &k->pos, r / k->inner % k->times, 0);
        const int here = t >= 0 && t < (double)k->table.n_row;

        for (int64_t c = 0; c < half; c++) {
            const double a = tn_ref_get(l, &k->x, r, c), b = tn_ref_get(l, &k->x, r, half + c);
            const double cosine = here ? tn_ref_get(l, &k->table, (int64_t)t, c) : 0;
            const double sine = here ? k->sign * tn_ref_get(l, &k->table, (int64_t)t, half + c) : 0;

            tn_ref_put(l, &k->y, r, c, a * cosine - b * sine);
            tn_ref_put(l, &k->y, r, half + c, b * cosine + a * sine);
        }
    }
    return TN_OK;
}

tn_status tn_ref_rope(const struct tn_problem *p, struct tn_kernel *out)
{
    const struct tn_operand *x = &p->in[0];
    struct rope *k = tn_ref_state(sizeof *k);
    uint32_t along = 0;

    if (!k)
        return TN_ERR_MEMORY;
    while (along + 1 < x->rank && strcmp(x->dim[along], p->in[1].dim[0]))
        along++;
    tn_ref_input(k, p, 0, x->rank - 1, &k->x);
    tn_ref_input(k, p, 1, 1, &k->pos);
    tn_ref_input(k, p, 2, 1, &k->table);
    tn_ref_output(k, p, 0, x->rank - 1, &k->y);
    k->times = x->size[along], k->inner = 1;
    for (uint32_t d = along + 1; d + 1 < x->rank; d++)
        k->inner *= x->size[d];
    k->sign = tn_problem_float(p, "sign", 1);
    return tn_ref_ready(out, k, rope, 0);
}
