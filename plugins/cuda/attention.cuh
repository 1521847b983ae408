/* attention.cuh - what attention and its gradient share: operands, masks, tiles of rows.
 *
 * A block has ROWS rows of queries (or keys) and eight lanes for each; a tile holds as many rows of the other side. A
 * lane has every eighth column of the scores, and every eighth one of what is summed up for its row. Rows lie in
 * shared memory in fp32, one element apart from a multiple of 32, so that the eight lanes meet different banks.
 * With grouped queries rep query heads share one key head; without, rep is 1. */
#ifndef TENON_CUDA_ATTENTION_CUH
#define TENON_CUDA_ATTENTION_CUH
#include "philox.cuh"

#define TN_LANES 8

struct tn_tensor {                               /* [batch, time, head, rep; d]; strides 0 where a dim lacks */
    char *base;
    uint32_t dtype, add, slot;
    int64_t batch, time, head, rep, d;
};
struct tn_attention {
    struct tn_tensor q, k, v, o, lse, delta, grad, dq, dk, dv; /* grad: of o */
    const int32_t *qpos, *kpos;                  /* not read if causal */
    int64_t qpos_step, kpos_step;
    uint32_t batch, queries, keys, heads, rep, width, causal;
    uint32_t tiles, total;                       /* of rows; of all heads */
    float scale, kept;                           /* kept: 1 / (1 - p) */
    struct tn_cuda_map global_batch, global_head, global_rep;
    int64_t micro_batch, whole_heads, whole_rep, block, first_batch;
    uint32_t key, threshold;                     /* threshold 0: nothing is dropped */
    const uint32_t *uniform;
};

/* Which tile of which head a block has. */
struct tn_place {
    uint32_t tile, b, h, r;
};

TN_DEVICE tn_place tn_attention_place(const tn_attention &a, uint32_t at, uint32_t reps)
{
    tn_place p;

    p.tile = at % a.tiles, at /= a.tiles;
    p.r = at % reps, at /= reps;
    p.h = at % a.heads, p.b = at / a.heads;
    return p;
}

TN_DEVICE int64_t tn_tensor_at(const tn_tensor &x, const tn_place &p, uint32_t r)
{
    return p.b * x.batch + p.h * x.head + r * x.rep;
}

TN_DEVICE int64_t tn_attention_qpos(const tn_attention &a, uint32_t t)
{
    return a.causal ? (int64_t)t : a.qpos[t * a.qpos_step];
}

TN_DEVICE int64_t tn_attention_kpos(const tn_attention &a, uint32_t s)
{
    return a.causal ? (int64_t)s : a.kpos[s * a.kpos_step];
}

/* Does query t see key s? */
TN_DEVICE bool tn_attention_sees(const tn_attention &a, uint32_t t, uint32_t s)
{
    return t < a.queries && s < a.keys && tn_attention_kpos(a, s) <= tn_attention_qpos(a, t);
}

/* What the dropout multiplies the pair with: 0 or 1 / (1 - p). */
TN_DEVICE float tn_attention_drop(const tn_attention &a, const tn_place &p, uint32_t r, uint32_t t, uint32_t s)
{
    int64_t b, head, g;

    if (!a.threshold)
        return 1;
    b = tn_map_global(a.global_batch, p.b) + a.first_batch;
    head = tn_map_global(a.global_head, p.h) * a.whole_rep + tn_map_global(a.global_rep, r);
    g = ((b * a.whole_heads * a.whole_rep + head) * a.block + tn_attention_qpos(a, t)) * a.block +
        tn_attention_kpos(a, s);
    return tn_philox_keep(a.uniform, a.key, a.threshold, (uint64_t)g) ? a.kept : 0.0f;
}

/* Rows first..first+ROWS-1 of a head into shared memory; a row behind the last one is zero. A warp has a row. */
template <int D, int ROWS, class S>
TN_DEVICE void tn_attention_load(S &tile, const tn_tensor &x, int64_t base, uint32_t first, uint32_t rows,
                                 uint32_t width)
{
    for (uint32_t r = threadIdx.x / 32; r < ROWS; r += ROWS * TN_LANES / 32)
        for (uint32_t d = threadIdx.x % 32; d < width; d += 32)
            tile[r * (D + 1) + d] =
                first + r < rows ? tn_get(x.dtype, x.base, base + (first + r) * x.time + d * x.d) : 0.0f;
}

template <int D, class S> TN_DEVICE float tn_attention_dot(S &x, uint32_t i, S &y, uint32_t j, uint32_t width)
{
    float sum = 0;

    for (uint32_t d = 0; d < width; d++)
        sum += x[i * (D + 1) + d] * y[j * (D + 1) + d];
    return sum;
}

/* A lane's columns of a row of sums. */
template <int D>
TN_DEVICE void tn_attention_store(const tn_tensor &y, int64_t row, const float *sum, float scale, uint32_t lane,
                                  uint32_t width)
{
#pragma unroll
    for (uint32_t i = 0; i < D / TN_LANES; i++) {
        const uint32_t d = lane + i * TN_LANES;

        if (d < width)
            tn_put_or_add(y.dtype, y.add, y.base, row + d * y.d, sum[i] * scale);
    }
}

/* attention.cu: everything but the tiles; TN_DECLINED if it does not fit. */
tn_status tn_attention_load_problem(const struct tn_problem *p, struct tn_attention *a);
void tn_attention_bind(struct tn_attention *a, const struct tn_launch *l);
#endif
