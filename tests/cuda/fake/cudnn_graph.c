/* cudnn_graph.c - what a graph of cuDNN's operations means: each one over all its elements, in double.
 *
 * A value is the numbers of a tensor at the offsets that its strides say, also between two operations; so a
 * reshape, which keeps offsets and says other sizes and strides for them, is a copy. What is stored is
 * rounded to the tensor's type. A dim that one operand has once, or in whole groups (heads of keys), is met
 * by several indices of the other. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "cudnn_fake.h"

struct tensor {
    int64_t id, size[4], stride[4], extent;
    cudnnDataType_t type;
    int between, by_value;
};

/* --- tensors */
static struct tensor read_tensor(const struct tn_fake_descriptor *d)
{
    const bool *between = tn_fake_get(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, NULL);
    const bool *by_value = tn_fake_get(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, NULL);
    struct tensor t = {.extent = 1, .between = between && *between, .by_value = by_value && *by_value};

    t.id = *(const int64_t *)tn_fake_get(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, NULL);
    t.type =
        *(const cudnnDataType_t *)tn_fake_get(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, NULL);
    memcpy(t.size, tn_fake_get(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, NULL), sizeof t.size);
    memcpy(t.stride, tn_fake_get(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, NULL), sizeof t.stride);
    for (int i = 0; i < 4; i++)
        t.extent += (t.size[i] - 1) * t.stride[i];
    return t;
}

/* Do two elements lie at one place? Dims in order of their strides; each must step over what lies below it.
 */
static int overlaps(const struct tensor *t)
{
    int order[4] = {0, 1, 2, 3};
    int64_t below = 1;

    for (int i = 0; i < 4; i++)
        for (int j = i + 1; j < 4; j++)
            if (t->stride[order[j]] < t->stride[order[i]]) {
                const int o = order[i];

                order[i] = order[j], order[j] = o;
            }
    for (int i = 0; i < 4; i++) {
        if (t->size[order[i]] == 1)
            continue;
        if (t->stride[order[i]] < below)
            return 1;
        below = t->stride[order[i]] * (t->size[order[i]] - 1) + below;
    }
    return 0;
}

cudnnStatus_t tn_fake_check_tensor(const struct tn_fake_descriptor *d)
{
    int64_t sizes, strides;
    const int64_t *size = tn_fake_get(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, &sizes);
    struct tensor t;

    tn_fake_get(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, &strides);
    if (sizes != 4 || strides != 4 || !tn_fake_get(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, NULL) ||
        !tn_fake_get(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, NULL) ||
        !tn_fake_get(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, NULL))
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "a tensor that lacks an attribute, or not of 4 dims");
    for (int i = 0; i < 4; i++)
        if (size[i] < 1)
            return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "a tensor with a dim of %lld", (long long)size[i]);
    t = read_tensor(d);
    return overlaps(&t) ? tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "tensor %lld lies on itself", (long long)t.id)
                        : CUDNN_STATUS_SUCCESS;
}

