/* attn_bwd.cu - the gradient of attention, scores made again tile by tile.
 *
 * Two kernels: one has a tile of queries and sums dq over the keys, the other has a tile of keys and sums dk and dv
 * over the queries of all its heads. Both make the weights again from lse; so nothing is added atomically and every
 * run has the same bits. A weight or gradient that is 0 is skipped: it is where a mask was. */
#include "attention.cuh"

struct pair {
    float weight, score;                         /* dropped weight; gradient of scale·q·k, times scale */
};

/* Of query t (row i of q and grad) and key s (row j of k and v). */
template <int D, class S>
TN_DEVICE pair gradient(const tn_attention &a, const tn_place &p, uint32_t r, uint32_t t, uint32_t s, S &q, S &grad,
                        uint32_t i, S &k, S &v, uint32_t j)
{
    float weight, keep, dp = 0;
    int64_t lse, delta;

    if (!tn_attention_sees(a, t, s))
        return pair{0, 0};
    lse = tn_tensor_at(a.lse, p, r) + t * a.lse.time, delta = tn_tensor_at(a.delta, p, r) + t * a.delta.time;
    weight = expf(a.scale * tn_attention_dot<D>(q, i, k, j, a.width) - tn_get(a.lse.dtype, a.lse.base, lse));
    keep = tn_attention_drop(a, p, r, t, s);
    if (keep != 0)
        dp = keep * tn_attention_dot<D>(grad, i, v, j, a.width);
    return pair{keep * weight, a.scale * weight * (dp - tn_get(a.delta.dtype, a.delta.base, delta))};
}

template <int D, int ROWS> TN_KERNEL(ROWS *TN_LANES) attend_dq(TN_PARAM(tn_attention) a)
{
    TN_SHARED(float, q, ROWS *(D + 1));
    TN_SHARED(float, grad, ROWS *(D + 1));
    TN_SHARED(float, k, ROWS *(D + 1));
    TN_SHARED(float, v, ROWS *(D + 1));
    TN_SHARED(float, score, ROWS *(ROWS + 1));
    const uint32_t row = threadIdx.x / TN_LANES, lane = threadIdx.x % TN_LANES;

    for (uint32_t at = blockIdx.x; at < a.total; at += gridDim.x) {
        const tn_place p = tn_attention_place(a, at, a.rep);
        const uint32_t t0 = p.tile * ROWS, t = t0 + row;
        const uint32_t end = a.causal && t0 + ROWS < a.keys ? t0 + ROWS : a.keys;
        float sum[D / TN_LANES] = {};

        __syncthreads();
        tn_attention_load<D, ROWS>(q, a.q, tn_tensor_at(a.q, p, p.r), t0, a.queries, a.width);
        tn_attention_load<D, ROWS>(grad, a.grad, tn_tensor_at(a.grad, p, p.r), t0, a.queries, a.width);
        for (uint32_t s0 = 0; s0 < end; s0 += ROWS) {
            __syncthreads();
            tn_attention_load<D, ROWS>(k, a.k, tn_tensor_at(a.k, p, 0), s0, a.keys, a.width);
            tn_attention_load<D, ROWS>(v, a.v, tn_tensor_at(a.v, p, 0), s0, a.keys, a.width);
            __syncthreads();
            for (uint32_t s = lane; s < ROWS; s += TN_LANES)
                score[row * (ROWS + 1) + s] =
                    gradient<D>(a, p, p.r, t, s0 + s, q, grad, row, k, v, s).score;
            __syncwarp();
            for (uint32_t s = 0; s < ROWS; s++) {
                const float ds = score[row * (ROWS + 1) + s];

                if (ds == 0)
                    continue;
#pragma unroll
                for (uint32_t i = 0; i < D / TN_LANES; i++)
                    if (lane + i * TN_LANES < a.width)
                        sum[i] += ds * k[s * (D + 1) + lane + i * TN_LANES];
            }
        }
        if (t < a.queries)
            tn_attention_store<D>(a.dq, tn_tensor_at(a.dq, p, p.r) + t * a.dq.time, sum, 1, lane, a.width);
    }
}

