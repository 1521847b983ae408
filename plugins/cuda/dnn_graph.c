/* dnn_graph.c - graphs of cuDNN's operations, by its backend interface, and plans for them.
 *
 * A graph is tensors and operations on them; real tensors have memory and a number to be told by, those
 * between two operations have none. The library knows patterns of operations for which it has engines, gives
 * configurations of those in its order of preference, and compiles one when a plan for it is finalized:
 * seconds. */
#include <stdbool.h>
#include "dnn.h"

#define CONFIGS 8

/* --- descriptors */
static void check(struct tn_dnn_graph *g, cudnnStatus_t s, const char *what)
{
    if (s && !g->failed)
        g->status = s, g->failed = what;
}

static cudnnBackendDescriptor_t make(struct tn_dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    if (g->failed)
        return NULL;
    if (g->n_kept == TN_DNN_MOST) {
        check(g, CUDNN_STATUS_ALLOC_FAILED, "a graph this large");
        return NULL;
    }
    check(g, tn_dnn.cudnnBackendCreateDescriptor(type, &d), "a descriptor");
    if (!g->failed)
        g->kept[g->n_kept++] = d;
    return d;
}

static void set(struct tn_dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t what,
                cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (!g->failed)
        check(g, tn_dnn.cudnnBackendSetAttribute(d, what, type, n, value), "an attribute");
}

static void set_descriptor(struct tn_dnn_graph *g, cudnnBackendDescriptor_t d,
                           cudnnBackendAttributeName_t what, cudnnBackendDescriptor_t value)
{
    if (value)
        set(g, d, what, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(struct tn_dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    if (!g->failed)
        check(g, tn_dnn.cudnnBackendFinalize(d), what);
}

static void operation(struct tn_dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
    finalize(g, d, what);
    if (!g->failed)
        g->op[g->n_op++] = d;                    /* never more than are kept */
}

/* --- tensors */
static cudnnBackendDescriptor_t tensor(struct tn_dnn_graph *g, int64_t id, cudnnDataType_t type,
                                       const struct tn_dnn_shape *s, const cudnnBackendAttributeName_t *kind)
{
    const cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t alignment = 16;
    const bool yes = true;

    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, s->size);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, s->stride);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (kind)
        set(g, d, *kind, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finalize(g, d, "a tensor");
    return d;
}

cudnnBackendDescriptor_t tn_dnn_tensor(struct tn_dnn_graph *g, int64_t id, cudnnDataType_t type,
                                       const struct tn_dnn_shape *s)
{
    return tensor(g, id, type, s, NULL);
}

cudnnBackendDescriptor_t tn_dnn_between(struct tn_dnn_graph *g, cudnnDataType_t type,
                                        const struct tn_dnn_shape *s)
{
    const cudnnBackendAttributeName_t kind = CUDNN_ATTR_TENSOR_IS_VIRTUAL;

    return tensor(g, 1000 + g->n_kept, type, s, &kind); /* a number that nobody has */
}

cudnnBackendDescriptor_t tn_dnn_number(struct tn_dnn_graph *g, int64_t id)
{
    static const struct tn_dnn_shape one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    const cudnnBackendAttributeName_t kind = CUDNN_ATTR_TENSOR_IS_BY_VALUE;

    return tensor(g, id, CUDNN_DATA_FLOAT, &one, &kind);
}

/* --- operations */
void tn_dnn_pointwise(struct tn_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, int64_t axis,
                      cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t t,
                      cudnnBackendDescriptor_t y)
{
    const cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnBackendDescriptor_t d;

    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (axis >= 0)
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(g, how, "an element-wise operation");
    d = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    operation(g, d, "an element-wise operation");
}

void tn_dnn_reduce(struct tn_dnn_graph *g, cudnnReduceTensorOp_t op, cudnnBackendDescriptor_t x,
                   cudnnBackendDescriptor_t y)
{
    const cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d;

    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    finalize(g, how, "a reduction");
    d = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    operation(g, d, "a reduction");
}

void tn_dnn_matmul(struct tn_dnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
                   cudnnBackendDescriptor_t c)
{
    const cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d;

    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    finalize(g, how, "a matrix product");
    d = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    operation(g, d, "a matrix product");
}

void tn_dnn_reshape(struct tn_dnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
    const cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    operation(g, d, "a transposition");
}

/* --- plans */
static void set_place(struct tn_dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t handle,
                      cudnnBackendAttributeName_t device)
{
    if (g->device && device)
        set_descriptor(g, d, device, g->device);
    else if (g->handle && handle)
        set(g, d, handle, CUDNN_TYPE_HANDLE, 1, &g->handle);
}
#define NOTHING ((cudnnBackendAttributeName_t)0)

static cudnnBackendDescriptor_t heuristics(struct tn_dnn_graph *g)
{
    const cudnnBackendDescriptor_t whole = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t d;

    set(g, whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_op, g->op);
    set_place(g, whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, NOTHING);
    finalize(g, whole, "the graph");
    d = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, whole);
    set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_place(g, d, NOTHING, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    finalize(g, d, "engines for the graph");
    return d;
}

/* How many there are; what they need of descriptors is the graph's. */
static int64_t configurations(struct tn_dnn_graph *g, cudnnBackendDescriptor_t *out)
{
    const cudnnBackendDescriptor_t d = heuristics(g);
    int64_t n = 0;

    for (int i = 0; i < CONFIGS; i++)
        out[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (!g->failed)
        check(g,
              tn_dnn.cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                              CONFIGS, &n, out),
              "engines for the graph");
    if (!g->failed && !n)
        check(g, CUDNN_STATUS_NOT_SUPPORTED, "engines for the graph");
    return g->failed ? 0 : n < CONFIGS ? n : CONFIGS;
}

/* Does the engine say that two runs may differ? */
static int any_order_of(struct tn_dnn_graph *g, cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;

    if (!engine ||
        tn_dnn.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                        &n, &engine) ||
        tn_dnn.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, note))
        return 1;
    for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return 1;
    return 0;
}

