/* reduce.h - sums, maxima and sums of squares or products over the reduced loops of a nest. */
#ifndef TENON_CUDA_REDUCE_H
#define TENON_CUDA_REDUCE_H
#include "nest.h"

#define TN_CUDA_SUM 0u                           /* of in 0 */
#define TN_CUDA_SQUARES 1u
#define TN_CUDA_MAXIMUM 2u
#define TN_CUDA_PRODUCTS 3u                      /* of in 0 times in 1 */
#ifdef __cplusplus
extern "C" {
#endif
tn_status tn_cuda_reduce_make(const struct tn_problem *p, uint32_t kind, struct tn_kernel *out);
#ifdef __cplusplus
}
#endif
#endif
