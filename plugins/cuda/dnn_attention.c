/* dnn_attention.c - causal attention and its gradient as graphs of cuDNN's operations.
 *
 * Operation for operation what the library's engines know; they refuse other ways to write it. All tensors
 * are [batch, head, row, column], so time and heads change places by strides alone. K and V go into products
 * as their transposes: sizes and strides of the last two dims changed over. With grouped queries K and V have
 * fewer heads, each met by rep neighbours of Q; their gradients are made for each head of Q and summed.
 *   forward   S = scale·Q·Kᵀ, -inf where a key is later; stats = max + log Σ exp(S - max), which is the
 * log-sum-exp; O = (exp(S - max) / Σ)·V backward  P = exp(S - stats); dV = Pᵀ·dO; dS = scale·P·(dO·Vᵀ - sum);
 * dK = dSᵀ·Q; dQ = dS·K where sum = Σ dO·O along the width: an engine makes it itself and takes no other. dQ
 * has a part from every tile of keys. Written at once it takes dS in the workspace, T² numbers for each head,
 * and is the same in every run; through sums in fp32 it takes little, and blocks add to those in any order.
 */
#include "dnn.h"

#define F32 CUDNN_DATA_FLOAT
#define I32 CUDNN_DATA_INT32
#define BOOL CUDNN_DATA_BOOLEAN

struct build {
    struct tn_dnn_graph *g;
    const struct tn_dnn_attention *a;
    cudnnDataType_t low;                         /* of operands */
    struct tn_dnn_shape scores, rows;            /* [B, heads of Q, T, T] and [.., T, 1] */
    cudnnBackendDescriptor_t q, kt, scale;
};

static struct tn_dnn_shape packed(int64_t b, int64_t h, int64_t rows, int64_t columns)
{
    return (struct tn_dnn_shape){{b, h, rows, columns}, {h * rows * columns, rows * columns, columns, 1}};
}

/* Where a dim has one element its stride is free; the one of packed tensors is no surprise. */
static struct tn_dnn_shape strided(const struct tn_dnn_attention *a, int64_t heads, const int64_t stride[3])
{
    struct tn_dnn_shape s = packed(a->batch, heads, a->time, a->width);

    if (a->batch > 1)
        s.stride[0] = stride[0];
    if (heads > 1)
        s.stride[1] = stride[1];
    if (a->time > 1)
        s.stride[2] = stride[2];
    return s;
}

static struct tn_dnn_shape transposed(const struct tn_dnn_shape *s)
{
    return (struct tn_dnn_shape){{s->size[0], s->size[1], s->size[3], s->size[2]},
                                 {s->stride[0], s->stride[1], s->stride[3], s->stride[2]}};
}

static cudnnBackendDescriptor_t queries(struct build *b, int64_t id, const int64_t stride[3])
{
    const struct tn_dnn_shape s = strided(b->a, b->a->heads * b->a->rep, stride);

    return tn_dnn_tensor(b->g, id, b->low, &s);
}

static cudnnBackendDescriptor_t keys(struct build *b, int64_t id, const int64_t stride[3], int across)
{
    const struct tn_dnn_shape s = strided(b->a, b->a->heads, stride), t = transposed(&s);

    return tn_dnn_tensor(b->g, id, b->low, across ? &t : &s);
}

/* y = x, or x with b, into a new tensor between two operations. */
static cudnnBackendDescriptor_t apply(struct build *b, cudnnPointwiseMode_t mode, cudnnDataType_t type,
                                      const struct tn_dnn_shape *s, cudnnBackendDescriptor_t x,
                                      cudnnBackendDescriptor_t with)
{
    const cudnnBackendDescriptor_t y = tn_dnn_between(b->g, type, s);

    tn_dnn_pointwise(b->g, mode, F32, -1, x, with, NULL, y);
    return y;
}

static cudnnBackendDescriptor_t reduce(struct build *b, cudnnReduceTensorOp_t how, cudnnBackendDescriptor_t x)
{
    const cudnnBackendDescriptor_t y = tn_dnn_between(b->g, F32, &b->rows);

    tn_dnn_reduce(b->g, how, x, y);
    return y;
}

static cudnnBackendDescriptor_t product(struct build *b, cudnnBackendDescriptor_t x,
                                        cudnnBackendDescriptor_t y)
{
    const cudnnBackendDescriptor_t s = tn_dnn_between(b->g, F32, &b->scores);

    tn_dnn_matmul(b->g, x, y, s);
    return s;
}

/* -inf where the column, a key, is behind the row, a query. */
static cudnnBackendDescriptor_t masked(struct build *b, cudnnBackendDescriptor_t x)
{
    const cudnnBackendDescriptor_t row = tn_dnn_between(b->g, I32, &b->scores),
                                   column = tn_dnn_between(b->g, I32, &b->scores),
                                   sees = tn_dnn_between(b->g, BOOL, &b->scores),
                                   y = tn_dnn_between(b->g, F32, &b->scores);

    tn_dnn_pointwise(b->g, CUDNN_POINTWISE_GEN_INDEX, F32, 2, x, NULL, NULL, row);
    tn_dnn_pointwise(b->g, CUDNN_POINTWISE_GEN_INDEX, F32, 3, x, NULL, NULL, column);
    tn_dnn_pointwise(b->g, CUDNN_POINTWISE_CMP_GE, BOOL, -1, row, column, NULL, sees);
    tn_dnn_pointwise(b->g, CUDNN_POINTWISE_BINARY_SELECT, F32, -1, x, tn_dnn_number(b->g, TN_DNN_MASKED),
                     sees, y);
    return y;
}

