/* attention.c - softmax(q·kᵀ)·v by blocks of keys, with a running maximum and sum.
 *
 * For each block of queries: scores against one block of keys, exponentials against the maximum so far, what
 * was summed before is scaled down when the maximum grows. With up to 512 keys there is one block and nothing
 * to scale. */
#include "attn.h"
#include "vsum.h"

struct work {
    float *keys, *values; /* packed */
    float *p, *o;         /* scores of a block; o [ATTN_QUERIES][wide], not yet divided */
    float *max, *sum;
    float *q; /* the block's queries as floats, if they are not */
};

/* Its parts in the floats from base on; how many they are. */
static int64_t lay_out(const struct attn *a, float *base, struct work *w)
{
    int64_t n = 0;

    w->keys = attn_take(base, &n, a->key_rows * a->d);
    w->values = attn_take(base, &n, a->keys * a->wide);
    w->p = attn_take(base, &n, ATTN_QUERIES * ATTN_PITCH);
    w->o = attn_take(base, &n, ATTN_QUERIES * a->wide);
    w->max = attn_take(base, &n, ATTN_QUERIES);
    w->sum = attn_take(base, &n, ATTN_QUERIES);
    w->q = attn_take(base, &n, a->dtype == TN_F32 ? 0 : ATTN_QUERIES * a->d);
    return n;
}

/* The maximum of whole vectors of scores. NaN does not count: it shows in the exponentials. */
static inline float largest(const float *s, int64_t n)
{
    tn_vec lanes = tn_splat(-INFINITY);

    for (int64_t j = 0; j < n; j += TN_W) {
        tn_vec x = tn_load(s + j);

        lanes = tn_select(x > lanes, x, lanes);
    }
    return tn_lanes_max(lanes);
}

static void drop(const struct attn_run *r, const struct attn_head *i, int64_t t, int64_t k0, int64_t n,
                 float *s)
{
    uint32_t bits[ATTN_KEYS];

    attn_draw(r, i, t, k0, n, bits);
    n = attn_whole(n) / TN_W * TN_W;
    for (int64_t j = 0; j < n; j++) {
        float kept = s[j] * r->a->kept;

        s[j] = bits[j] >= r->a->threshold ? kept : 0.0f;
    }
}

/* Row i of the block, query t: scores to weights, against the maximum of all keys so far. */
static void soften(const struct attn_run *r, const struct attn_head *at, const struct work *w, int64_t i,
                   int64_t t, int64_t k0, int64_t n)
{
    float *s = w->p + i * ATTN_PITCH, old = w->max[i], max, shrink;
    int64_t seen = attn_seen(r->a, t, k0, n), whole = attn_whole(seen);

    for (int64_t j = seen; j < whole; j++)
        s[j] = -INFINITY;
    if (r->qpos)
        attn_mask(r, t, k0, seen, s);
    max = largest(s, whole);
    if (max == -INFINITY && seen)
        max = tn_max(s, seen);                   /* nothing in sight, or NaN only */
    max = max > old || max != max ? max : old;
    if (max == -INFINITY) {
        memset(s, 0, (size_t)n * sizeof *s);
        return;
    }
    shrink = old == max || !k0 ? 1.0f : tn_exp(old - max);
    w->max[i] = max;
    w->sum[i] = w->sum[i] * shrink + attn_exponentials(s, whole, max);
    if (r->a->drop)
        drop(r, at, t, k0, seen, s);
    if (shrink != 1.0f)
        for (int64_t c = 0; c < r->a->wide; c++)
            w->o[i * r->a->wide + c] *= shrink;
}

static void finish(const struct attn_run *r, const struct attn_head *at, const struct work *w, int64_t t0,
                   int64_t rows)
{
    const struct attn *a = r->a;
    float lse[ATTN_QUERIES];

    for (int64_t i = 0; i < ATTN_QUERIES; i++)
        lse[i] = w->max[i] == -INFINITY ? -INFINITY : w->max[i] + tn_log(w->sum[i]);
    for (int64_t i = 0; i < rows; i++) {
        void *o = attn_vector(a, r->l->buffer[5], attn_at(&a->o, at, t0 + i));
        float *y = a->dtype == TN_F32 ? o : w->o + i * a->wide;
        float inverse = w->max[i] == -INFINITY ? 0.0f : 1.0f / w->sum[i];

        _Pragma("omp simd") for (int64_t c = 0; c < a->d; c++) y[c] = w->o[i * a->wide + c] * inverse;
        if (a->dtype != TN_F32)
            tn_half_store(a->dtype, y, 1, a->d, o);
        ((float *)r->l->buffer[6])[attn_at(&a->lse, at, t0 + i)] = lse[i];
    }
}

static void query_block(const struct attn_run *r, const struct attn_head *at, const struct work *w,
                        int64_t t0, int64_t rows)
{
    const struct attn *a = r->a;
    int64_t step = a->q.t;
    const float *q =
        attn_floats(a, attn_vector(a, r->l->buffer[0], attn_at(&a->q, at, t0)), rows, w->q, &step);
    int64_t last = attn_seen(a, t0 + rows - 1, 0, a->keys);

    memset(w->o, 0, (size_t)(rows * a->wide) * sizeof *w->o);
    for (int64_t i = 0; i < ATTN_QUERIES; i++)
        w->max[i] = -INFINITY, w->sum[i] = 0;
    for (int64_t k0 = 0; k0 < last; k0 += ATTN_KEYS) {
        int64_t n = TN_MIN(ATTN_KEYS, last - k0);

        attn_scores(a, q, step, t0, rows, k0, n, w->keys + k0 * a->d, a->scale, w->p);
        for (int64_t i = 0; i < rows; i++)
            soften(r, at, w, i, t0 + i, k0, n);
        attn_apply(a, w->p, t0, rows, k0, n, w->values + k0 * TN_NR, a->keys, w->o);
    }
    finish(r, at, w, t0, rows);
}

