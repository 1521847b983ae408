/* head.c - the last linear layer and the softmax statistics, the logits never whole.
 *
 * A chunk of rows at a time: logits = x·wᵀ into the workspace, there the statistics, or in backward the
 * gradient by the logits and from it dx and the chunk's share of dw; head_train does both with the same logits
 * and the same exponentials. Chunks are as long as 13 M logits allow,
 * from 64 to 1024 rows: the longer, the fewer passes over w and dw. w may be a part of the vocabulary from
 * entry `first` on. Where x or w is bf16 or fp16, the rows of a chunk and a panel of w at a time are copied
 * in fp32. */
#include "cpu.h"
#include "half.h"
#include "softmax.h"

#define LOGITS 13000000 /* floats of the workspace, about */
#define PANEL (1 << 20) /* floats of a panel of w, about */

struct head {
    int64_t rows, c, v, chunk, first;
    int64_t x, w, index, lse, dlse, dz, dx, dw; /* steps between rows */
    int64_t z;
    int64_t room;            /* floats for a matrix product */
    int64_t panel;           /* entries of w at a time: all of them if it is fp32 */
    uint32_t accumulate;     /* bit 0 dx, bit 1 dw */
    uint32_t x_type, w_type; /* dx is as x */
};
/* Parts of the workspace; those behind the logits only where something is not fp32. */
struct work {
    float *logits, *x, *dx, *panel, *room;
};
struct run {
    const struct head *h;
    const int32_t *index;
    const float *dlse, *dz;
    float *logits, *lse, *z;
    int64_t row; /* first row of the chunk */
};

static void statistics(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;

    for (int64_t i = lo; i < hi; i++) {
        const float *x = r->logits + i * r->h->v;
        int64_t row = r->row + i, index = r->index[row * r->h->index], at = index - r->h->first;

        r->lse[row * r->h->lse] = tn_log_sum_exp(x, r->h->v);
        r->z[row * r->h->z] = index >= 0 && at >= 0 && at < r->h->v ? x[at] : 0.0f;
    }
}

/* Logits to their gradient, in place. */
static void gradient(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;

    for (int64_t i = lo; i < hi; i++) {
        float *x = r->logits + i * r->h->v;
        int64_t row = r->row + i, index = r->index[row * r->h->index], at = index - r->h->first;
        float lse = r->lse[row * r->h->lse], dlse = r->dlse[row * r->h->dlse];

        for (int64_t k = 0; k < r->h->v; k++)
            x[k] = dlse * tn_exp(x[k] - lse);
        if (index >= 0 && at >= 0 && at < r->h->v)
            x[at] += r->dz[row * r->h->dz];
    }
}

/* x = exp(x - max); the sum. */
static double exponentials(float *x, float max, int64_t n)
{
    TN_SUM_OVER(x[i] = tn_exp(x[i] - max));
}

/* Both at once: the exponentials against the row's maximum are those of the sum and of the gradient. */
static void statistics_and_gradient(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    int64_t v = r->h->v;

    for (int64_t i = lo; i < hi; i++) {
        float *x = r->logits + i * v, max = tn_max(x, v), factor;
        int64_t row = r->row + i, index = r->index[row * r->h->index], at = index - r->h->first;
        int here = index >= 0 && at >= 0 && at < v;
        float z = here ? x[at] : 0.0f;
        double sum = exponentials(x, max, v);

        r->lse[row * r->h->lse] = max == -INFINITY ? max : (float)((double)max + log(sum));
        r->z[row * r->h->z] = z;
        factor = (float)(r->dlse[row * r->h->dlse] / sum);
        for (int64_t k = 0; k < v; k++)
            x[k] *= factor;
        if (here)
            x[at] += r->dz[row * r->h->dz];
    }
}

/* --- copies in fp32 */
struct rows { /* of width c */
    uint32_t dtype;
    int64_t c, step; /* step: between the low ones */
    char *low;
    float *wide;
    int back;
};

static void copy_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct rows *r = arg;

    for (int64_t i = lo; i < hi; i++)
        if (r->back)
            tn_half_store(r->dtype, r->wide + i * r->c, 1, r->c, r->low + 2 * i * r->step);
        else
            tn_half_load(r->dtype, r->low + 2 * i * r->step, 1, r->c, r->wide + i * r->c);
}

static void copy(const struct rows *r, int64_t n)
{
    tn_host->parallel(n, TN_MAX(1, 32768 / r->c), copy_rows, (void *)(uintptr_t)r);
}

/* Rows first.. of x or dx as floats, their distance in *ld: in place, or in room. load 0: they will be
 * written. */
static float *as_floats(const struct head *h, void *x, int64_t step, int64_t first, int64_t n, int load,
                        float *room, int64_t *ld)
{
    struct rows r = {h->x_type, h->c, step, (char *)x + 2 * first * step, room, 0};

    *ld = h->c;
    if (h->x_type == TN_F32) {
        *ld = step;
        return (float *)x + first * step;
    }
    if (load)
        copy(&r, n);
    return room;
}

