/* dropout.c - y = keep ? x / (1 - p) : 0, where keep is drawn for the element's global index.
 *
 * So the mask does not depend on how the tensor is cut. The index is row-major over the whole sizes, with the
 * batch counted on from micro-batch to micro-batch. */
#include "ref.h"
#include <tenon/philox.h>

struct dropout {
    struct tn_ref_base base;
    struct tn_ref_view x, y;
    const int64_t *global_row, *global_col;      /* their sum is the global index */
    int64_t per_micro;                           /* by how much it grows with each micro-batch */
    uint32_t key, threshold;
    double scale;
};

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct dropout *k = state;
    const uint32_t *uniform = l->uniform;

    for (int64_t r = 0; r < k->x.n_row; r++)
        for (int64_t c = 0; c < k->x.n_col; c++) {
            int64_t g = k->global_row[r] + k->global_col[c] + l->micro * k->per_micro;
            int keep = tn_philox_at(tn_ref_seed(uniform), k->key, uniform[2], (uint64_t)g) >= k->threshold;

            tn_ref_put(l, &k->y, r, c, keep ? tn_ref_get(l, &k->x, r, c) * k->scale : 0);
        }
    return TN_OK;
}

tn_status tn_ref_dropout(const struct tn_problem *p, struct tn_kernel *out)
{
    const struct tn_operand *y = &p->out[0];
    const double probability = tn_problem_float(p, "p", 0);
    const int64_t batch = tn_problem_int(p, "micro_dim", -1);
    const uint32_t split = y->rank ? y->rank - 1 : 0;
    int64_t stride[TN_MAX_RANK], n = 1;
    struct dropout *k = tn_ref_state(sizeof *k);

    if (!k)
        return TN_ERR_MEMORY;
    for (uint32_t d = y->rank; d-- > 0; n *= y->whole[d]) {
        stride[d] = n;
        if (d == batch)
            k->per_micro = y->whole[d] * n;
    }
    tn_ref_input(k, p, 0, split, &k->x);
    tn_ref_output(k, p, 0, split, &k->y);
    k->global_row = tn_ref_offsets(k, y, 0, split, stride);
    k->global_col = tn_ref_offsets(k, y, split, y->rank, stride);
    k->key = (uint32_t)tn_problem_int(p, "key", 0);
    k->threshold = tn_dropout_threshold(probability), k->scale = 1 / (1 - probability);
    return tn_ref_ready(out, k, launch, 0);
}