/* scale·Q·Kᵀ */
static cudnnBackendDescriptor_t scores(struct build *b)
{
    b->q = queries(b, TN_DNN_Q, b->a->q), b->kt = keys(b, TN_DNN_K, b->a->k, 1),
    b->scale = tn_dnn_number(b->g, TN_DNN_SCALE);
    return apply(b, CUDNN_POINTWISE_MUL, F32, &b->scores, product(b, b->q, b->kt), b->scale);
}

static void forward(struct build *b)
{
    const cudnnBackendDescriptor_t s = masked(b, scores(b)),
                                   stats = tn_dnn_tensor(b->g, TN_DNN_STATS, F32, &b->rows);
    const cudnnBackendDescriptor_t max = reduce(b, CUDNN_REDUCE_TENSOR_MAX, s);
    const cudnnBackendDescriptor_t e = apply(b, CUDNN_POINTWISE_EXP, F32, &b->scores,
                                             apply(b, CUDNN_POINTWISE_SUB, F32, &b->scores, s, max), NULL);
    const cudnnBackendDescriptor_t sum = reduce(b, CUDNN_REDUCE_TENSOR_ADD, e);

    tn_dnn_pointwise(b->g, CUDNN_POINTWISE_ADD, F32, -1, max,
                     apply(b, CUDNN_POINTWISE_LOG, F32, &b->rows, sum, NULL), NULL, stats);
    tn_dnn_matmul(b->g, apply(b, CUDNN_POINTWISE_DIV, b->low, &b->scores, e, sum),
                  keys(b, TN_DNN_V, b->a->v, 0), queries(b, TN_DNN_O, b->a->o));
}

/* xᵀ·y [.., T, D] for heads of Q, summed into those of keys. */
static void gradient(struct build *b, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y,
                     cudnnBackendDescriptor_t out)
{
    const struct tn_dnn_shape turned = transposed(&b->scores);
    const struct tn_dnn_shape every = packed(b->a->batch, b->a->heads * b->a->rep, b->a->time, b->a->width);
    const cudnnBackendDescriptor_t t = tn_dnn_between(b->g, b->low, &turned);
    cudnnBackendDescriptor_t sum = out;

    tn_dnn_reshape(b->g, x, t);
    if (b->a->rep > 1)
        sum = tn_dnn_between(b->g, b->low, &every);
    tn_dnn_matmul(b->g, t, y, sum);
    if (sum != out)
        tn_dnn_reduce(b->g, CUDNN_REDUCE_TENSOR_ADD, sum, out);
}

/* Σ dO·O: a real tensor, though nobody outside reads it. */
static cudnnBackendDescriptor_t row_sums(struct build *b, cudnnBackendDescriptor_t grad)
{
    const struct tn_dnn_attention *a = b->a;
    const struct tn_dnn_shape s = packed(a->batch, a->heads * a->rep, a->time, a->width);
    const cudnnBackendDescriptor_t o = queries(b, TN_DNN_O, a->o),
                                   sum = tn_dnn_tensor(b->g, TN_DNN_SUM, F32, &b->rows);
    const cudnnBackendDescriptor_t all =
        reduce(b, CUDNN_REDUCE_TENSOR_ADD, apply(b, CUDNN_POINTWISE_MUL, F32, &s, grad, o));

    tn_dnn_pointwise(b->g, CUDNN_POINTWISE_MUL, F32, -1, all, tn_dnn_number(b->g, TN_DNN_ONE), NULL, sum);
    return sum;
}

static void backward(struct build *b)
{
    const struct tn_dnn_attention *a = b->a;
    const struct tn_dnn_shape as_k = strided(a, a->heads, a->k),
                              sums = packed(a->batch, a->heads * a->rep, a->time, a->width);
    const cudnnBackendDescriptor_t grad = queries(b, TN_DNN_GRAD, a->grad), sum = row_sums(b, grad),
                                   s = scores(b), stats = tn_dnn_tensor(b->g, TN_DNN_STATS, F32, &b->rows);
    cudnnBackendDescriptor_t p, ds, k, dq, dq_sum;

    p = apply(b, CUDNN_POINTWISE_EXP, F32, &b->scores,
              masked(b, apply(b, CUDNN_POINTWISE_SUB, F32, &b->scores, s, stats)), NULL);
    gradient(b, p, grad, keys(b, TN_DNN_DV, a->dv, 0));
    ds = apply(b, CUDNN_POINTWISE_SUB, F32, &b->scores, product(b, grad, keys(b, TN_DNN_V, a->v, 1)), sum);
    ds = apply(b, CUDNN_POINTWISE_MUL, F32, &b->scores, ds, p);
    ds = apply(b, CUDNN_POINTWISE_MUL, b->low, &b->scores, ds, b->scale);
    gradient(b, ds, b->q, keys(b, TN_DNN_DK, a->dk, 0));
    k = tn_dnn_between(b->g, b->low, &as_k), dq = queries(b, TN_DNN_DQ, a->dq);
    tn_dnn_reshape(b->g, b->kt, k);
    if (!a->any_order) {
        tn_dnn_matmul(b->g, ds, k, dq);
        return;
    }
    dq_sum = tn_dnn_tensor(b->g, TN_DNN_DQ_SUM, F32, &sums);
    tn_dnn_matmul(b->g, ds, k, dq_sum);
    tn_dnn_pointwise(b->g, CUDNN_POINTWISE_IDENTITY, F32, -1, dq_sum, NULL, NULL, dq);
}

void tn_dnn_attention_graph(struct tn_dnn_graph *g, const struct tn_dnn_attention *a)
{
    const int64_t heads = a->heads * a->rep;
    struct build b = {.g = g, .a = a, .low = a->dtype == TN_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF};

    b.scores = packed(a->batch, heads, a->time, a->time), b.rows = packed(a->batch, heads, a->time, 1);
    if (a->back)
        backward(&b);
    else
        forward(&b);
}
