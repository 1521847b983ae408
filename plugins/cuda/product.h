/* product.h - a contraction of two operands as a matrix product: by a library where its loops are matrices, by the
 * own kernel for any strides. */
#ifndef TENON_CUDA_PRODUCT_H
#define TENON_CUDA_PRODUCT_H
#include "epilogue.h"
#include "nest.h"

/* A dim of a matrix that is really several; strides of a, b, c. */
struct tn_cuda_axis3 {
    uint32_t n, total;
    uint32_t size[TN_CUDA_LOOPS];
    int64_t stride[TN_CUDA_LOOPS][3];
};

/* Parameter of the own kernel. c [m,n] = a [m,k] · b [k,n], for each of batch. */
struct tn_cuda_gemm {
    struct tn_cuda_axis3 m, n, k, batch;
    uint32_t dtype[3], add;
    uint32_t each_m, each_n;                     /* results of a thread along them */
    uint32_t tiles_m, tiles_n, total;            /* total: tiles of all of batch */
    uint32_t a_along_k, b_along_k;               /* along which dim the elements of a tile are neighbours */
    const char *a, *b;
    char *c;
};

struct tn_cuda_product {
    struct tn_cuda_gemm gemm;
    void *plan;                                  /* the library's, or NULL */
    uint32_t swapped;                            /* the library's a is w */
    struct tn_cuda_axis3 around;                 /* loops around the library's product */
    struct tn_cuda_epilogue epilogue;
    uint64_t workspace;
};

#ifdef __cplusplus
extern "C" {
#endif
/* p: an einsum with two inputs and no program. TN_DECLINED: loops that do not fit. */
tn_status tn_cuda_product_make(const struct tn_problem *p, struct tn_cuda_product *out);
tn_status tn_cuda_product_run(const struct tn_cuda_product *k, const char *x, const char *w, char *y,
                              void *workspace, struct tn_queue *q);
/* With a program that the library does in one, or of which it does result o (TN_MAX_OPERANDS: all of it): TN_DECLINED if
 * it does not. */
tn_status tn_cuda_product_fuse(const struct tn_problem *p, uint32_t o, struct tn_cuda_product *out);
tn_status tn_cuda_product_run_fused(const struct tn_cuda_product *k, const struct tn_launch *l);
void tn_cuda_product_release(struct tn_cuda_product *k);
#ifdef __cplusplus
}
#endif
#endif
