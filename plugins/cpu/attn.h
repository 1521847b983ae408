/* attn.h - what attention's two directions share: geometry, packing, masks.
 *
 * One item is a batch entry and a key head: its keys and values are packed once and serve all query heads of
 * the group. Queries go in blocks of 96 rows, keys in blocks of KEYS; scores exist for one such block at a
 * time, in the thread's own part of the workspace. Under causal a tile that lies wholly above the diagonal is
 * never touched, and near the diagonal no weight of 0 is multiplied with what is not seen. Masked scores are
 * set. What lies behind the keys that a query sees is computed with and never used. Vectors in bf16 and fp16 become
 * floats where they are packed, and blocks of queries beside them. */
#ifndef TENON_CPU_ATTN_H
#define TENON_CPU_ATTN_H
#include "cpu.h"
#include "half.h"
#include "tile.h"
#include "vexp.h"
#include <tenon/philox.h>

#define ATTN_QUERIES 96             /* a multiple of TN_MR */
#define ATTN_KEYS 512               /* a multiple of TN_NR */
#define ATTN_PITCH (ATTN_KEYS + 16) /* of a row of scores: off the powers of two, against set conflicts */

struct attn_stride {
    int64_t b, t, h, r; /* batch, position, head, member of the group */
};
struct attn {
    int64_t batch, heads, rep, queries, keys, d;
    int64_t wide;                       /* d in whole panels */
    int64_t key_rows;                   /* keys in whole panels */
    struct attn_stride q, k, v, o, lse; /* backward: o is do */
    struct attn_stride delta, dq, dk, dv;
    int64_t qpos, kpos; /* strides */
    float scale;
    uint32_t causal, threads, accumulate;
    uint32_t dtype;                /* of all vectors: q, k, v, o and their gradients */
    int64_t scratch;               /* floats per thread */
    uint32_t drop, key, threshold; /* drop: is there any */
    float kept;
    int64_t first_b, per_micro, first_h, first_r, whole_h, whole_r, block;
};
struct attn_run {
    const struct attn *a;
    const struct tn_launch *l;
    const int32_t *qpos, *kpos; /* NULL: 0, 1, 2, ... */
};
struct attn_head { /* one query head of one item */
    int64_t b, h, r;
};

static inline int64_t attn_at(const struct attn_stride *s, const struct attn_head *i, int64_t t)
{
    return i->b * s->b + t * s->t + i->h * s->h + i->r * s->r;
}

/* The next n floats of a thread's scratch, in whole cache lines; NULL where base is, to count them. */
static inline float *attn_take(float *base, int64_t *used, int64_t n)
{
    float *part = base ? base + *used : NULL;

    *used += TN_ROUND_UP(n, 16);
    return part;
}

/* Element at of an operand that holds vectors. */
static inline void *attn_vector(const struct attn *a, void *buffer, int64_t at)
{
    return (char *)buffer + at * tn_width(a->dtype);
}

/* Rows x[i·step + 0..d) as the right factor of a product over i: panels of TN_NR columns,
 * panel[rows][TN_NR]. */
static inline void attn_pack_rows(const struct attn *a, void *x, int64_t step, int64_t rows, float *panel)
{
    for (int64_t c = 0; c < a->d; c += TN_NR)
        for (int64_t i = 0; i < rows; i++, panel += TN_NR) {
            int64_t n = TN_MIN(TN_NR, a->d - c);

            if (a->dtype == TN_F32 && n == TN_NR) {
                const float *from = (const float *)x + i * step + c;

                tn_store(panel, tn_load(from)), tn_store(panel + TN_W, tn_load(from + TN_W));
                continue;
            }
            tn_half_load(a->dtype, attn_vector(a, x, i * step + c), 1, n, panel);
            for (int64_t k = n; k < TN_NR; k++)
                panel[k] = 0;
        }
}
/* The same rows as the right factor of a product over d: rows become columns, panel[d][TN_NR]. Squares that are
 * not whole, or not of floats, are put together first. */
static inline void attn_pack_columns(const struct attn *a, void *x, int64_t step, int64_t rows, float *panel)
{
    for (int64_t i = 0; i < TN_ROUND_UP(rows, TN_NR); i += TN_W)
        for (int64_t k = 0; k < a->d; k += TN_W) {
            float *y = panel + i / TN_NR * TN_NR * a->d + k * TN_NR + i % TN_NR, square[TN_W * TN_W];
            int64_t n = TN_MIN(TN_W, a->d - k), m = TN_MIN(TN_W, rows - i);

            if (a->dtype == TN_F32 && n == TN_W && m == TN_W) {
                tn_transpose((const float *)x + i * step + k, step, TN_W, y, TN_NR);
                continue;
            }
            memset(square, 0, sizeof square);
            for (int64_t r = 0; r < m; r++)
                tn_half_load(a->dtype, attn_vector(a, x, (i + r) * step + k), 1, n, square + r * TN_W);
            tn_transpose(square, TN_W, n, y, TN_NR);
        }
}
/* The same rows as floats, *step apart: where they lie, or in room. */
static inline const float *attn_floats(const struct attn *a, void *x, int64_t rows, float *room,
                                       int64_t *step)
{
    if (a->dtype == TN_F32)
        return x;
    for (int64_t i = 0; i < rows; i++)
        tn_half_load(a->dtype, attn_vector(a, x, i * *step), 1, a->d, room + i * a->d);
    *step = a->d;
    return room;
}

/* How many keys of the block from k0 on (n of them) query t may see, where positions count up. */
static inline int64_t attn_seen(const struct attn *a, int64_t t, int64_t k0, int64_t n)
{
    return a->causal ? TN_MAX(0, TN_MIN(n, t + 1 - k0)) : n;
}

