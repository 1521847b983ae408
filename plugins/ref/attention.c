/* attention.c - attention by positions, and its gradient.
 *
 * A key is seen where its position is not above the query's; the others are skipped, never multiplied by 0.
 * All keys and values of one head lie in the workspace as doubles, and so do their gradients. With grouped
 * queries rep query heads share one key head; without, rep is 1. The dropout mask belongs to the pair of
 * global positions, so neither the cut of the batch and the heads nor a ring changes it. */
#include "ref.h"
#include <tenon/philox.h>

#define Q 0
#define K 1
#define V 2
#define QPOS 3
#define KPOS 4
#define LSE 5                                    /* backward only, like the next two */
#define DELTA 6
#define DO 7

struct attention {
    struct tn_ref_base base;
    struct tn_ref_view in[8], out[3];            /* q [B,T,H,rep;D] k, v [B,S,H;D] lse, delta [B,T,H,rep;] */
    int64_t batch, queries, keys, heads, rep, width;
    double scale;
    int64_t causal;                              /* positions are 0, 1, 2, ... and not read */
    const int64_t *global_batch, *global_head, *global_rep;
    int64_t micro_batch, whole_heads, whole_rep, block;
    uint32_t key, threshold;                     /* threshold 0: nothing is dropped */
    double kept;                                 /* 1 / (1 - p) */
};

/* The workspace of one launch, all doubles: k, v and their gradients [S,D], positions, rows. */
struct work {
    double *k, *v, *dk, *dv, *qpos, *kpos, *q, *row, *grad, *score;
};

static int64_t lay_out(const struct attention *a, double *base, struct work *w)
{
    const int64_t size[10] = {a->keys * a->width, a->keys * a->width, a->keys * a->width, a->keys * a->width,
                              a->queries, a->keys, a->width, a->width, a->width, a->keys};
    double **const part[10] = {&w->k,    &w->v, &w->dk,  &w->dv,   &w->qpos,
                               &w->kpos, &w->q, &w->row, &w->grad, &w->score};
    int64_t used = 0;

    for (uint32_t i = 0; i < 10; used += size[i++])
        *part[i] = base ? base + used : NULL;
    return used;
}

static void begin(const struct attention *a, const struct tn_launch *l, struct work *w)
{
    lay_out(a, l->workspace, w);
    for (int64_t t = 0; t < a->queries; t++)
        w->qpos[t] = a->causal ? (double)t : tn_ref_get(l, &a->in[QPOS], t, 0);
    for (int64_t s = 0; s < a->keys; s++)
        w->kpos[s] = a->causal ? (double)s : tn_ref_get(l, &a->in[KPOS], s, 0);
}

static int64_t query_row(const struct attention *a, int64_t b, int64_t t, int64_t h, int64_t r)
{
    return ((b * a->queries + t) * a->heads + h) * a->rep + r;
}

static int64_t key_row(const struct attention *a, int64_t b, int64_t s, int64_t h)
{
    return (b * a->keys + s) * a->heads + h;
}

static void load_head(const struct attention *a, const struct tn_launch *l, int64_t b, int64_t h,
                      struct work *w)
{
    for (int64_t s = 0; s < a->keys; s++) {
        tn_ref_get_row(l, &a->in[K], key_row(a, b, s, h), w->k + s * a->width);
        tn_ref_get_row(l, &a->in[V], key_row(a, b, s, h), w->v + s * a->width);
    }
}

/* What the dropout multiplies the pair with: 0 or 1 / (1 - p). */
static double drop(const struct attention *a, const struct tn_launch *l, int64_t b, int64_t h, int64_t r,
                   double qpos, double kpos)
{
    const uint32_t *uniform = l->uniform;
    int64_t head, g;

    if (!a->threshold)
        return 1;
    b = a->global_batch[b] + l->micro * a->micro_batch;
    head = a->global_head[h] * a->whole_rep + (a->global_rep ? a->global_rep[r] : 0);
    g = ((b * a->whole_heads * a->whole_rep + head) * a->block + (int64_t)qpos) * a->block + (int64_t)kpos;
    return tn_philox_at(tn_ref_seed(uniform), a->key, uniform[2], (uint64_t)g) >= a->threshold ? a->kept : 0;
}

/* One query against the keys of its head. Scores of keys that it sees are packed in w->score for the
 * log-sum-exp, then walked again in the same order. */
static void forward_query(const struct attention *a, const struct tn_launch *l, int64_t b, int64_t t,
                          int64_t h, int64_t r, struct work *w)
{
    const int64_t row = query_row(a, b, t, h, r), D = a->width;
    int64_t seen = 0;
    double lse;

    tn_ref_get_row(l, &a->in[Q], row, w->q);
    for (int64_t s = 0; s < a->keys; s++)
        if (w->kpos[s] <= w->qpos[t])
            w->score[seen++] = a->scale * tn_ref_dot(w->q, w->k + s * D, D);
    lse = tn_ref_lse(w->score, seen);
    memset(w->row, 0, (size_t)D * sizeof(double));
    seen = 0;
    for (int64_t s = 0; s < a->keys; s++) {
        double keep, p;

        if (!(w->kpos[s] <= w->qpos[t]))
            continue;
        p = exp(w->score[seen++] - lse);
        keep = drop(a, l, b, h, r, w->qpos[t], w->kpos[s]);
        if (keep != 0)
            tn_ref_add(w->row, keep * p, w->v + s * D, D);
    }
    for (int64_t d = 0; d < D; d++)
        tn_ref_put(l, &a->out[0], row, d, w->row[d]);
    tn_ref_put(l, &a->out[1], row, 0, lse);
}

