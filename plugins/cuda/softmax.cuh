/* softmax.cuh - log-sum-exp by a block, in one walk: a maximum and a sum relative to it, joined in pairs. */
#ifndef TENON_CUDA_SOFTMAX_CUH
#define TENON_CUDA_SOFTMAX_CUH
#include "cu.cuh"

struct tn_lse {
    float max, sum;                              /* sum of exp(x - max); -INFINITY, 0: of nothing */
};

/* NaN is not seen by the maximum, but by the sum. An infinite maximum is not taken out: exp(inf) stays inf, and
 * all -inf gives log 0. */
TN_DEVICE tn_lse tn_lse_join(tn_lse a, tn_lse b)
{
    const float max = a.max > b.max ? a.max : b.max, base = isinf(max) ? 0.0f : max;
    const float da = a.sum == 0 ? 0.0f : a.sum * expf((isinf(a.max) ? 0.0f : a.max) - base);
    const float db = b.sum == 0 ? 0.0f : b.sum * expf((isinf(b.max) ? 0.0f : b.max) - base);

    return tn_lse{max, da + db};
}

TN_DEVICE float tn_lse_value(tn_lse a)
{
    return (isinf(a.max) ? 0.0f : a.max) + logf(a.sum);
}

TN_DEVICE tn_lse tn_lse_warp(tn_lse a)
{
    for (int o = 16; o; o >>= 1) {
        tn_lse b;

        b.max = __shfl_xor_sync(TN_ALL, a.max, o);
        b.sum = __shfl_xor_sync(TN_ALL, a.sum, o);
        a = threadIdx.x & o ? tn_lse_join(b, a) : tn_lse_join(a, b);
    }
    return a;
}

/* Of a row of n numbers; all THREADS threads of the block get it. get4(c): numbers c..c+3. */
template <int THREADS, class F> TN_DEVICE float tn_lse_block(uint32_t n, F get4)
{
    TN_SHARED(float, maxima, THREADS / 32);
    TN_SHARED(float, sums, THREADS / 32);
    tn_lse a = {-INFINITY, 0};

    for (uint32_t c = threadIdx.x * 4; c < n; c += THREADS * 4) {
        const tn_f4 f = get4(c);
        tn_lse b = {-INFINITY, 0};
        float base;

        for (uint32_t i = 0; i < 4 && c + i < n; i++)
            b.max = f.v[i] > b.max ? f.v[i] : b.max;
        base = isinf(b.max) ? 0.0f : b.max;
        for (uint32_t i = 0; i < 4 && c + i < n; i++)
            b.sum += expf(f.v[i] - base);
        a = tn_lse_join(a, b);
    }
    a = tn_lse_warp(a);
    if (threadIdx.x % 32 == 0)
        maxima[threadIdx.x / 32] = a.max, sums[threadIdx.x / 32] = a.sum;
    __syncthreads();
    a = tn_lse{maxima[0], sums[0]};
    for (uint32_t w = 1; w < THREADS / 32; w++)
        a = tn_lse_join(a, tn_lse{maxima[w], sums[w]});
    __syncthreads();
    return tn_lse_value(a);
}
#endif
