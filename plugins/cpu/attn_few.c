/* attn_few.c - attention of a few queries over many keys: one token after the other, the keys in a cache.
 *
 * Nothing is packed: keys and values are read once, where they lie, as far back as the query sees. What lies behind
 * the last key in sight is never touched, so a cache may be longer than what is in it; among the others a masked one
 * is skipped, not multiplied with 0. */
#include "attn.h"
#include "vsum.h"

#define ALONE 32768                              /* multiplications that are not worth a second thread */

struct room {
    float *score, *o, *q, *row;                  /* [keys], [d], and as floats: the query, a key or value */
};

static int64_t lay_out(const struct attn *a, float *base, struct room *w)
{
    int64_t n = 0;

    w->score = attn_take(base, &n, attn_whole(a->keys));
    w->o = attn_take(base, &n, a->d);
    w->q = attn_take(base, &n, a->d);
    w->row = attn_take(base, &n, a->d);
    return n;
}

static const float *as_floats(const struct attn *a, const void *x, float *room)
{
    if (a->dtype == TN_F32)
        return x;
    tn_half_load(a->dtype, x, 1, a->d, room);
    return room;
}

static float dot(const float *x, const float *y, int64_t n)
{
    tn_vec a = {0}, b = {0};
    float rest = 0;
    int64_t i = 0;

    for (; i + 2 * TN_W <= n; i += 2 * TN_W) {
        a = tn_fma(tn_load(x + i), tn_load(y + i), a);
        b = tn_fma(tn_load(x + i + TN_W), tn_load(y + i + TN_W), b);
    }
    for (; i + TN_W <= n; i += TN_W)
        a = tn_fma(tn_load(x + i), tn_load(y + i), a);
    for (; i < n; i++)
        rest += x[i] * y[i];
    return tn_lanes_sum(a + b) + rest;
}

/* o += weight·x */
static void add(float *o, float weight, const float *x, int64_t n)
{
    tn_vec w = tn_splat(weight);
    int64_t i = 0;

    for (; i + TN_W <= n; i += TN_W)
        tn_store(o + i, tn_fma(w, tn_load(x + i), tn_load(o + i)));
    for (; i < n; i++)
        o[i] += weight * x[i];
}

static int sees(const struct attn_run *r, int64_t t, int64_t j)
{
    return r->kpos[j * r->a->kpos] <= r->qpos[t * r->a->qpos];
}

/* Scores of the keys 0..n, and their largest. */
static float score(const struct attn_run *r, const struct attn_head *at, int64_t t, int64_t n, const struct room *w)
{
    const struct attn *a = r->a;
    const float *q = as_floats(a, attn_vector(a, r->l->buffer[0], attn_at(&a->q, at, t)), w->q);
    float max = -INFINITY;

    for (int64_t j = 0; j < n; j++) {
        const void *key = attn_vector(a, r->l->buffer[1], attn_at(&a->k, at, j));

        w->score[j] = sees(r, t, j) ? dot(q, as_floats(a, key, w->row), a->d) * a->scale : -INFINITY;
        max = w->score[j] > max ? w->score[j] : max;
    }
    for (int64_t j = n; j < attn_whole(n); j++)
        w->score[j] = -INFINITY;
    return max == -INFINITY && n ? tn_max(w->score, n) : max;        /* nothing in sight, or NaN only */
}

static void query(const struct attn_run *r, const struct attn_head *at, int64_t t, const struct room *w)
{
    const struct attn *a = r->a;
    int64_t n = a->keys;
    float max, sum = 0, *lse = (float *)r->l->buffer[6] + attn_at(&a->lse, at, t);
    void *y = attn_vector(a, r->l->buffer[5], attn_at(&a->o, at, t));

    while (n && !sees(r, t, n - 1))
        n--;
    max = score(r, at, t, n, w);
    memset(w->o, 0, (size_t)a->d * sizeof *w->o);
    if (max != -INFINITY)
        sum = attn_exponentials(w->score, attn_whole(n), max);
    for (int64_t j = 0; j < n && max != -INFINITY; j++)
        if (sees(r, t, j))
            add(w->o, w->score[j], as_floats(a, attn_vector(a, r->l->buffer[2], attn_at(&a->v, at, j)), w->row), a->d);
    for (int64_t c = 0; c < a->d && max != -INFINITY; c++)
        w->o[c] /= sum;
    tn_half_store(a->dtype, w->o, 1, a->d, y);
    *lse = max == -INFINITY ? -INFINITY : max + tn_log(sum);
}

static void run_item(void *arg, uint32_t slot, int64_t item)
{
    const struct attn_run *r = arg;
    struct attn_head at = {item / r->a->heads, item % r->a->heads, 0};
    struct room w;

    lay_out(r->a, (float *)r->l->workspace + slot * r->a->scratch, &w);
    for (; at.r < r->a->rep; at.r++)
        for (int64_t t = 0; t < r->a->queries; t++)
            query(r, &at, t, &w);
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct attn *a = state;
    struct attn_run r = {a, l, l->buffer[3], l->buffer[4]};
    int64_t items = a->batch * a->heads;

    if (items * a->rep * a->queries * a->keys * a->d > ALONE)
        tn_cpu_share(items, a->threads, run_item, &r);
    else
        for (int64_t i = 0; i < items; i++)
            run_item(&r, 0, i);
    return TN_OK;
}

tn_status tn_cpu_attn_few(struct attn *a, const char *op, struct tn_kernel *out)
{
    struct room w;

    if (a->causal || a->drop || a->queries > ATTN_FEW)
        return TN_DECLINED;
    a->scratch = lay_out(a, NULL, &w);
    out->launch = launch, out->workspace = (uint64_t)a->scratch * a->threads * sizeof(float);
    return tn_keep(out, a, sizeof *a, op);
}