static void run_item(void *arg, uint32_t slot, int64_t item)
{
    const struct attn_run *r = arg;
    const struct attn *a = r->a;
    struct attn_head at = {item / a->heads, item % a->heads, 0};
    struct work w;

    lay_out(a, (float *)r->l->workspace + slot * a->scratch, &w);
    attn_pack_columns(a, attn_vector(a, r->l->buffer[1], attn_at(&a->k, &at, 0)), a->k.t, a->keys, w.keys);
    attn_pack_rows(a, attn_vector(a, r->l->buffer[2], attn_at(&a->v, &at, 0)), a->v.t, a->keys, w.values);
    for (; at.r < a->rep; at.r++)
        for (int64_t t0 = 0; t0 < a->queries; t0 += ATTN_QUERIES)
            query_block(r, &at, &w, t0, TN_MIN(ATTN_QUERIES, a->queries - t0));
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct attn *a = state;
    struct attn_run r = {a, l, NULL, NULL};

    if (!a->causal)
        r.qpos = l->buffer[3], r.kpos = l->buffer[4];
    tn_cpu_share(a->batch * a->heads, a->threads, run_item, &r);
    return TN_OK;
}

/* vectors: the last dim is head_dim, of unit stride; else numbers in fp32. */
int tn_cpu_attn_stride(const struct tn_operand *o, int grouped, int vectors, struct attn_stride *s)
{
    uint32_t rank = 3 + (grouped ? 1 : 0) + (vectors ? 1 : 0);

    if (o->rank != rank || (o->dtype != TN_F32 && !(vectors && tn_is_half(o->dtype))) ||
        (vectors && o->size[rank - 1] != 1 && o->stride[rank - 1] != 1))
        return 0;
    *s = (struct attn_stride){o->stride[0], o->stride[1], o->stride[2], grouped ? o->stride[3] : 0};
    return 1;
}

static int is_plain(const struct tn_operand *o, uint32_t d)
{
    return !o->index || !o->index[d];
}

static int prepare_dropout(const struct tn_problem *p, struct attn *a)
{
    const struct tn_operand *q = &p->in[0];
    double rate = tn_problem_float(p, "dropout", 0);

    a->threshold = tn_dropout_threshold(rate), a->drop = a->threshold != 0,
    a->kept = (float)(1.0 / (1.0 - rate));
    if (!a->drop)
        return 1;
    a->key = (uint32_t)tn_problem_int(p, "key", 0), a->block = tn_problem_int(p, "block", 0);
    a->first_b = q->origin[0], a->per_micro = tn_problem_int(p, "micro_dim", 0) < 0 ? 0 : q->whole[0];
    a->first_h = q->origin[2], a->whole_h = q->whole[2], a->whole_r = 1;
    if (q->rank == 5)
        a->first_r = q->origin[3], a->whole_r = q->whole[3];
    return is_plain(q, 0) && is_plain(q, 2) && (q->rank != 5 || is_plain(q, 3));
}

int tn_cpu_attn_prepare(const struct tn_problem *p, struct attn *a)
{
    const struct tn_operand *q = &p->in[0], *k = &p->in[1];
    int grouped = q->rank == 5;

    if ((q->rank != 4 && !grouped) || p->in[3].rank != 1 || p->in[4].rank != 1 || p->in[3].dtype != TN_I32 ||
        p->in[4].dtype != TN_I32 || !tn_cpu_attn_stride(q, grouped, 1, &a->q) ||
        !tn_cpu_attn_stride(k, 0, 1, &a->k) || !tn_cpu_attn_stride(&p->in[2], 0, 1, &a->v))
        return 0;
    a->dtype = q->dtype;
    if (k->dtype != a->dtype || p->in[2].dtype != a->dtype)
        return 0;
    a->batch = q->size[0], a->queries = q->size[1], a->heads = q->size[2], a->rep = grouped ? q->size[3] : 1;
    a->keys = k->size[1], a->d = k->size[3];
    a->wide = TN_ROUND_UP(a->d, TN_NR), a->key_rows = TN_ROUND_UP(a->keys, TN_NR);
    a->qpos = p->in[3].stride[0], a->kpos = p->in[4].stride[0];
    a->scale = (float)tn_problem_float(p, "scale", 1), a->causal = tn_problem_int(p, "causal", 0) != 0;
    a->threads = tn_host->threads();
    return prepare_dropout(p, a);
}

tn_status tn_cpu_prepare_attention(const struct tn_problem *p, struct tn_kernel *out)
{
    struct attn a = {0};
    struct work w;
    int grouped = p->in[0].rank == 5;
    tn_status few;

    if (p->accumulate || p->n_in != 5 || p->n_out != 2 || !tn_cpu_attn_prepare(p, &a) ||
        !tn_cpu_attn_stride(&p->out[0], grouped, 1, &a.o) ||
        !tn_cpu_attn_stride(&p->out[1], grouped, 0, &a.lse) || p->out[0].dtype != a.dtype)
        return TN_DECLINED;
    if ((few = tn_cpu_attn_few(&a, p->op, out)) != TN_DECLINED)
        return few;
    a.scratch = lay_out(&a, NULL, &w);
    out->launch = launch, out->workspace = (uint64_t)a.scratch * a.threads * sizeof(float);
    return tn_keep(out, &a, sizeof a, p->op);
}