/* Entries v0.. of w. */
static const float *panel_of(const struct head *h, void *w, int64_t v0, int64_t n, float *room, int64_t *ld)
{
    struct rows r = {h->w_type, h->c, h->w, (char *)w + 2 * v0 * h->w, room, 0};

    *ld = h->c;
    if (h->w_type == TN_F32) {
        *ld = h->w;
        return (const float *)w + v0 * h->w;
    }
    copy(&r, n);
    return room;
}

static void make_logits(const struct head *h, const float *x, int64_t ldx, void *w, int64_t rows,
                        const struct work *k)
{
    for (int64_t v0 = 0; v0 < h->v; v0 += h->panel) {
        int64_t n = TN_MIN(h->panel, h->v - v0), ld;
        const float *panel = panel_of(h, w, v0, n, k->panel, &ld);
        struct tn_cpu_gemm g = {.m = rows, .n = n, .k = h->c, .lda = ldx, .ldb = ld, .bt = 1, .ldc = h->v};

        tn_cpu_product_run(&g, x, panel, k->logits + v0, 0.0f, k->room);
    }
}

/* dx = (or +=) dlogits·w */
static void make_dx(const struct head *h, void *w, int64_t rows, const struct work *k, float *dx,
                    int64_t ld_dx)
{
    for (int64_t v0 = 0; v0 < h->v; v0 += h->panel) {
        int64_t n = TN_MIN(h->panel, h->v - v0), ld;
        const float *panel = panel_of(h, w, v0, n, k->panel, &ld);
        struct tn_cpu_gemm g = {.m = rows, .n = h->c, .k = n, .lda = h->v, .ldb = ld, .ldc = ld_dx};

        tn_cpu_product_run(&g, k->logits + v0, panel, dx, v0 || h->accumulate & 1 ? 1.0f : 0.0f, k->room);
    }
}

/* In the floats from base on; how many they are. */
static int64_t lay_out(const struct head *h, float *base, struct work *k)
{
    int64_t low = h->x_type == TN_F32 ? 0 : TN_ROUND_UP(h->chunk * h->c, 16),
            n = TN_ROUND_UP(h->chunk * h->v, 16),
            wide = h->w_type == TN_F32 ? 0 : TN_ROUND_UP(h->panel * h->c, 16);

    if (base)
        *k = (struct work){base, base + n, base + n + low, base + n + 2 * low, base + n + 2 * low + wide};
    return n + 2 * low + wide + h->room;
}

static tn_status launch_forward(void *state, const struct tn_launch *l)
{
    const struct head *h = state;
    struct run r = {
        .h = h, .index = l->buffer[2], .logits = l->workspace, .lse = l->buffer[3], .z = l->buffer[4]};
    struct work k;

    lay_out(h, l->workspace, &k);
    for (r.row = 0; r.row < h->rows; r.row += h->chunk) {
        int64_t n = TN_MIN(h->chunk, h->rows - r.row), ldx;
        const float *x = as_floats(h, l->buffer[0], h->x, r.row, n, 1, k.x, &ldx);

        make_logits(h, x, ldx, l->buffer[1], n, &k);
        tn_host->parallel(n, TN_MAX(1, 8192 / h->v), statistics, &r);
    }
    return TN_OK;
}

/* Chunk by chunk: logits, what each row makes of them in place, and from that dx and dw. */
static tn_status run_gradient(const struct tn_launch *l, struct run *r,
                              void (*rows)(void *arg, int64_t lo, int64_t hi), void *all_dx, float *dw)
{
    const struct head *h = r->h;
    struct work k;

    lay_out(h, l->workspace, &k);
    for (r->row = 0; r->row < h->rows; r->row += h->chunk) {
        int64_t n = TN_MIN(h->chunk, h->rows - r->row), ldx, ld_dx;
        const float *x = as_floats(h, l->buffer[0], h->x, r->row, n, 1, k.x, &ldx);
        float *dx = as_floats(h, all_dx, h->dx, r->row, n, h->accumulate & 1, k.dx, &ld_dx);
        struct tn_cpu_gemm by_w = {
            .m = h->v, .n = h->c, .k = n, .lda = h->v, .at = 1, .ldb = ldx, .ldc = h->dw};

        make_logits(h, x, ldx, l->buffer[1], n, &k);
        tn_host->parallel(n, TN_MAX(1, 8192 / h->v), rows, r);
        make_dx(h, l->buffer[1], n, &k, dx, ld_dx);
        if (h->x_type != TN_F32)
            copy(&(struct rows){h->x_type, h->c, h->dx, (char *)all_dx + 2 * r->row * h->dx, dx, 1}, n);
        tn_cpu_product_run(&by_w, r->logits, x, dw, r->row || h->accumulate & 2 ? 1.0f : 0.0f, k.room);
    }
    return TN_OK;
}

