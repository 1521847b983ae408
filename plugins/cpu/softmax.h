/* softmax.h - rows of exponentials, the maximum subtracted: what loss and head share. */
#ifndef TENON_CPU_SOFTMAX_H
#define TENON_CPU_SOFTMAX_H
#include "vmath.h"
#include "vsum.h"

__attribute__((unused)) static double tn_sum_exp(const float *x, float max, int64_t n)
{
    TN_SUM_OVER(tn_exp(x[i] - max));
}
/* log Σ exp(x); −∞ if all of x is. */
__attribute__((unused)) static float tn_log_sum_exp(const float *x, int64_t n)
{
    float max = tn_max(x, n);

    return max == -INFINITY ? max : (float)((double)max + log(tn_sum_exp(x, max, n)));
}
#endif