template <int D, int ROWS> TN_KERNEL(ROWS *TN_LANES) attend_dkv(TN_PARAM(tn_attention) a)
{
    TN_SHARED(float, k, ROWS *(D + 1));
    TN_SHARED(float, v, ROWS *(D + 1));
    TN_SHARED(float, q, ROWS *(D + 1));
    TN_SHARED(float, grad, ROWS *(D + 1));
    TN_SHARED(float, weight, ROWS *(ROWS + 1));
    TN_SHARED(float, score, ROWS *(ROWS + 1));
    const uint32_t row = threadIdx.x / TN_LANES, lane = threadIdx.x % TN_LANES;

    for (uint32_t at = blockIdx.x; at < a.total; at += gridDim.x) {
        const tn_place p = tn_attention_place(a, at, 1);
        const uint32_t s0 = p.tile * ROWS, s = s0 + row, first = a.causal ? s0 : 0;
        float dk[D / TN_LANES] = {}, dv[D / TN_LANES] = {};

        __syncthreads();
        tn_attention_load<D, ROWS>(k, a.k, tn_tensor_at(a.k, p, 0), s0, a.keys, a.width);
        tn_attention_load<D, ROWS>(v, a.v, tn_tensor_at(a.v, p, 0), s0, a.keys, a.width);
        for (uint32_t r = 0; r < a.rep; r++)
            for (uint32_t t0 = first; t0 < a.queries; t0 += ROWS) {
                __syncthreads();
                tn_attention_load<D, ROWS>(q, a.q, tn_tensor_at(a.q, p, r), t0, a.queries, a.width);
                tn_attention_load<D, ROWS>(grad, a.grad, tn_tensor_at(a.grad, p, r), t0, a.queries, a.width);
                __syncthreads();
                for (uint32_t t = lane; t < ROWS; t += TN_LANES) {
                    const pair g = gradient<D>(a, p, r, t0 + t, s, q, grad, t, k, v, row);

                    weight[row * (ROWS + 1) + t] = g.weight, score[row * (ROWS + 1) + t] = g.score;
                }
                __syncwarp();
                for (uint32_t t = 0; t < ROWS; t++) {
                    const float w = weight[row * (ROWS + 1) + t], ds = score[row * (ROWS + 1) + t];

                    if (w == 0 && ds == 0)
                        continue;
#pragma unroll
                    for (uint32_t i = 0; i < D / TN_LANES; i++) {
                        const uint32_t d = lane + i * TN_LANES;

                        if (d >= a.width)
                            continue;
                        dk[i] += ds * q[t * (D + 1) + d];
                        if (w != 0)
                            dv[i] += w * grad[t * (D + 1) + d];
                    }
                }
            }
        if (s >= a.keys)
            continue;
        tn_attention_store<D>(a.dk, tn_tensor_at(a.dk, p, 0) + s * a.dk.time, dk, 1, lane, a.width);
        tn_attention_store<D>(a.dv, tn_tensor_at(a.dv, p, 0) + s * a.dv.time, dv, 1, lane, a.width);
    }
}

/* --- host */
struct backward {
    struct tn_attention a;
    uint32_t query_tiles, key_tiles, queries, keys; /* the last two: tiles of all heads */
};

template <int D, int ROWS> static tn_status run(const struct backward *k, const struct tn_launch *l)
{
    struct tn_attention a = k->a;
    tn_status s = TN_OK;

    tn_attention_bind(&a, l);
    a.tiles = k->query_tiles, a.total = k->queries;
    if (a.total)
        s = TN_LAUNCH((attend_dq<D, ROWS>), tn_grid(a.total), ROWS * TN_LANES, l->queue, a);
    a.tiles = k->key_tiles, a.total = k->keys;
    if (s || !a.total)
        return s;
    return TN_LAUNCH((attend_dkv<D, ROWS>), tn_grid(a.total), ROWS * TN_LANES, l->queue, a);
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct backward *k = (const struct backward *)state;

    return k->a.width <= 64 ? run<64, 32>(k, l) : k->a.width <= 128 ? run<128, 16>(k, l) : run<256, 8>(k, l);
}

extern "C" tn_status tn_cuda_prepare_attn_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    struct backward k = {};
    tn_status s = tn_attention_load_problem(p, &k.a);
    const uint32_t rows = k.a.width <= 64 ? 32 : k.a.width <= 128 ? 16 : 8;
    const int64_t heads = (int64_t)k.a.batch * k.a.heads;

    if (s)
        return s;
    k.query_tiles = TN_CUDA_PARTS(k.a.queries, rows), k.key_tiles = TN_CUDA_PARTS(k.a.keys, rows);
    if (heads * k.a.rep * k.query_tiles > INT32_MAX || heads * k.key_tiles > INT32_MAX)
        return TN_DECLINED;
    k.queries = (uint32_t)(heads * k.a.rep * k.query_tiles), k.keys = (uint32_t)(heads * k.key_tiles);
    s = tn_cuda_keep(out, &k, sizeof k, launch);
    return s ? s : tn_cuda_by_dnn(p, out);
}
