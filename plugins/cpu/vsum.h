/* vsum.h - sums over runs of floats: vector lanes in blocks of 1024, blocks in double.
 *
 * The bits depend on the length alone (and on the CPU level), never on threads. */
#ifndef TENON_CPU_VSUM_H
#define TENON_CPU_VSUM_H
#include <math.h>
#include <stdint.h>

#define TN_SUM_BLOCK 1024

#define TN_SUM_OVER(expression)                                                                              \
    double total = 0;                                                                                        \
    for (int64_t at = 0; at < n; at += TN_SUM_BLOCK) {                                                       \
        int64_t end = n - at < TN_SUM_BLOCK ? n : at + TN_SUM_BLOCK;                                         \
        float sum = 0;                                                                                       \
        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = at; i < end; i++) sum += (expression);       \
        total += (double)sum;                                                                                \
    }                                                                                                        \
    return total

__attribute__((unused)) static double tn_sum(const float *x, int64_t n)
{
    TN_SUM_OVER(x[i]);
}
__attribute__((unused)) static double tn_dot(const float *x, const float *y, int64_t n)
{
    TN_SUM_OVER(x[i] * y[i]);
}
/* Maximum of n > 0 floats, NaN if any is. */
__attribute__((unused)) static float tn_max(const float *x, int64_t n)
{
    float m = -INFINITY;
    int32_t nan = 0;

    _Pragma("omp simd reduction(max : m) reduction(| : nan)") for (int64_t i = 0; i < n; i++)
    {
        m = x[i] > m ? x[i] : m;
        nan |= x[i] != x[i];
    }
    return nan ? NAN : m;
}
#endif
