/* dnn_rows.cu - statistics and delta of attention, between Tenon's operands and cuDNN's tensors.
 *
 * cuDNN's statistics are [batch, heads, time], ours have any strides. Its gradient takes no delta but makes
 * it as Σ grad·o, and what o was our operation is not told. Any o with that sum serves, and the one along
 * grad is right: o = delta·grad / Σ grad². It is no longer than attention's own result, so it has no larger
 * numbers. Rounded to the operands' dtype it is off by 2^-9 of itself, element by element and up or down, as
 * attention's own result is. Where grad is 0 and delta is not (the log-sum-exp has a gradient there, and the
 * result none) there is no such o: it is NaN, so that nobody goes on with a wrong one. */
#include "cu.cuh"
#include "dnn_rows.h"

#define WARPS 8
#define THREADS (32 * WARPS)
#define QUADS 2 /* of neighbours that a lane has: widths up to 256 */

/* Row r of [B, T, heads, rep]. */
struct row_place {
    uint32_t b, t, h, r;
};

TN_DEVICE row_place place_of(const tn_cuda_rows &k, uint32_t row)
{
    row_place p;

    p.r = row % k.rep, row /= k.rep;
    p.h = row % k.heads, row /= k.heads;
    p.t = row % k.time, p.b = row / k.time;
    return p;
}

TN_DEVICE int64_t offset_of(const int64_t (&stride)[4], const row_place &p)
{
    return p.b * stride[0] + p.t * stride[1] + p.h * stride[2] + p.r * stride[3];
}

TN_DEVICE int64_t stats_of(const tn_cuda_rows &k, const row_place &p)
{
    return ((int64_t)(p.b * k.heads + p.h) * k.rep + p.r) * k.time + p.t;
}

TN_KERNEL(THREADS) rows_lse(TN_PARAM(tn_cuda_rows) k)
{
    const uint32_t n = k.batch * k.time * k.heads * k.rep;

    for (uint32_t row = blockIdx.x * THREADS + threadIdx.x; row < n; row += gridDim.x * THREADS) {
        const row_place p = place_of(k, row);

        k.lse_at[offset_of(k.lse, p)] = k.stats[stats_of(k, p)];
    }
}

/* A warp has a row. In units of its largest number, so that no square vanishes. */
TN_KERNEL(THREADS) rows_o(TN_PARAM(tn_cuda_rows) k)
{
    const uint32_t n = k.batch * k.time * k.heads * k.rep, lane = threadIdx.x % 32;

    for (uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32; row < n; row += gridDim.x * WARPS) {
        const row_place p = place_of(k, row);
        const int64_t from = offset_of(k.grad, p);
        const float delta = k.delta_at[offset_of(k.delta, p)];
        float most = 0, squares = 0, factor;
        tn_f4 g[QUADS] = {};

#pragma unroll
        for (uint32_t i = 0; i < QUADS; i++) {
            const uint32_t c = (lane + 32 * i) * 4;

            if (c >= k.width)
                continue;
            g[i] = tn_get4(k.dtype, k.grad_at, from + c);
            for (int j = 0; j < 4; j++)
                most = tn_max(most, fabsf(g[i].v[j]));
        }
        most = tn_warp_max(most);
#pragma unroll
        for (uint32_t i = 0; i < QUADS; i++)
            for (int j = 0; j < 4; j++) {
                g[i].v[j] = most == 0 ? 0.0f : g[i].v[j] / most;
                squares += g[i].v[j] * g[i].v[j];
            }
        squares = tn_warp_sum(squares);
        factor = most == 0 ? delta == 0 ? 0.0f : NAN : delta / most / squares;
#pragma unroll
        for (uint32_t i = 0; i < QUADS; i++) {
            const uint32_t c = (lane + 32 * i) * 4;

            for (int j = 0; j < 4; j++)
                g[i].v[j] = most == 0 ? factor : g[i].v[j] * factor;
            if (c < k.width)
                tn_put4(k.dtype, k.o, (int64_t)row * k.width + c, g[i]);
        }
        if (lane == 0)
            k.stats[stats_of(k, p)] = k.lse_at[offset_of(k.lse, p)];
    }
}

/* --- host */
extern "C" tn_status tn_cuda_rows_lse(const struct tn_cuda_rows *r, struct tn_queue *q)
{
    const int64_t n = (int64_t)r->batch * r->time * r->heads * r->rep;

    return TN_LAUNCH(rows_lse, tn_grid(TN_CUDA_PARTS(n, THREADS)), THREADS, q, *r);
}

extern "C" tn_status tn_cuda_rows_o(const struct tn_cuda_rows *r, struct tn_queue *q)
{
    const int64_t n = (int64_t)r->batch * r->time * r->heads * r->rep;

    return TN_LAUNCH(rows_o, tn_grid(TN_CUDA_PARTS(n, WARPS)), THREADS, q, *r);
}
