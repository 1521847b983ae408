/* dnn_rows.h - rows of attention in the form that cuDNN wants them, see dnn_rows.cu. */
#ifndef TENON_CUDA_DNN_ROWS_H
#define TENON_CUDA_DNN_ROWS_H
#include "cuda.h"

struct tn_cuda_rows {
    uint32_t batch, time, heads, rep, width, dtype; /* dtype: of grad and o */
    int64_t grad[4], lse[4], delta[4];           /* strides of batch, time, head, rep */
    const char *grad_at;                         /* rows of width neighbours, at multiples of 8 bytes */
    const float *delta_at;
    float *lse_at, *stats;                       /* stats [B, heads·rep, T] */
    char *o;                                     /* [B, T, heads·rep, D] */
};

#ifdef __cplusplus
extern "C" {
#endif
/* lse = stats */
tn_status tn_cuda_rows_lse(const struct tn_cuda_rows *r, struct tn_queue *q);
/* stats = lse, and o such that Σ grad·o = delta */
tn_status tn_cuda_rows_o(const struct tn_cuda_rows *r, struct tn_queue *q);
#ifdef __cplusplus
}
#endif
#endif
