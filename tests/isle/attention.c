/* attention.c - attention and its gradient, for the ring alone: only reef has them (isle.h).
 *
 * A key is seen where its position is not above the query's. One head at a time: its dk and dv are summed in the workspace,
 * [S,D] doubles each, beside one row of scores. Grouped queries are declined. */
#include <math.h>
#include <stdlib.h>
#include <tenon/philox.h>
#include "isle.h"

#define Q 0
#define K 1
#define V 2
#define QPOS 3
#define KPOS 4
#define LSE 5                                    /* backward only, like the next two */
#define DELTA 6
#define DO 7

struct attention {
    struct isle_kernel base;
    uint32_t back, add, out;                     /* out: the first output's number */
    int64_t batch, queries, heads, width, keys;
    int64_t stride[11][4];                       /* of each operand: batch, seq, heads, head_dim; positions: only the first */
    double scale, kept;
    int64_t plain;                               /* positions are 0, 1, 2, ... and not read */
    uint32_t key, threshold;
    int64_t block, whole_batch, whole_heads;
    int64_t global[];                            /* of each b, then of each h */
};

static float *at(const struct attention *k, const struct isle_call *c, uint32_t i, int64_t b, int64_t s, int64_t h, int64_t d)
{
    const int64_t *x = k->stride[i];

    return (float *)c->buffer[i] + b * x[0] + s * x[1] + h * x[2] + d * x[3];
}

static double get(const struct attention *k, const struct isle_call *c, uint32_t i, int64_t b, int64_t s, int64_t h, int64_t d)
{
    return (double)*at(k, c, i, b, s, h, d);
}

static void put(const struct attention *k, float *y, uint32_t out, double value)
{
    *y = (float)(k->add >> out & 1 ? *y + value : value);
}

static int64_t position(const struct attention *k, const struct isle_call *c, uint32_t i, int64_t s)
{
    return k->plain ? s : ((const int32_t *)c->buffer[i])[s * k->stride[i][0]];
}

static double drop(const struct attention *k, const struct isle_call *c, int64_t b, int64_t h, int64_t qpos, int64_t kpos)
{
    const uint32_t *u = c->uniform;
    int64_t g;

    if (!k->threshold)
        return 1;
    g = (k->global[b] + c->micro * k->whole_batch) * k->whole_heads + k->global[k->batch + h];
    g = (g * k->block + qpos) * k->block + kpos;
    return tn_philox_at(u[0] | (uint64_t)u[1] << 32, k->key, u[2], (uint64_t)g) >= k->threshold ? k->kept : 0;
}

static double dot(const struct attention *k, const struct isle_call *c, uint32_t x, int64_t xs, uint32_t y, int64_t ys, int64_t b, int64_t h)
{
    double sum = 0;

    for (int64_t d = 0; d < k->width; d++)
        sum += get(k, c, x, b, xs, h, d) * get(k, c, y, b, ys, h, d);
    return sum;
}

static void forward_query(const struct attention *k, const struct isle_call *c, int64_t b, int64_t t, int64_t h)
{
    double *p = c->workspace, most = -INFINITY, sum = 0;
    const int64_t qpos = position(k, c, QPOS, t);

    for (int64_t s = 0; s < k->keys; s++) {
        p[s] = position(k, c, KPOS, s) <= qpos ? k->scale * dot(k, c, Q, t, K, s, b, h) : -INFINITY;
        most = p[s] > most || isnan(p[s]) ? p[s] : most;
    }
    for (int64_t s = 0; s < k->keys; s++) {
        p[s] = isinf(p[s]) ? 0 : exp(p[s] - most);
        sum += p[s];
    }
    put(k, at(k, c, k->out + 1, b, t, h, 0), 1, sum == 0 ? -INFINITY : log(sum) + most);
    for (int64_t d = 0; d < k->width; d++) {
        double o = 0;

        for (int64_t s = 0; s < k->keys; s++)
            if (p[s] != 0)
                o += p[s] / sum * drop(k, c, b, h, qpos, position(k, c, KPOS, s)) * get(k, c, V, b, s, h, d);
        put(k, at(k, c, k->out, b, t, h, d), 0, o);
    }
}