static tn_status launch_backward(void *state, const struct tn_launch *l)
{
    struct run r = {.h = state,
                    .index = l->buffer[2],
                    .dlse = l->buffer[4],
                    .dz = l->buffer[5],
                    .logits = l->workspace,
                    .lse = l->buffer[3]};

    return run_gradient(l, &r, gradient, l->buffer[6], l->buffer[7]);
}
static tn_status launch_train(void *state, const struct tn_launch *l)
{
    struct run r = {.h = state,
                    .index = l->buffer[2],
                    .dlse = l->buffer[3],
                    .dz = l->buffer[4],
                    .logits = l->workspace,
                    .lse = l->buffer[5],
                    .z = l->buffer[6]};

    return run_gradient(l, &r, statistics_and_gradient, l->buffer[7], l->buffer[8]);
}

/* x, w and index are inputs 0, 1 and 2 of all; dx, if there is one, is of x's dtype, all else fp32. */
static int prepare(const struct tn_problem *p, const struct tn_operand *dx, struct head *h)
{
    const struct tn_operand *x = &p->in[0], *w = &p->in[1];

    h->x_type = x->dtype, h->w_type = w->dtype;
    if ((h->x_type != TN_F32 && !tn_is_half(h->x_type)) || (h->w_type != TN_F32 && !tn_is_half(h->w_type)) ||
        p->in[2].dtype != TN_I32)
        return 0;
    for (uint32_t i = 3; i < p->n_in; i++)
        if (p->in[i].dtype != TN_F32)
            return 0;
    for (uint32_t i = 0; i < p->n_out; i++)
        if (p->out[i].dtype != (&p->out[i] == dx ? h->x_type : TN_F32))
            return 0;
    if (!x->rank || w->rank != 2 || (w->index && w->index[0]))
        return 0;
    h->c = w->size[1], h->v = w->size[0], h->rows = tn_count(x) / h->c, h->first = w->origin[0];
    h->chunk = TN_MIN(h->rows, TN_MIN(1024, TN_MAX(64, LOGITS / h->v / 64 * 64)));
    h->panel = h->w_type == TN_F32 ? h->v : TN_MIN(h->v, TN_MAX(64, PANEL / h->c));
    for (int i = 0; i < 3; i++) {                /* logits, dx, dw */
        int64_t room = tn_cpu_product_floats(i == 2 ? h->v : h->chunk, i ? h->c : h->panel,
                                             i == 0 ? h->c : i == 1 ? h->panel : h->chunk, tn_host->threads());

        h->room = TN_MAX(h->room, room);
    }
    return tn_operand_rows(x, 1, &h->x) && tn_operand_rows(w, 1, &h->w) &&
           tn_operand_rows(&p->in[2], 0, &h->index) && h->x >= h->c && h->w >= h->c && h->rows <= INT32_MAX &&
           h->v <= INT32_MAX;
}

tn_status tn_cpu_prepare_head(const struct tn_problem *p, struct tn_kernel *out)
{
    struct head h = {0};
    struct work k;

    if (p->accumulate || p->n_in != 3 || p->n_out != 2 || !prepare(p, NULL, &h) ||
        !tn_operand_rows(&p->out[0], 0, &h.lse) || !tn_operand_rows(&p->out[1], 0, &h.z))
        return TN_DECLINED;
    out->launch = launch_forward, out->workspace = (uint64_t)lay_out(&h, NULL, &k) * sizeof(float);
    return tn_keep(out, &h, sizeof h, p->op);
}
tn_status tn_cpu_prepare_head_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    struct head h = {.accumulate = p->accumulate};
    struct work k;

    if (p->n_in != 6 || p->n_out != 2 || !prepare(p, &p->out[0], &h) || !tn_operand_rows(&p->in[3], 0, &h.lse) ||
        !tn_operand_rows(&p->in[4], 0, &h.dlse) || !tn_operand_rows(&p->in[5], 0, &h.dz) ||
        !tn_operand_rows(&p->out[0], 1, &h.dx) || !tn_operand_rows(&p->out[1], 1, &h.dw) || h.dx < h.c ||
        h.dw < h.c)
        return TN_DECLINED;
    out->launch = launch_backward, out->workspace = (uint64_t)lay_out(&h, NULL, &k) * sizeof(float);
    return tn_keep(out, &h, sizeof h, p->op);
}
tn_status tn_cpu_prepare_head_train(const struct tn_problem *p, struct tn_kernel *out)
{
    struct head h = {.accumulate = p->accumulate >> 2};
    struct work k;

    if (p->n_in != 5 || p->n_out != 4 || p->accumulate & 3 || !prepare(p, &p->out[2], &h) ||
        !tn_operand_rows(&p->in[3], 0, &h.dlse) || !tn_operand_rows(&p->in[4], 0, &h.dz) ||
        !tn_operand_rows(&p->out[0], 0, &h.lse) || !tn_operand_rows(&p->out[1], 0, &h.z) ||
        !tn_operand_rows(&p->out[2], 1, &h.dx) || !tn_operand_rows(&p->out[3], 1, &h.dw) || h.dx < h.c ||
        h.dw < h.c)
        return TN_DECLINED;
    out->launch = launch_train, out->workspace = (uint64_t)lay_out(&h, NULL, &k) * sizeof(float);
    return tn_keep(out, &h, sizeof h, p->op);
}