/* --- operations */
static const cudnnBackendAttributeName_t pointwise[] = {
    CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
    CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
static const cudnnBackendAttributeName_t matmul[] = {
    CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC};
static const cudnnBackendAttributeName_t reduction[] = {CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
                                                        CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
static const cudnnBackendAttributeName_t reshape[] = {CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
                                                      CUDNN_ATTR_OPERATION_RESHAPE_YDESC};

/* Its tensors, the result last; NULL where there is none. Returns how many places there are. */
static int operands(const struct tn_fake_descriptor *d, const struct tn_fake_descriptor *out[4])
{
    const cudnnBackendDescriptorType_t type = tn_fake_type(d);
    const cudnnBackendAttributeName_t *name =
        type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR      ? matmul
        : type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR ? reduction
        : type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR   ? reshape
                                                               : pointwise;
    const int n = name == matmul ? 3 : name == pointwise ? 4 : 2;

    for (int i = 0; i < n; i++)
        out[i] = tn_fake_under(d, name[i]);
    return n;
}

static cudnnPointwiseMode_t mode_of(const struct tn_fake_descriptor *d, int64_t *axis)
{
    const struct tn_fake_descriptor *how = tn_fake_under(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const cudnnPointwiseMode_t *mode =
        how ? tn_fake_get(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, NULL) : NULL;
    const int64_t *a = how ? tn_fake_get(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, NULL) : NULL;

    *axis = a ? *a : -1;
    return mode ? *mode : (cudnnPointwiseMode_t)-1;
}

static int inputs_of(cudnnPointwiseMode_t mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_GEN_INDEX: return 1;
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE: return 2;
    case CUDNN_POINTWISE_BINARY_SELECT: return 3;
    default: return 0;
    }
}

/* Is small met by every index of large, once or by groups? */
static int meets(const int64_t *small, const int64_t *large, int dims)
{
    for (int i = 0; i < dims; i++)
        if (large[i] % small[i])
            return 0;
    return 1;
}

static int fits(const struct tn_fake_descriptor *d, const struct tensor *t, int n)
{
    int64_t axis;

    switch (tn_fake_type(d)) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return t[0].size[2] == t[2].size[2] && t[1].size[3] == t[2].size[3] && t[0].size[3] == t[1].size[2] &&
               meets(t[0].size, t[2].size, 2) && meets(t[1].size, t[2].size, 2);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return meets(t[1].size, t[0].size, 4);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return t[0].extent == t[1].extent && t[0].size[0] * t[0].size[1] * t[0].size[2] * t[0].size[3] ==
                                                 t[1].size[0] * t[1].size[1] * t[1].size[2] * t[1].size[3];
    default:
        for (int i = 0; i + 1 < n; i++)
            if (i < inputs_of(mode_of(d, &axis)) && !meets(t[i].size, t[n - 1].size, 4))
                return 0;
        return 1;
    }
}

cudnnStatus_t tn_fake_check_operation(const struct tn_fake_descriptor *d)
{
    const struct tn_fake_descriptor *x[4] = {0};
    const int n = operands(d, x), is_pointwise = n == 4;
    struct tensor t[4] = {0};
    int64_t axis = 0;
    const cudnnPointwiseMode_t mode = is_pointwise ? mode_of(d, &axis) : (cudnnPointwiseMode_t)-1;
    const int inputs = is_pointwise ? inputs_of(mode) : n - 1;

    if (!inputs || (mode == CUDNN_POINTWISE_GEN_INDEX && (axis < 0 || axis > 3)))
        return tn_fake_wrong(CUDNN_STATUS_NOT_SUPPORTED, "an element-wise operation of mode %d", (int)mode);
    for (int i = 0; i < n; i++) {
        if (!x[i] != (i >= inputs && i + 1 < n))
            return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "an operation with other operands than it has");
        if (x[i])
            t[i] = read_tensor(x[i]);
    }
    return fits(d, t, n)
               ? CUDNN_STATUS_SUCCESS
               : tn_fake_wrong(CUDNN_STATUS_BAD_PARAM,
                               "an operation of kind %d whose sizes do not meet: %lld %lld",
                               (int)tn_fake_type(d), (long long)t[0].size[2], (long long)t[n - 1].size[2]);
}

/* --- graphs */
static const struct tn_fake_descriptor *operation(const struct tn_fake_descriptor *graph, int64_t i)
{
    int64_t n;
    const struct tn_fake_descriptor *const *op =
        tn_fake_get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, &n);

    return op && i < n ? op[i] : NULL;
}

cudnnStatus_t tn_fake_check_graph(const struct tn_fake_descriptor *graph)
{
    const struct tn_fake_descriptor *op, *made[TN_FAKE_OPERATIONS], *x[4];
    int64_t n = 0;

    for (; (op = operation(graph, n)); n++) {
        const int places = operands(op, x);

        if (n == TN_FAKE_OPERATIONS)
            return tn_fake_wrong(CUDNN_STATUS_NOT_SUPPORTED, "a graph of more than %d operations",
                                 TN_FAKE_OPERATIONS);
        made[n] = x[places - 1];
        for (int i = 0; i < places; i++) {
            int64_t by = 0;

            if (!x[i])
                continue;
            while (by < n && made[by] != x[i])
                by++;
            if (i + 1 < places ? read_tensor(x[i]).between && by == n : by < n)
                return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM,
                                     "tensor %lld is used before it is made, or made twice",
                                     (long long)read_tensor(x[i]).id);
        }
    }
    return n ? CUDNN_STATUS_SUCCESS : tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "a graph of no operations");
}

