/* vsum.h - sums over runs of floats: vector lanes in blocks of 1024, blocks in double.
 *
 * The bits depend on the length alone (and on the CPU level), never on threads. */
#ifndef TENON_CPU_VSUM_H
#define TENON_CPU_VSUM_H
#include <math.h>
#include "vec.h"

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
/* Maximum of n > 0 floats, NaN if any is. Not a reduction by pragma: OpenMP lets that begin at the least
 * finite number. */
__attribute__((unused)) static float tn_max(const float *x, int64_t n)
{
    tn_vec lanes = tn_splat(-INFINITY);
    tn_mask nan = {0};
    float max = -INFINITY;
    int64_t i = 0;

    for (; i + TN_W <= n; i += TN_W) {
        tn_vec v = tn_load(x + i);

        nan |= v != v;
        lanes = tn_select(v > lanes, v, lanes);
    }
    for (int64_t k = 0; k < TN_W; k++) {
        if (nan[k])
            return NAN;
        max = lanes[k] > max ? lanes[k] : max;
    }
    for (; i < n; i++) {
        if (x[i] != x[i])
            return NAN;
        max = x[i] > max ? x[i] : max;
    }
    return max;
}
#endif
