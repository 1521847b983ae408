/* dnn.h - cuDNN: the library's functions, graphs of its operations, the graphs of attention.
 *
 * dnn.c opens the library, dnn_graph.c describes graphs and has them planned, dnn_attention.c writes down attention,
 * dnn_problem.c says which is for it, dnn_kernel.c makes kernels. Only these include this header, and only they are
 * compiled with cuDNN's. */
#ifndef TENON_CUDA_DNN_H
#define TENON_CUDA_DNN_H
#include <cudnn.h>
#include "device.h"
#include "dnn_rows.h"

/* --- dnn.c */
#define TN_DNN_FUNCTIONS(X)                                                                                  \
    X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) X(cudnnGetVersion) X(cudnnGetErrorString)               \
    X(cudnnGetLastErrorString) X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor)              \
    X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)
#define TN_DNN_MEMBER(name) __typeof__(name) *name;

struct tn_dnn_library {
    TN_DNN_FUNCTIONS(TN_DNN_MEMBER)
};
extern struct tn_dnn_library tn_dnn;
/* The library's functions, once. NULL, or why there are none; lasts. */
const char *tn_dnn_load(void);
/* Loaded, and with a handle on the device in use? The first call finds out, and says if not. */
int tn_dnn_open(void);
extern cudnnHandle_t tn_dnn_handle;
/* A status as a sentence's end, with the library's own words if it has any. */
void tn_dnn_say(cudnnStatus_t s, char *out, size_t size);

/* --- dnn_graph.c: what is described is the graph's and goes with it. A call that fails makes the graph fail, and the
 * calls after it do nothing; so only the plan is asked. */
#define TN_DNN_MOST 160
struct tn_dnn_shape {
    int64_t size[4], stride[4];                  /* batch, head, row, column; elements */
};
struct tn_dnn_graph {
    cudnnHandle_t handle;                        /* one of the two: for the GPU of this handle, */
    cudnnBackendDescriptor_t device;             /* or for one of these properties, never to be run */
    cudnnBackendDescriptor_t kept[TN_DNN_MOST], op[TN_DNN_MOST];
    uint32_t n_kept, n_op;
    cudnnStatus_t status;
    const char *failed;                          /* what failed first; NULL: nothing */
};
struct tn_dnn_plan {                             /* lives as long as its graph */
    cudnnBackendDescriptor_t plan;
    uint64_t workspace;
};

/* A tensor in memory, known by its number; one between two operations; a number of fp32 in host memory. */
cudnnBackendDescriptor_t tn_dnn_tensor(struct tn_dnn_graph *g, int64_t id, cudnnDataType_t type, const struct tn_dnn_shape *s);
cudnnBackendDescriptor_t tn_dnn_between(struct tn_dnn_graph *g, cudnnDataType_t type, const struct tn_dnn_shape *s);
cudnnBackendDescriptor_t tn_dnn_number(struct tn_dnn_graph *g, int64_t id);
/* y = mode(x, b, t); b and t may be NULL. axis: of the indices made, -1 else. */
void tn_dnn_pointwise(struct tn_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, int64_t axis,
                      cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                      cudnnBackendDescriptor_t y);
void tn_dnn_reduce(struct tn_dnn_graph *g, cudnnReduceTensorOp_t how, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);
void tn_dnn_matmul(struct tn_dnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t c);
void tn_dnn_reshape(struct tn_dnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);

/* The first plan, in the library's order of preference, of at most so much workspace and, unless any_order, of one
 * order of its sums. TN_DECLINED: there is none, and why says it. */
tn_status tn_dnn_graph_plan(struct tn_dnn_graph *g, uint64_t most, int any_order, struct tn_dnn_plan *out, char *why,
                            size_t why_size);
void tn_dnn_graph_free(struct tn_dnn_graph *g);
void tn_dnn_plan_free(struct tn_dnn_plan *p);

/* --- dnn_attention.c */
enum { TN_DNN_Q = 1, TN_DNN_K, TN_DNN_V, TN_DNN_O, TN_DNN_STATS, TN_DNN_GRAD, TN_DNN_SUM, TN_DNN_DQ, TN_DNN_DK, TN_DNN_DV,
       TN_DNN_DQ_SUM, TN_DNN_SCALE, TN_DNN_MASKED, TN_DNN_ONE, TN_DNN_IDS };

/* What a plan depends on; compared as bytes. Strides of batch, head and time; along the width it is 1. */
struct tn_dnn_attention {
    int64_t batch, heads, rep, time, width;      /* rep heads of queries share one of keys */
    int64_t q[3], k[3], v[3], o[3];              /* o: of the gradient's graph too */
    int64_t grad[3], dq[3], dk[3], dv[3];        /* backward only; grad: of o */
    uint32_t dtype, back;
    uint32_t any_order;                          /* sums of dq by atomic additions */
    uint32_t reserved0;
};
void tn_dnn_attention_graph(struct tn_dnn_graph *g, const struct tn_dnn_attention *a);

/* --- dnn_problem.c: places of operands in launch->buffer; 1: the problem is taken, a and r (but for addresses) are set */
enum { TN_DNN_IN_QUERY, TN_DNN_IN_KEY, TN_DNN_IN_VALUE, TN_DNN_OUT_O = 5, TN_DNN_OUT_LSE,
       TN_DNN_IN_LSE = 5, TN_DNN_IN_DELTA, TN_DNN_IN_GRAD, TN_DNN_OUT_DQ, TN_DNN_OUT_DK, TN_DNN_OUT_DV };
int tn_dnn_load_problem(const struct tn_problem *p, struct tn_dnn_attention *a, struct tn_cuda_rows *r);

/* --- dnn_kernel.c */
/* Bytes of workspace that a plan may take; what needs more goes in parts. */
extern uint64_t tn_dnn_most;
#endif
