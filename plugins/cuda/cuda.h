/* cuda.h - what the C files and the kernels of this plugin share: the operations, queues, what a launch is told.
 *
 * A prepare looks at the problem once and keeps a plain struct as the kernel's state; that struct, with the
 * addresses filled in, is the one parameter of the GPU's kernel, passed by value. So nothing is copied to the
 * device but launches, and a captured graph has all it needs. Sizes and strides count elements. */
#ifndef TENON_CUDA_H
#define TENON_CUDA_H
#include <stdlib.h>
#include <tenon/kernels.h>

/* The operations that this plugin may claim, each with its tn_cuda_prepare_<op>. */
#define TN_CUDA_OPS(X)                                                                                       \
    X(einsum) X(sum) X(rowmax) X(sumsq) X(expr) X(copy) X(accum) X(expand) X(cast) X(dropout) X(embed)       \
    X(embed_bwd) X(pick) X(pick_bwd) X(layernorm) X(ln_dx) X(ln_dw) X(attention) X(attn_bwd) X(ce) X(ce_bwd) \
    X(head) X(head_bwd) X(head_train) X(rmsnorm) X(rms_dx) X(rms_dw) X(rope) X(store)

#ifdef __cplusplus
extern "C" {
#endif
#define TN_CUDA_DECLARE(op) \
    tn_status tn_cuda_prepare_##op(const struct tn_problem *p, struct tn_kernel *out);
TN_CUDA_OPS(TN_CUDA_DECLARE)

/* ops.c */
extern const char *const tn_cuda_ops[];
tn_status tn_cuda_prepare(const struct tn_problem *p, struct tn_kernel *out);
/* Keeps a copy of the plan as the kernel's state. */
tn_status tn_cuda_keep(struct tn_kernel *out, const void *plan, size_t size,
                       tn_status (*launch)(void *state, const struct tn_launch *l));

/* device.c. A stream is a cudaStream_t; taking it makes the queue's device that of the calling thread. */
void *tn_cuda_stream(struct tn_queue *q);
tn_status tn_cuda_launched(const char *kernel);
int tn_cuda_major(void);                        /* of the compute capability of the device in use */

/* --- matrix products by a library, if there is one. c [m,n] = a [m,k] · b [k,n] + beta·add, row-major; at, bt:
 * stored transposed; batch of them at fixed distances. Sizes and distances in elements. */
struct tn_cuda_matmul {
    int64_t batch, m, n, k, lda, ldb, ldc, step_a, step_b, step_c;
    uint32_t at, bt;
    uint32_t dtype, dtype_c;                     /* of a and b; of c, add and aux */
    uint32_t epilogue, dtype_bias;               /* TN_CUDA_EPI_* */
    float beta;                                  /* 0 or 1; add has the strides of c, and may be c */
    uint32_t reserved0;
};
#define TN_CUDA_EPI_NONE 0u
#define TN_CUDA_EPI_BIAS 1u                      /* + bias [n] */
#define TN_CUDA_EPI_GELU_AUX 2u                  /* c = gelu_tanh(v), aux = v; aux has the strides of c */
#define TN_CUDA_EPI_BIAS_GELU_AUX 3u             /* v = product + bias */
#define TN_CUDA_EPI_DGELU 4u                     /* c = product · gelu_tanh'(aux) */
struct tn_cuda_pointers {
    const void *a, *b, *add, *bias;
    void *c, *aux;
};
struct tn_cuda_blas {
    /* TN_DECLINED if the library has nothing for it. *workspace: bytes that run wants. Main thread. */
    tn_status (*plan)(const struct tn_cuda_matmul *m, void **out, uint64_t *workspace);
    tn_status (*run)(void *plan, const struct tn_cuda_pointers *at, void *workspace, struct tn_queue *q);
    void (*release)(void *plan);
};
/* NULL: the own kernel does it. Set before the first prepare. */
extern const struct tn_cuda_blas *tn_cuda_blas;

/* --- attention by a library, if there is one. */
struct tn_cuda_dnn {
    /* io is the own kernel of this problem and becomes the library's, with the own one inside for launches that the
     * library does not take; TN_DECLINED, or an error: io is as it was. Main thread. */
    tn_status (*attention)(const struct tn_problem *p, struct tn_kernel *io);
};
/* NULL: the own kernel does it. Set before the first prepare. */
extern const struct tn_cuda_dnn *tn_cuda_dnn;
/* ops.c: the library's, where it takes the problem. */
tn_status tn_cuda_by_dnn(const struct tn_problem *p, struct tn_kernel *io);
#ifdef __cplusplus
}
#endif

#define TN_CUDA_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TN_CUDA_MAX(a, b) ((a) > (b) ? (a) : (b))
#define TN_CUDA_PARTS(n, unit) (((n) + (unit) - 1) / (unit))
#endif