/* So many numbers in whole vectors. Rows of scores have room for them, so loops over a row need no rest. */
static inline int64_t attn_whole(int64_t n)
{
    return TN_ROUND_UP(n, TN_W);
}

/* s = exp(s - max) over whole vectors; the sum. */
static inline float attn_exponentials(float *s, int64_t n, float max)
{
    tn_vec sum = {0}, less = tn_splat(max);

    for (int64_t j = 0; j < n; j += TN_W) {
        tn_vec x = tn_exp_vec(tn_load(s + j) - less);

        tn_store(s + j, x);
        sum += x;
    }
    return tn_lanes_sum(sum);
}

/* y[i][j] = scale · q row i · key j, rows 0..rows of a query block from t0 on, n keys from k0 on, tiles in sight
 * only. panels: the keys as columns, from k0 on. */
static inline void attn_scores(const struct attn *a, const float *q, int64_t step, int64_t t0, int64_t rows,
                               int64_t k0, int64_t n, const float *panels, float scale, float *y)
{
    tn_vec factor = tn_splat(scale);

    for (int64_t j = 0; j < n; j += TN_NR)
        for (int64_t i = 0; i < rows; i += TN_MR) {
            int64_t m = TN_MIN(TN_MR, rows - i);
            tn_vec acc[TN_MR][2];

            if (a->causal && k0 + j > t0 + i + m - 1)
                continue;
            tn_tile(m, a->d, q + i * step, step, 1, panels + j * a->d, acc);
            for (int64_t r = 0; r < m; r++) {
                tn_store(y + (i + r) * ATTN_PITCH + j, acc[r][0] * factor);
                tn_store(y + (i + r) * ATTN_PITCH + j + TN_W, acc[r][1] * factor);
            }
        }
}

/* out [2 vectors] += acc */
static inline void attn_add(float *out, const tn_vec acc[2])
{
    tn_store(out, tn_load(out) + acc[0]);
    tn_store(out + TN_W, tn_load(out + TN_W) + acc[1]);
}

/* acc += weight·x, one row of a panel: for what only some of six rows see. */
static inline void attn_add_one(tn_vec acc[2], float weight, const float *x)
{
    tn_vec w = tn_splat(weight);

    acc[0] = tn_fma(w, tn_load(x), acc[0]);
    acc[1] = tn_fma(w, tn_load(x + TN_W), acc[1]);
}

/* y[i] += p[i][0..n) · panels, rows of `wide` floats. Six rows share the keys that the first of them sees. */
static inline void attn_apply(const struct attn *a, const float *p, int64_t t0, int64_t rows, int64_t k0,
                              int64_t n, const float *panels, int64_t panel_rows, float *y)
{
    for (int64_t i = 0; i < rows; i += TN_MR) {
        int64_t m = TN_MIN(TN_MR, rows - i), shared = attn_seen(a, t0 + i, k0, n);
        const float *row = p + i * ATTN_PITCH;

        for (int64_t c = 0; c < a->wide; c += TN_NR) {
            const float *x = panels + c * panel_rows;
            tn_vec acc[TN_MR][2];

            tn_tile(m, shared, row, ATTN_PITCH, 1, x, acc);
            for (int64_t r = 0; r < m; r++) {
                for (int64_t j = shared; j < attn_seen(a, t0 + i + r, k0, n); j++)
                    attn_add_one(acc[r], row[r * ATTN_PITCH + j], x + j * TN_NR);
                attn_add(y + (i + r) * a->wide + c, acc[r]);
            }
        }
    }
}

/* Marks the keys from k0 on that query t does not see, by position: their scores become −∞. */
static inline void attn_mask(const struct attn_run *r, int64_t t, int64_t k0, int64_t n, float *s)
{
    int32_t position = r->qpos[t * r->a->qpos];
    const int32_t *kpos = r->kpos + k0 * r->a->kpos;

    for (int64_t j = 0; j < n; j++)
        s[j] = kpos[j * r->a->kpos] <= position ? s[j] : -INFINITY;
}

/* The numbers that decide what dropout keeps of query t's n keys from k0 on, in whole vectors. */
static inline void attn_draw(const struct attn_run *r, const struct attn_head *i, int64_t t, int64_t k0,
                             int64_t n, uint32_t *bits)
{
    const struct attn *a = r->a;
    int64_t b = a->first_b + i->b + r->l->micro * a->per_micro;
    int64_t head = (a->first_h + i->h) * a->whole_r + a->first_r + i->r;
    int64_t position = r->qpos ? r->qpos[t * a->qpos] : t;
    int64_t row = ((b * a->whole_h * a->whole_r + head) * a->block + position) * a->block;

    if (!r->kpos)
        tn_cpu_philox_run(r->l->uniform, a->key, (uint64_t)(row + k0), attn_whole(n), bits);
    for (int64_t j = n; j < attn_whole(n) && r->kpos; j++)
        bits[j] = 0;
    if (r->kpos)
        for (int64_t j = 0; j < n; j++)
            tn_cpu_philox_run(r->l->uniform, a->key, (uint64_t)(row + r->kpos[(k0 + j) * a->kpos]), 1,
                              bits + j);
}

#define ATTN_FEW 4                               /* queries that are not worth packing keys for */
/* attn_few.c: the kernel for so few queries, over positions that are read. TN_DECLINED: it is another's. */
tn_status tn_cpu_attn_few(struct attn *a, const char *op, struct tn_kernel *out);
/* Fills all that both directions know; 0 if the operands do not fit. attention.c. */
int tn_cpu_attn_prepare(const struct tn_problem *p, struct attn *a);
int tn_cpu_attn_stride(const struct tn_operand *o, int grouped, int vectors, struct attn_stride *s);
#endif