static cudnnStatus_t plan_for(struct tn_dnn_graph *g, cudnnBackendDescriptor_t config,
                              struct tn_dnn_plan *out)
{
    int64_t bytes = 0, n = 0;
    cudnnStatus_t s =
        tn_dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &out->plan);

    if (!s)
        s = tn_dnn.cudnnBackendSetAttribute(out->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (!s)
        s = g->device ? tn_dnn.cudnnBackendSetAttribute(out->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->device)
                      : tn_dnn.cudnnBackendSetAttribute(out->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                                        CUDNN_TYPE_HANDLE, 1, &g->handle);
    if (!s)
        s = tn_dnn.cudnnBackendFinalize(out->plan);
    if (!s)
        s = tn_dnn.cudnnBackendGetAttribute(out->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, &n, &bytes);
    out->workspace = (uint64_t)bytes;
    return s;
}

tn_status tn_dnn_graph_plan(struct tn_dnn_graph *g, uint64_t most, int any_order, struct tn_dnn_plan *out,
                            char *why, size_t why_size)
{
    cudnnBackendDescriptor_t config[CONFIGS];
    const int64_t n = configurations(g, config);

    memset(out, 0, sizeof *out);
    if (g->failed) {
        const size_t used = (size_t)snprintf(why, why_size, "%s: ", g->failed);

        if (used < why_size)
            tn_dnn_say(g->status, why + used, why_size - used);
        return TN_DECLINED;
    }
    for (int64_t i = 0; i < n; i++) {
        cudnnStatus_t s;

        if (!any_order && any_order_of(g, config[i])) {
            snprintf(why, why_size, "its sums are in any order");
            continue;
        }
        if (!(s = plan_for(g, config[i], out)) && out->workspace <= most)
            return TN_OK;
        if (s)
            tn_dnn_say(s, why, why_size);
        else
            snprintf(why, why_size, "%.0f MiB of workspace", (double)out->workspace / 1048576);
        tn_dnn_plan_free(out);
    }
    return TN_DECLINED;
}

void tn_dnn_graph_free(struct tn_dnn_graph *g)
{
    while (g->n_kept)
        tn_dnn.cudnnBackendDestroyDescriptor(g->kept[--g->n_kept]);
    g->n_op = 0;
}

void tn_dnn_plan_free(struct tn_dnn_plan *p)
{
    if (p->plan)
        tn_dnn.cudnnBackendDestroyDescriptor(p->plan);
    memset(p, 0, sizeof *p);
}
