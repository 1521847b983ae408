/* attn_bwd.c - the gradients of attention, the weights made again from the log-sum-exp.
 *
 * The walk is that of attention.c. For a block of queries and a block of keys: weights p and their gradient
 * ds from four products of tiles, then dq grows by ds·k, and the head's dk and dv, kept in the workspace
 * until all queries of the group have been there, by dsᵀ·q and pᵀ·do. */
#include "attn.h"

struct work {
    float *keys, *values, *key_rows; /* packed: as columns, as columns, as rows */
    float *q, *go;                   /* the block of queries and of do, packed as rows */
    float *q_floats, *go_floats;     /* the same as they lie, if they are not floats */
    float *p, *ds;                   /* [ATTN_QUERIES][ATTN_PITCH] */
    float *dq;                       /* [ATTN_QUERIES][wide] */
    float *dk, *dv;                  /* [keys][wide] */
};

/* Its parts in the floats from base on; how many they are. */
static int64_t lay_out(const struct attn *a, float *base, struct work *w)
{
    int64_t n = 0;

    w->keys = attn_take(base, &n, a->key_rows * a->d);
    w->values = attn_take(base, &n, a->key_rows * a->d);
    w->key_rows = attn_take(base, &n, a->keys * a->wide);
    w->q = attn_take(base, &n, ATTN_QUERIES * a->wide);
    w->go = attn_take(base, &n, ATTN_QUERIES * a->wide);
    w->p = attn_take(base, &n, ATTN_QUERIES * ATTN_PITCH);
    w->ds = attn_take(base, &n, ATTN_QUERIES * ATTN_PITCH);
    w->dq = attn_take(base, &n, ATTN_QUERIES * a->wide);
    w->dk = attn_take(base, &n, a->keys * a->wide);
    w->dv = attn_take(base, &n, a->keys * a->wide);
    w->q_floats = attn_take(base, &n, a->dtype == TN_F32 ? 0 : ATTN_QUERIES * a->d);
    w->go_floats = attn_take(base, &n, a->dtype == TN_F32 ? 0 : ATTN_QUERIES * a->d);
    return n;
}

/* Whole vectors of scores s and of do·v d to weights and their gradient. */
static inline void weights(const struct attn *a, float *s, float *d, float lse, float delta, int64_t n)
{
    const tn_vec scale = tn_splat(a->scale), less = tn_splat(lse), mean = tn_splat(delta);

    for (int64_t j = 0; j < n; j += TN_W) {
        tn_vec p = tn_exp_vec(tn_load(s + j) - less);

        tn_store(s + j, p);
        tn_store(d + j, p * (tn_load(d + j) - mean) * scale);
    }
}

/* The same under dropout. */
static void weights_dropped(const struct attn *a, float *s, float *d, float lse, float delta, int64_t n,
                            const uint32_t *bits)
{
    const float scale = a->scale, kept_by = a->kept;
    const uint32_t threshold = a->threshold;

    n = n / TN_W * TN_W;
    _Pragma("omp simd") for (int64_t j = 0; j < n; j++)
    {
        float p = tn_exp(s[j] - lse), kept = p * kept_by, grad = d[j] * kept_by;
        int keep = bits[j] >= threshold;

        s[j] = keep ? kept : 0.0f;
        d[j] = p * ((keep ? grad : 0.0f) - delta) * scale;
    }
}