/* Leaves ds of the query's row in the workspace, and adds to dk and dv. */
static void backward_query(const struct attention *k, const struct isle_call *c, int64_t b, int64_t t, int64_t h, double *dk, double *dv)
{
    double *ds = c->workspace;
    const int64_t qpos = position(k, c, QPOS, t);

    for (int64_t s = 0; s < k->keys; s++) {
        double p, m;

        ds[s] = 0;
        if (position(k, c, KPOS, s) > qpos)
            continue;
        p = exp(k->scale * dot(k, c, Q, t, K, s, b, h) - get(k, c, LSE, b, t, h, 0));
        m = drop(k, c, b, h, qpos, position(k, c, KPOS, s));
        ds[s] = p * (m * dot(k, c, DO, t, V, s, b, h) - get(k, c, DELTA, b, t, h, 0));
        for (int64_t d = 0; d < k->width; d++) {
            dk[s * k->width + d] += k->scale * ds[s] * get(k, c, Q, b, t, h, d);
            dv[s * k->width + d] += m * p * get(k, c, DO, b, t, h, d);
        }
    }
    for (int64_t d = 0; d < k->width; d++) {
        double dq = 0;

        for (int64_t s = 0; s < k->keys; s++)
            if (ds[s] != 0)
                dq += k->scale * ds[s] * get(k, c, K, b, s, h, d);
        put(k, at(k, c, k->out, b, t, h, d), 0, dq);
    }
}

static void run(const struct isle_kernel *base, const struct isle_call *c)
{
    const struct attention *k = (const struct attention *)base;
    const int64_t n = k->keys * k->width;
    double *dk = (double *)c->workspace + k->keys, *dv = dk + n;

    for (int64_t b = 0; b < k->batch; b++)
        for (int64_t h = 0; h < k->heads; h++) {
            for (int64_t i = 0; i < 2 * n && k->back; i++)
                dk[i] = 0;
            for (int64_t t = 0; t < k->queries; t++)
                if (k->back)
                    backward_query(k, c, b, t, h, dk, dv);
                else
                    forward_query(k, c, b, t, h);
            for (int64_t i = 0; i < n && k->back; i++) {
                put(k, at(k, c, k->out + 1, b, i / k->width, h, i % k->width), 1, dk[i]);
                put(k, at(k, c, k->out + 2, b, i / k->width, h, i % k->width), 2, dv[i]);
            }
        }
}

tn_status isle_attention(const struct tn_problem *p, struct isle_kernel **out, uint64_t *workspace)
{
    const struct tn_operand *q = &p->in[Q];
    struct attention *k;

    if (q->rank != 4)
        return TN_DECLINED;
    if (!(k = calloc(1, sizeof *k + (size_t)(q->size[0] + q->size[2]) * sizeof(int64_t))))
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a kernel");
    k->base.run = run;
    k->back = p->n_out == 3, k->add = p->accumulate, k->out = p->n_in;
    k->batch = q->size[0], k->queries = q->size[1], k->heads = q->size[2], k->width = q->size[3], k->keys = p->in[K].size[1];
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++) {
        const struct tn_operand *o = i < p->n_in ? &p->in[i] : &p->out[i - p->n_in];

        memcpy(k->stride[i], o->stride, o->rank * sizeof *o->stride);
    }
    k->scale = tn_problem_float(p, "scale", 1), k->plain = tn_problem_int(p, "causal", 0);
    k->threshold = tn_dropout_threshold(tn_problem_float(p, "dropout", 0)), k->kept = 1 / (1 - tn_problem_float(p, "dropout", 0));
    k->key = (uint32_t)tn_problem_int(p, "key", 0), k->block = tn_problem_int(p, "block", 0);
    k->whole_batch = q->whole[0], k->whole_heads = q->whole[2];
    for (int64_t i = 0; i < k->batch; i++)
        k->global[i] = tn_global(q, 0, i);
    for (int64_t i = 0; i < k->heads; i++)
        k->global[k->batch + i] = tn_global(q, 2, i);
    *workspace = (uint64_t)(k->keys + (k->back ? 2 * k->keys * k->width : 0)) * sizeof(double);
    *out = &k->base;
    return TN_OK;
}
