/* vexp.h - tn_exp of vmath.h for one register, with the same bits; sums and maxima of its lanes.
 *
 * For short rows: a loop that the compiler vectorises ends in a rest that is done one by one, and adds the lanes
 * of a sum one after the other. */
#ifndef TENON_CPU_VEXP_H
#define TENON_CPU_VEXP_H
#include "vec.h"
#include "vmath.h"

typedef uint32_t tn_uvec __attribute__((vector_size(4 * TN_W), may_alias));

static inline tn_vec tn_exp_vec(tn_vec x)
{
    const tn_vec magic = tn_splat(12582912.0f), high = tn_splat(89.0f), low = tn_splat(-104.0f);
    tn_vec t = tn_select(x > high, high, x);

    t = tn_select(t < low, low, t);
    tn_vec n = tn_fma(t, tn_splat(1.44269504f), magic), k = n - magic;
    tn_vec r = tn_fma(k, tn_splat(-TN_LN2_LOW), tn_fma(k, tn_splat(-TN_LN2_HIGH), t));
    tn_vec p = tn_splat(0x1.6a1f5cp-10f);

    p = tn_fma(p, r, tn_splat(0x1.123cccp-7f));
    p = tn_fma(p, r, tn_splat(0x1.555904p-5f));
    p = tn_fma(p, r, tn_splat(0x1.55548ep-3f));
    p = tn_fma(p, r, tn_splat(0x1.fffffcp-2f));
    tn_vec y = 1.0f + tn_fma(r * r, p, r);
    tn_uvec e = (tn_uvec)n - 0x4b400000u, half = ((e + 512u) >> 1) - 256u;

    return y * (tn_vec)((half + 127u) << 23) * (tn_vec)((e - half + 127u) << 23);
}

/* 1/(1 + exp(-x)), to 2 ulp. */
static inline tn_vec tn_sigmoid(tn_vec x)
{
    return tn_splat(1) / (tn_splat(1) + tn_exp_vec(-x));
}

static inline float tn_lanes_sum(tn_vec x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(x);
#else
    float sum[TN_W];

    tn_store(sum, x);
    for (int n = TN_W / 2; n; n /= 2)
        for (int k = 0; k < n; k++)
            sum[k] += sum[k + n];
    return sum[0];
#endif
}

/* The largest lane; a NaN may or may not count. */
static inline float tn_lanes_max(tn_vec x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps(x);
#else
    float max[TN_W];

    tn_store(max, x);
    for (int n = TN_W / 2; n; n /= 2)
        for (int k = 0; k < n; k++)
            max[k] = max[k + n] > max[k] ? max[k + n] : max[k];
    return max[0];
#endif
}
#endif
