/* head.c - the last linear layer and the softmax statistics, the logits never whole.
 *
 * A chunk of rows at a time: logits = x·wᵀ into the workspace, there the statistics, or in backward the
 * gradient by the logits and from it dx and the chunk's share of dw. Chunks are as long as 13 M logits allow,
 * from 64 to 1024 rows: the longer, the fewer passes over w and dw. w may be a part of the vocabulary from
 * entry `first` on. */
#include "cpu.h"
#include "softmax.h"

#define LOGITS 13000000                          /* floats of the workspace, about */

struct head {
    int64_t rows, c, v, chunk, first;
    int64_t x, w, index, lse, dlse, dz, dx, dw;  /* steps between rows */
    int64_t z;
    uint32_t accumulate;                         /* bit 0 dx, bit 1 dw */
};
struct run {
    const struct head *h;
    const int32_t *index;
    const float *dlse, *dz;
    float *logits, *lse, *z;
    int64_t row;                                 /* first row of the chunk */
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

static void make_logits(const struct head *h, const float *x, const float *w, int64_t rows, float *logits)
{
    struct tn_cpu_gemm g = {.m = rows, .n = h->v, .k = h->c, .lda = h->x, .ldb = h->w, .bt = 1, .ldc = h->v};

    tn_cpu_gemm_run(&g, x, w, logits, 0.0f);
}

static tn_status launch_forward(void *state, const struct tn_launch *l)
{
    const struct head *h = state;
    struct run r = {
        .h = h, .index = l->buffer[2], .logits = l->workspace, .lse = l->buffer[3], .z = l->buffer[4]};

    for (r.row = 0; r.row < h->rows; r.row += h->chunk) {
        int64_t n = TN_MIN(h->chunk, h->rows - r.row);

        make_logits(h, (const float *)l->buffer[0] + r.row * h->x, l->buffer[1], n, r.logits);
        tn_host->parallel(n, TN_MAX(1, 8192 / h->v), statistics, &r);
    }
    return TN_OK;
}

static tn_status launch_backward(void *state, const struct tn_launch *l)
{
    const struct head *h = state;
    const float *w = l->buffer[1];
    float *dx = l->buffer[6], *dw = l->buffer[7];
    struct run r = {.h = h,
                    .index = l->buffer[2],
                    .dlse = l->buffer[4],
                    .dz = l->buffer[5],
                    .logits = l->workspace,
                    .lse = l->buffer[3]};

    for (r.row = 0; r.row < h->rows; r.row += h->chunk) {
        int64_t n = TN_MIN(h->chunk, h->rows - r.row);
        const float *x = (const float *)l->buffer[0] + r.row * h->x;
        struct tn_cpu_gemm by_x = {.m = n, .n = h->c, .k = h->v, .lda = h->v, .ldb = h->w, .ldc = h->dx};
        struct tn_cpu_gemm by_w = {
            .m = h->v, .n = h->c, .k = n, .lda = h->v, .at = 1, .ldb = h->x, .ldc = h->dw};

        make_logits(h, x, w, n, r.logits);
        tn_host->parallel(n, TN_MAX(1, 8192 / h->v), gradient, &r);
        tn_cpu_gemm_run(&by_x, r.logits, w, dx + r.row * h->dx, h->accumulate & 1 ? 1.0f : 0.0f);
        tn_cpu_gemm_run(&by_w, r.logits, x, dw, r.row || h->accumulate & 2 ? 1.0f : 0.0f);
    }
    return TN_OK;
}

/* x, w and index are inputs 0, 1 and 2 of both. */
static int prepare(const struct tn_problem *p, struct head *h)
{
    const struct tn_operand *x = &p->in[0], *w = &p->in[1];

    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if ((i < p->n_in ? p->in[i] : p->out[i - p->n_in]).dtype != (i == 2 ? TN_I32 : TN_F32))
            return 0;
    if (!x->rank || w->rank != 2 || (w->index && w->index[0]))
        return 0;
    h->c = w->size[1], h->v = w->size[0], h->rows = tn_count(x) / h->c, h->first = w->origin[0];
    h->chunk = TN_MIN(h->rows, TN_MIN(1024, TN_MAX(64, LOGITS / h->v / 64 * 64)));
    return tn_operand_rows(x, 1, &h->x) && tn_operand_rows(w, 1, &h->w) &&
           tn_operand_rows(&p->in[2], 0, &h->index) && h->x >= h->c && h->w >= h->c && h->rows <= INT32_MAX &&
           h->v <= INT32_MAX;
}

tn_status tn_cpu_prepare_head(const struct tn_problem *p, struct tn_kernel *out)
{
    struct head h = {0};

    if (p->accumulate || p->n_in != 3 || p->n_out != 2 || !prepare(p, &h) ||
        !tn_operand_rows(&p->out[0], 0, &h.lse) || !tn_operand_rows(&p->out[1], 0, &h.z))
        return TN_DECLINED;
    out->launch = launch_forward, out->workspace = (uint64_t)(h.chunk * h.v) * sizeof(float);
    return tn_keep(out, &h, sizeof h, p->op);
}
tn_status tn_cpu_prepare_head_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    struct head h = {.accumulate = p->accumulate};

    if (p->n_in != 6 || p->n_out != 2 || !prepare(p, &h) || !tn_operand_rows(&p->in[3], 0, &h.lse) ||
        !tn_operand_rows(&p->in[4], 0, &h.dlse) || !tn_operand_rows(&p->in[5], 0, &h.dz) ||
        !tn_operand_rows(&p->out[0], 1, &h.dx) || !tn_operand_rows(&p->out[1], 1, &h.dw) || h.dx < h.c ||
        h.dw < h.c)
        return TN_DECLINED;
    out->launch = launch_backward, out->workspace = (uint64_t)(h.chunk * h.v) * sizeof(float);
    return tn_keep(out, &h, sizeof h, p->op);
}