static void row(const struct attn_run *r, const struct attn_head *at, const struct work *w, int64_t i,
                int64_t t, int64_t k0, int64_t n)
{
    const struct attn *a = r->a;
    float *s = w->p + i * ATTN_PITCH, *d = w->ds + i * ATTN_PITCH;
    float lse = ((const float *)r->l->buffer[5])[attn_at(&a->lse, at, t)];
    float delta = ((const float *)r->l->buffer[6])[attn_at(&a->delta, at, t)];
    int64_t seen = attn_seen(a, t, k0, n);

    if (lse == -INFINITY) {
        memset(s, 0, (size_t)n * sizeof *s);
        memset(d, 0, (size_t)n * sizeof *d);
        return;
    }
    if (a->drop) {
        uint32_t bits[ATTN_KEYS];

        attn_draw(r, at, t, k0, seen, bits);
        weights_dropped(a, s, d, lse, delta, attn_whole(seen), bits);
    } else {
        weights(a, s, d, lse, delta, attn_whole(seen));
    }
    if (r->qpos) {
        int32_t position = r->qpos[t * a->qpos];
        const int32_t *kpos = r->kpos + k0 * a->kpos;

        for (int64_t j = 0; j < seen; j++) {
            int sees = kpos[j * a->kpos] <= position;

            s[j] = sees ? s[j] : 0.0f;
            d[j] = sees ? d[j] : 0.0f;
        }
    }
}

/* y[j] += Σ_i p[i][j]·x[i], keys j in 0..n, over the queries from the first that sees key j on. Six keys
 * share the queries that see the last of them. */
static void apply_transposed(const struct attn *a, const float *p, int64_t t0, int64_t rows, int64_t k0,
                             int64_t n, const float *x, float *y)
{
    for (int64_t j = 0; j < n; j += TN_MR) {
        int64_t m = TN_MIN(TN_MR, n - j), first = a->causal ? TN_MAX(0, k0 + j - t0) : 0;
        int64_t shared = a->causal ? TN_MIN(rows, TN_MAX(0, k0 + j + m - 1 - t0)) : 0;

        for (int64_t c = 0; c < a->wide; c += TN_NR) {
            const float *panel = x + c * rows;
            tn_vec acc[TN_MR][2];

            tn_tile(m, rows - shared, p + shared * ATTN_PITCH + j, 1, ATTN_PITCH, panel + shared * TN_NR, acc);
            for (int64_t r = 0; r < m; r++) {
                for (int64_t i = first; i < shared; i++)
                    if (k0 + j + r <= t0 + i)
                        attn_add_one(acc[r], p[i * ATTN_PITCH + j + r], panel + i * TN_NR);
                attn_add(y + (j + r) * a->wide + c, acc[r]);
            }
        }
    }
}

/* x is a vector of the workspace, with nothing needed of it afterwards. */
static void put(const struct attn *a, void *to, float *x, int add)
{
    float *y = to;

    if (a->dtype == TN_F32) {
        _Pragma("omp simd") for (int64_t c = 0; c < a->d; c++) y[c] = add ? y[c] + x[c] : x[c];
        return;
    }
    for (int64_t c = 0, n; c < a->d && add; c += n) {
        float old[64];

        n = TN_MIN(64, a->d - c);
        tn_half_load(a->dtype, attn_vector(a, to, c), 1, n, old);
        for (int64_t i = 0; i < n; i++)
            x[c + i] += old[i];
    }
    tn_half_store(a->dtype, x, 1, a->d, to);
}

