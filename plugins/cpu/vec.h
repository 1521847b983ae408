/* vec.h - one vector register of floats, as wide as the CPU level has them. For the few loops that the
 * compiler does not vectorise as they should be; the rest is plain C. */
#ifndef TENON_CPU_VEC_H
#define TENON_CPU_VEC_H
#include <stdint.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define TN_W 16
#elif defined(__AVX__)
#define TN_W 8
#else
#define TN_W 4
#endif

typedef float tn_vec __attribute__((vector_size(4 * TN_W), may_alias));
typedef int32_t tn_mask __attribute__((vector_size(4 * TN_W), may_alias)); /* all ones where true */
typedef float tn_vec_loose __attribute__((vector_size(4 * TN_W), may_alias, aligned(4)));

static inline tn_vec tn_load(const float *p)
{
    return *(const tn_vec_loose *)p;
}
static inline void tn_store(float *p, tn_vec x)
{
    *(tn_vec_loose *)p = x;
}
static inline tn_vec tn_splat(float x)
{
    return x - (tn_vec){0};
}
static inline tn_vec tn_fma(tn_vec a, tn_vec b, tn_vec c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}
static inline tn_vec tn_select(tn_mask which, tn_vec yes, tn_vec no)
{
    return (tn_vec)((which & (tn_mask)yes) | (~which & (tn_mask)no));
}
/* y[k·y_step + i] = x[i·x_step + k] for i, k < TN_W; rows 0..keep of y are written. Halves are swapped between
 * vectors at distance 1, 2, 4, ... */
static inline void tn_transpose(const float *x, int64_t x_step, int64_t keep, float *y, int64_t y_step)
{
#if defined(__GNUC__) && !defined(__clang__)
    tn_vec v[TN_W];

    for (int i = 0; i < TN_W; i++)
        v[i] = tn_load(x + i * x_step);
#pragma GCC unroll 8
    for (int s = 1; s < TN_W; s *= 2) {
        tn_mask low, high;

        for (int j = 0; j < TN_W; j++) {
            low[j] = j & s ? TN_W + j - s : j;
            high[j] = j & s ? TN_W + j : j + s;
        }
#pragma GCC unroll 16
        for (int i = 0; i < TN_W; i++)
            if (!(i & s)) {
                tn_vec a = v[i], b = v[i + s];

                v[i] = __builtin_shuffle(a, b, low), v[i + s] = __builtin_shuffle(a, b, high);
            }
    }
    for (int64_t k = 0; k < keep; k++)
        tn_store(y + k * y_step, v[k]);
#else
    for (int64_t k = 0; k < keep; k++)
        for (int64_t i = 0; i < TN_W; i++)
            y[k * y_step + i] = x[i * x_step + k];
#endif
}
#endif