int64_t tn_fake_largest(const struct tn_fake_descriptor *graph)
{
    const struct tn_fake_descriptor *op, *x[4];
    int64_t most = 0;

    for (int64_t n = 0; (op = operation(graph, n)); n++) {
        const struct tensor t = read_tensor(x[operands(op, x) - 1]);

        most = t.between && t.extent > most ? t.extent : most;
    }
    return most;
}

/* --- numbers */
static int width(cudnnDataType_t type)
{
    return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF ? 2 : type == CUDNN_DATA_BOOLEAN ? 1 : 4;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return f != f ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void store(cudnnDataType_t type, char *at, double v)
{
    const float f = (float)v;
    const _Float16 half = (_Float16)v;
    const uint16_t bf16 = to_bf16(f);

    memcpy(at,
           type == CUDNN_DATA_BFLOAT16 ? (const void *)&bf16
           : type == CUDNN_DATA_HALF   ? (const void *)&half
                                       : (const void *)&f,
           (size_t)width(type));
}

static double load(cudnnDataType_t type, const char *at)
{
    uint32_t bits = 0;
    float f;
    _Float16 half;

    memcpy(&bits, at, (size_t)width(type));
    memcpy(&half, at, sizeof half);
    if (type == CUDNN_DATA_HALF)
        return (double)half;
    bits = type == CUDNN_DATA_BFLOAT16 ? bits << 16 : bits;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static double rounded(cudnnDataType_t type, double v)
{
    char at[4] = {0};

    if (type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN)
        return v;
    store(type, at, v);
    return load(type, at);
}

/* --- values, by tensor */
struct value {
    const struct tn_fake_descriptor *of;
    struct tensor t;
    double *at;                                  /* by offset */
};
struct values {
    struct value v[4 * TN_FAKE_OPERATIONS];
    int n;
    const struct tn_fake_binding *bound;
};

static int64_t bound_to(const struct tn_fake_binding *b, int64_t id)
{
    int64_t i = 0;

    while (i < b->n && b->id[i] != id)
        i++;
    return i;
}

static int64_t offset(const struct tensor *t, const int64_t at[4], const int64_t of[4])
{
    int64_t o = 0;

    for (int i = 0; i < 4; i++)
        o += at[i] / (of[i] / t->size[i]) * t->stride[i];
    return o;
}

static int step(int64_t at[4], const int64_t size[4])
{
    for (int i = 3; i >= 0; i--) {
        if (++at[i] < size[i])
            return 1;
        at[i] = 0;
    }
    return 0;
}

/* From memory, or to it. */
static void exchange(const struct value *v, const struct tn_fake_binding *b, int to)
{
    const int64_t i = bound_to(b, v->t.id);
    int64_t at[4] = {0};

    if (v->t.by_value) {
        v->at[0] = (double)b->number[i];
        return;
    }
    do {
        const int64_t o = offset(&v->t, at, v->t.size);
        char *p = (char *)b->at[i] + o * width(v->t.type);

        if (to)
            store(v->t.type, p, v->at[o]);
        else
            v->at[o] = load(v->t.type, p);
    } while (step(at, v->t.size));
}

static struct value *value_of(struct values *all, const struct tn_fake_descriptor *d, int read)
{
    struct value *v;

    for (int i = 0; i < all->n; i++)
        if (all->v[i].of == d)
            return &all->v[i];
    v = &all->v[all->n++];
    v->of = d, v->t = read_tensor(d), v->at = calloc((size_t)v->t.extent, sizeof *v->at);
    if (!v->at)
        abort();
    if (read)
        exchange(v, all->bound, 0);
    return v;
}

/* --- what operations do. y: the result's sizes are walked. */
static double apply(cudnnPointwiseMode_t mode, double x, double b, double t, double index)
{
    switch (mode) {
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_GEN_INDEX: return index;
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: return x;
    }
}

static void run_pointwise(const struct tn_fake_descriptor *d, struct value *const in[3],
                          const struct value *y)
{
    int64_t at[4] = {0}, axis;
    const cudnnPointwiseMode_t mode = mode_of(d, &axis);
    double x[3] = {0};

    do {
        for (int i = 0; i < inputs_of(mode); i++)
            x[i] = in[i]->at[offset(&in[i]->t, at, y->t.size)];
        y->at[offset(&y->t, at, y->t.size)] =
            rounded(y->t.type, apply(mode, x[0], x[1], x[2], axis < 0 ? 0 : (double)at[axis]));
    } while (step(at, y->t.size));
}

static void run_matmul(const struct value *a, const struct value *b, const struct value *c)
{
    int64_t at[4] = {0};

    do {
        const int64_t depth = a->t.size[3];
        const int64_t left[4] = {at[0], at[1], at[2], 0}, right[4] = {at[0], at[1], 0, at[3]};
        const int64_t of_a[4] = {c->t.size[0], c->t.size[1], c->t.size[2], depth},
                      of_b[4] = {c->t.size[0], c->t.size[1], depth, c->t.size[3]};
        const double *x = a->at + offset(&a->t, left, of_a), *y = b->at + offset(&b->t, right, of_b);
        double sum = 0;

        for (int64_t k = 0; k < depth; k++)
            sum += x[k * a->t.stride[3]] * y[k * b->t.stride[2]];
        c->at[offset(&c->t, at, c->t.size)] = rounded(c->t.type, sum);
    } while (step(at, c->t.size));
}

static void run_reduction(const struct tn_fake_descriptor *d, const struct value *x, const struct value *y)
{
    const struct tn_fake_descriptor *how = tn_fake_under(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const cudnnReduceTensorOp_t op = *(const cudnnReduceTensorOp_t *)tn_fake_get(
        how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, NULL);
    int64_t at[4] = {0};

    for (int64_t i = 0; i < y->t.extent; i++)
        y->at[i] = op == CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0;
    do {
        const double v = x->at[offset(&x->t, at, x->t.size)];
        double *to = &y->at[offset(&y->t, at, x->t.size)];

        *to = op == CUDNN_REDUCE_TENSOR_ADD ? *to + v : v > *to || v != v ? v : *to;
    } while (step(at, x->t.size));
    for (int64_t i = 0; i < y->t.extent; i++)
        y->at[i] = rounded(y->t.type, y->at[i]);
}

const char *tn_fake_check_binding(const struct tn_fake_descriptor *graph, struct tn_fake_binding *b)
{
    const struct tn_fake_descriptor *op, *x[4];

    for (int64_t n = 0; (op = operation(graph, n)); n++)
        for (int i = operands(op, x) - 1; i >= 0; i--) {
            const struct tensor t = x[i] ? read_tensor(x[i]) : (struct tensor){.between = 1};
            const int64_t k = t.between ? 0 : bound_to(b, t.id);

            if (t.between)
                continue;
            if (k == b->n || !b->at[k])
                return "a tensor has no address";
            if (t.by_value)
                memcpy(&b->number[k], b->at[k], sizeof b->number[k]);
            else
                b->bytes[k] = t.extent * width(t.type);
            if (!t.by_value && (uintptr_t)b->at[k] % 16)
                return "a tensor is not at a multiple of 16 bytes";
        }
    return NULL;
}

void tn_fake_compute(const struct tn_fake_descriptor *graph, const struct tn_fake_binding *b)
{
    struct values *all = calloc(1, sizeof *all);
    const struct tn_fake_descriptor *op, *x[4];

    if (!all)
        abort();
    all->bound = b;
    for (int64_t n = 0; (op = operation(graph, n)); n++) {
        const int places = operands(op, x);
        struct value *in[3] = {0}, *y;

        for (int i = 0; i + 1 < places; i++)
            if (x[i])
                in[i] = value_of(all, x[i], !read_tensor(x[i]).between);
        y = value_of(all, x[places - 1], 0);
        switch (tn_fake_type(op)) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: run_matmul(in[0], in[1], y); break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: run_reduction(op, in[0], y); break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
            for (int64_t i = 0; i < y->t.extent; i++)
                y->at[i] = rounded(y->t.type, in[0]->at[i]);
            break;
        default: run_pointwise(op, in, y);
        }
    }
    for (int i = 0; i < all->n; i++) {
        int made = 0;

        for (int64_t n = 0; (op = operation(graph, n)); n++)
            made |= x[operands(op, x) - 1] == all->v[i].of;
        if (made && !all->v[i].t.between)
            exchange(&all->v[i], b, 1);
        free(all->v[i].at);
    }
    free(all);
}
