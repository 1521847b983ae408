/* dropout.cu - y = keep ? x / (1 - p) : 0, where keep is drawn for the element's global index.
 *
 * A thread has four neighbours along the last dim. Where their global indices are neighbours too, their bits come
 * from one or two blocks of the generator. */
#include "philox.cuh"

struct dropout {
    struct tn_cuda_view x, y;                    /* columns: the last dim */
    uint32_t n;                                  /* dims before the last one */
    uint32_t size[TN_MAX_RANK];
    struct tn_cuda_map map[TN_MAX_RANK];
    int64_t whole[TN_MAX_RANK];                  /* strides of the whole tensor */
    int64_t per_micro;                           /* by how much the global index grows */
    uint32_t chunks, total, key, threshold;
    float scale;
    uint64_t base;                               /* of this micro-batch */
    const uint32_t *uniform;
};

/* Global index of the first element of row r; that of the row's column is added. */
TN_DEVICE int64_t row_index(const dropout &k, uint32_t r)
{
    int64_t g = (int64_t)k.base;

    for (uint32_t d = k.n; d-- > 0; r /= k.size[d])
        g += tn_map_global(k.map[d], r % k.size[d]) * k.whole[d];
    return g;
}

TN_DEVICE uint32_t keep4(const dropout &k, int64_t row, uint32_t c)
{
    const tn_cuda_map &last = k.map[k.n];
    uint32_t keep = 0;

    if (last.n == 1)
        return tn_philox_keep4(k.uniform, k.key, k.threshold, (uint64_t)(row + tn_map_global(last, c)));
    for (uint32_t i = 0; i < 4 && c + i < k.x.col.total; i++)
        keep |= tn_philox_keep(k.uniform, k.key, k.threshold, (uint64_t)(row + tn_map_global(last, c + i)))
                << i;
    return keep;
}

TN_KERNEL(256) drop(TN_PARAM(dropout) k)
{
    for (uint32_t at = blockIdx.x * 256 + threadIdx.x; at < k.total; at += gridDim.x * 256) {
        const uint32_t r = at / k.chunks, c = at % k.chunks * 4, keep = keep4(k, row_index(k, r), c);
        tn_f4 f = tn_view_get4(k.x, tn_axis_at(k.x.row, r), c);

        for (int i = 0; i < 4; i++)
            f.v[i] = keep >> i & 1 ? f.v[i] * k.scale : 0.0f;
        tn_view_put4(k.y, tn_axis_at(k.y.row, r), c, f);
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct dropout k = *(const struct dropout *)state;

    if (!k.total)
        return TN_OK;
    tn_cuda_view_bind(&k.x, l), tn_cuda_view_bind(&k.y, l);
    k.uniform = (const uint32_t *)l->uniform, k.base = (uint64_t)(k.per_micro * l->micro);
    return TN_LAUNCH(drop, tn_grid(TN_CUDA_PARTS(k.total, 256)), 256, l->queue, k);
}

extern "C" tn_status tn_cuda_prepare_dropout(const struct tn_problem *p, struct tn_kernel *out)
{
    const struct tn_operand *y = &p->out[0];
    const double probability = tn_problem_float(p, "p", 0);
    const int64_t micro = tn_problem_int(p, "micro_dim", -1);
    int64_t n = 1;
    struct dropout k = {};

    if (!y->rank || y->rank > TN_MAX_RANK || !tn_cuda_view_load(&k.x, p, 0, y->rank - 1) ||
        !tn_cuda_view_load(&k.y, p, 1, y->rank - 1))
        return TN_DECLINED;
    for (uint32_t d = y->rank; d-- > 0; n *= y->whole[d]) {
        if (!tn_cuda_map_load(&k.map[d], y, d))
            return TN_DECLINED;
        k.size[d] = (uint32_t)y->size[d], k.whole[d] = n;
        if (d == micro)
            k.per_micro = y->whole[d] * n;
    }
    k.n = y->rank - 1, k.chunks = TN_CUDA_PARTS(k.x.col.total, 4);
    if ((int64_t)k.x.row.total * k.chunks > INT32_MAX)
        return TN_DECLINED;
    k.total = k.x.row.total * k.chunks;
    k.key = (uint32_t)tn_problem_int(p, "key", 0);
    k.threshold = tn_cuda_threshold(probability), k.scale = (float)(1 / (1 - probability));
    return tn_cuda_keep(out, &k, sizeof k, launch);
}