static tn_status forward(void *state, const struct tn_launch *l)
{
    const struct attention *a = state;
    struct work w;

    begin(a, l, &w);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++) {
            load_head(a, l, b, h, &w);
            for (int64_t r = 0; r < a->rep; r++)
                for (int64_t t = 0; t < a->queries; t++)
                    forward_query(a, l, b, t, h, r, &w);
        }
    return TN_OK;
}

/* One query's dq, and its part of dk and dv. */
static void backward_query(const struct attention *a, const struct tn_launch *l, int64_t b, int64_t t,
                           int64_t h, int64_t r, struct work *w)
{
    const int64_t row = query_row(a, b, t, h, r), D = a->width;
    const double lse = tn_ref_get(l, &a->in[LSE], row, 0), delta = tn_ref_get(l, &a->in[DELTA], row, 0);

    tn_ref_get_row(l, &a->in[Q], row, w->q);
    tn_ref_get_row(l, &a->in[DO], row, w->grad);
    memset(w->row, 0, (size_t)D * sizeof(double));
    for (int64_t s = 0; s < a->keys; s++) {
        double keep, p, dp = 0, ds;

        if (!(w->kpos[s] <= w->qpos[t]))
            continue;
        p = exp(a->scale * tn_ref_dot(w->q, w->k + s * D, D) - lse);
        keep = drop(a, l, b, h, r, w->qpos[t], w->kpos[s]);
        if (keep != 0) {
            dp = keep * tn_ref_dot(w->grad, w->v + s * D, D);
            tn_ref_add(w->dv + s * D, keep * p, w->grad, D);
        }
        ds = a->scale * p * (dp - delta);
        tn_ref_add(w->row, ds, w->k + s * D, D);
        tn_ref_add(w->dk + s * D, ds, w->q, D);
    }
    for (int64_t d = 0; d < D; d++)
        tn_ref_put(l, &a->out[0], row, d, w->row[d]);
}

static tn_status backward(void *state, const struct tn_launch *l)
{
    const struct attention *a = state;
    const size_t part = (size_t)(a->keys * a->width) * sizeof(double);
    struct work w;

    begin(a, l, &w);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++) {
            load_head(a, l, b, h, &w);
            memset(w.dk, 0, part), memset(w.dv, 0, part);
            for (int64_t r = 0; r < a->rep; r++)
                for (int64_t t = 0; t < a->queries; t++)
                    backward_query(a, l, b, t, h, r, &w);
            for (int64_t s = 0; s < a->keys; s++)
                for (int64_t d = 0; d < a->width; d++) {
                    tn_ref_put(l, &a->out[1], key_row(a, b, s, h), d, w.dk[s * a->width + d]);
                    tn_ref_put(l, &a->out[2], key_row(a, b, s, h), d, w.dv[s * a->width + d]);
                }
        }
    return TN_OK;
}

static void take_dropout(const struct tn_problem *p, struct attention *a)
{
    const struct tn_operand *q = &p->in[Q];
    const double probability = tn_problem_float(p, "dropout", 0);

    a->global_batch = tn_ref_globals(a, q, 0), a->global_head = tn_ref_globals(a, q, 2);
    a->global_rep = q->rank == 5 ? tn_ref_globals(a, q, 3) : NULL;
    a->micro_batch = tn_problem_int(p, "micro_dim", 0) < 0 ? 0 : q->whole[0];
    a->whole_heads = q->whole[2], a->whole_rep = q->rank == 5 ? q->whole[3] : 1;
    a->block = tn_problem_int(p, "block", 0);
    a->key = (uint32_t)tn_problem_int(p, "key", 0);
    a->threshold = tn_dropout_threshold(probability), a->kept = 1 / (1 - probability);
}

tn_status tn_ref_attention(const struct tn_problem *p, struct tn_kernel *out)
{
    const int back = !strcmp(p->op, "attn_bwd");
    const struct tn_operand *q = &p->in[Q], *k = &p->in[K];
    const uint32_t rows = q->rank - 1;
    struct attention *a;
    struct work w;

    if (!(a = tn_ref_state(sizeof *a)))
        return TN_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n_in; i++)
        tn_ref_input(a, p, i, i == QPOS || i == KPOS ? 1 : i == K || i == V ? 3 : rows, &a->in[i]);
    for (uint32_t i = 0; i < p->n_out; i++)
        tn_ref_output(a, p, i, back && i > 0 ? 3 : rows, &a->out[i]);
    a->batch = q->size[0], a->queries = q->size[1], a->heads = q->size[2];
    a->rep = q->rank == 5 ? q->size[3] : 1;
    a->keys = k->size[1], a->width = k->size[3];
    a->scale = tn_problem_float(p, "scale", 1), a->causal = tn_problem_int(p, "causal", 0);
    take_dropout(p, a);
    return tn_ref_ready(out, a, back ? backward : forward, lay_out(a, NULL, &w));
}