static void query_block(const struct attn_run *r, const struct attn_head *at, const struct work *w,
                        int64_t t0, int64_t rows)
{
    const struct attn *a = r->a;
    void *q_low = attn_vector(a, r->l->buffer[0], attn_at(&a->q, at, t0));
    void *go_low = attn_vector(a, r->l->buffer[7], attn_at(&a->o, at, t0));
    int64_t last = attn_seen(a, t0 + rows - 1, 0, a->keys), q_step = a->q.t, go_step = a->o.t;
    const float *q = attn_floats(a, q_low, rows, w->q_floats, &q_step);
    const float *go = attn_floats(a, go_low, rows, w->go_floats, &go_step);

    attn_pack_rows(a, q_low, a->q.t, rows, w->q);
    attn_pack_rows(a, go_low, a->o.t, rows, w->go);
    memset(w->dq, 0, (size_t)(rows * a->wide) * sizeof *w->dq);
    for (int64_t k0 = 0; k0 < last; k0 += ATTN_KEYS) {
        int64_t n = TN_MIN(ATTN_KEYS, last - k0);

        attn_scores(a, q, q_step, t0, rows, k0, n, w->keys + k0 * a->d, a->scale, w->p);
        attn_scores(a, go, go_step, t0, rows, k0, n, w->values + k0 * a->d, 1.0f, w->ds);
        for (int64_t i = 0; i < rows; i++)
            row(r, at, w, i, t0 + i, k0, n);
        attn_apply(a, w->ds, t0, rows, k0, n, w->key_rows + k0 * TN_NR, a->keys, w->dq);
        apply_transposed(a, w->ds, t0, rows, k0, n, w->q, w->dk + k0 * a->wide);
        apply_transposed(a, w->p, t0, rows, k0, n, w->go, w->dv + k0 * a->wide);
    }
    for (int64_t i = 0; i < rows; i++)
        put(a, attn_vector(a, r->l->buffer[8], attn_at(&a->dq, at, t0 + i)), w->dq + i * a->wide,
            a->accumulate & 1);
}

static void run_item(void *arg, uint32_t slot, int64_t item)
{
    const struct attn_run *r = arg;
    const struct attn *a = r->a;
    struct attn_head at = {item / a->heads, item % a->heads, 0};
    void *k = attn_vector(a, r->l->buffer[1], attn_at(&a->k, &at, 0));
    struct work w;

    lay_out(a, (float *)r->l->workspace + slot * a->scratch, &w);
    attn_pack_columns(a, k, a->k.t, a->keys, w.keys);
    attn_pack_columns(a, attn_vector(a, r->l->buffer[2], attn_at(&a->v, &at, 0)), a->v.t, a->keys, w.values);
    attn_pack_rows(a, k, a->k.t, a->keys, w.key_rows);
    memset(w.dk, 0, (size_t)(a->keys * a->wide) * sizeof *w.dk);
    memset(w.dv, 0, (size_t)(a->keys * a->wide) * sizeof *w.dv);
    for (; at.r < a->rep; at.r++)
        for (int64_t t0 = 0; t0 < a->queries; t0 += ATTN_QUERIES)
            query_block(r, &at, &w, t0, TN_MIN(ATTN_QUERIES, a->queries - t0));
    at.r = 0;
    for (int64_t s = 0; s < a->keys; s++) {
        put(a, attn_vector(a, r->l->buffer[9], attn_at(&a->dk, &at, s)), w.dk + s * a->wide,
            a->accumulate & 2);
        put(a, attn_vector(a, r->l->buffer[10], attn_at(&a->dv, &at, s)), w.dv + s * a->wide,
            a->accumulate & 4);
    }
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

tn_status tn_cpu_prepare_attn_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    struct attn a = {.accumulate = p->accumulate};
    struct work w;
    int grouped = p->in[0].rank == 5;

    if (p->n_in != 8 || p->n_out != 3 || !tn_cpu_attn_prepare(p, &a) ||
        !tn_cpu_attn_stride(&p->in[5], grouped, 0, &a.lse) ||
        !tn_cpu_attn_stride(&p->in[6], grouped, 0, &a.delta) ||
        !tn_cpu_attn_stride(&p->in[7], grouped, 1, &a.o) ||
        !tn_cpu_attn_stride(&p->out[0], grouped, 1, &a.dq) || !tn_cpu_attn_stride(&p->out[1], 0, 1, &a.dk) ||
        !tn_cpu_attn_stride(&p->out[2], 0, 1, &a.dv) || p->in[7].dtype != a.dtype ||
        p->out[0].dtype != a.dtype || p->out[1].dtype != a.dtype || p->out[2].dtype != a.dtype)
        return TN_DECLINED;
    a.scratch = lay_out(&a, NULL, &w);
    out->launch = launch, out->workspace = (uint64_t)a.scratch * a.threads * sizeof(float);
    return tn_keep(out, &a, sizeof a, p->op);
}
