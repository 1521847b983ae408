/* norm.c - layernorm and rmsnorm over the last dim, and their gradients.
 *
 * mean and rstd are stored for the backward pass; y is made from the doubles that they were rounded from. The norm by the
 * root of the mean square is the other one with mean 0 and without mean(d) in its gradient. */
#include "ref.h"

struct norm {
    struct tn_ref_base base;
    struct tn_ref_view in[5], out[3];            /* as in docs/ops.md; x […;C], w [;C], mean […;] */
    int has_b;                                   /* layernorm */
    int64_t rows, width;
    double eps;
};

static void moments(const double *x, int64_t n, double eps, double *mean, double *rstd)
{
    double sum = 0, squares = 0;

    for (int64_t c = 0; c < n; c++)
        sum += x[c];
    *mean = sum / (double)n;
    for (int64_t c = 0; c < n; c++)
        squares += (x[c] - *mean) * (x[c] - *mean);
    *rstd = 1 / sqrt(squares / (double)n + eps);
}

static tn_status layernorm(void *state, const struct tn_launch *l)
{
    const struct norm *k = state;
    double *x = l->workspace, *w = x + k->width, *b = w + k->width, mean, rstd;

    tn_ref_get_row(l, &k->in[1], 0, w);
    for (int64_t c = 0; c < k->width; c++)
        b[c] = k->has_b ? tn_ref_get(l, &k->in[2], 0, c) : 0;
    for (int64_t r = 0; r < k->rows; r++) {
        tn_ref_get_row(l, &k->in[0], r, x);
        moments(x, k->width, k->eps, &mean, &rstd);
        for (int64_t c = 0; c < k->width; c++)
            tn_ref_put(l, &k->out[0], r, c, (x[c] - mean) * rstd * w[c] + b[c]);
        tn_ref_put(l, &k->out[1], r, 0, mean);
        tn_ref_put(l, &k->out[2], r, 0, rstd);
    }
    return TN_OK;
}

/* dy, x, w, mean, rstd -> dx */
static tn_status ln_dx(void *state, const struct tn_launch *l)
{
    const struct norm *k = state;
    double *d = l->workspace, *hat = d + k->width;

    for (int64_t r = 0; r < k->rows; r++) {
        const double mean = tn_ref_get(l, &k->in[3], r, 0), rstd = tn_ref_get(l, &k->in[4], r, 0);
        double sum = 0, dot = 0;

        for (int64_t c = 0; c < k->width; c++) {
            hat[c] = (tn_ref_get(l, &k->in[1], r, c) - mean) * rstd;
            d[c] = tn_ref_get(l, &k->in[0], r, c) * tn_ref_get(l, &k->in[2], 0, c);
            sum += d[c], dot += d[c] * hat[c];
        }
        for (int64_t c = 0; c < k->width; c++)
            tn_ref_put(l, &k->out[0], r, c, rstd * (d[c] - (sum + hat[c] * dot) / (double)k->width));
    }
    return TN_OK;
}

/* dy, x, mean, rstd -> dw */
static tn_status ln_dw(void *state, const struct tn_launch *l)
{
    const struct norm *k = state;
    double *sum = l->workspace;

    for (int64_t c = 0; c < k->width; c++)
        sum[c] = 0;
    for (int64_t r = 0; r < k->rows; r++) {
        const double mean = tn_ref_get(l, &k->in[2], r, 0), rstd = tn_ref_get(l, &k->in[3], r, 0);

        for (int64_t c = 0; c < k->width; c++)
            sum[c] += tn_ref_get(l, &k->in[0], r, c) * (tn_ref_get(l, &k->in[1], r, c) - mean) * rstd;
    }
    for (int64_t c = 0; c < k->width; c++)
        tn_ref_put(l, &k->out[0], 0, c, sum[c]);
    return TN_OK;
}

static tn_status rmsnorm(void *state, const struct tn_launch *l)
{
    const struct norm *k = state;
    double *x = l->workspace;

    for (int64_t r = 0; r < k->rows; r++) {
        double rstd;

        tn_ref_get_row(l, &k->in[0], r, x);
        rstd = 1 / sqrt(tn_ref_dot(x, x, k->width) / (double)k->width + k->eps);
        for (int64_t c = 0; c < k->width; c++)
            tn_ref_put(l, &k->out[0], r, c, x[c] * rstd * tn_ref_get(l, &k->in[1], 0, c));
        tn_ref_put(l, &k->out[1], r, 0, rstd);
    }
    return TN_OK;
}

/* dy, x, w, rstd -> dx */
static tn_status rms_dx(void *state, const struct tn_launch *l)
{
    const struct norm *k = state;
    double *d = l->workspace, *hat = d + k->width;

    for (int64_t r = 0; r < k->rows; r++) {
        const double rstd = tn_ref_get(l, &k->in[3], r, 0);
        double dot;

        for (int64_t c = 0; c < k->width; c++) {
            hat[c] = tn_ref_get(l, &k->in[1], r, c) * rstd;
            d[c] = tn_ref_get(l, &k->in[0], r, c) * tn_ref_get(l, &k->in[2], 0, c);
        }
        dot = tn_ref_dot(d, hat, k->width);
        for (int64_t c = 0; c < k->width; c++)
            tn_ref_put(l, &k->out[0], r, c, rstd * (d[c] - hat[c] * dot / (double)k->width));
    }
    return TN_OK;
}

/* dy, x, rstd -> dw */
static tn_status rms_dw(void *state, const struct tn_launch *l)
{
    const struct norm *k = state;

    for (int64_t c = 0; c < k->width; c++) {
        double sum = 0;

        for (int64_t r = 0; r < k->rows; r++)
            sum += tn_ref_get(l, &k->in[0], r, c) * tn_ref_get(l, &k->in[1], r, c) * tn_ref_get(l, &k->in[2], r, 0);
        tn_ref_put(l, &k->out[0], 0, c, sum);
    }
    return TN_OK;
}

static const struct {
    const char *op;
    tn_status (*launch)(void *state, const struct tn_launch *l);
    uint32_t weights, row_outputs;               /* bit i: input i has no rows; outputs do */
} kinds[] = {
    {"layernorm", layernorm, 6, 1}, {"ln_dx", ln_dx, 4, 1},   {"ln_dw", ln_dw, 0, 0},
    {"rmsnorm", rmsnorm, 2, 1},     {"rms_dx", rms_dx, 4, 1}, {"rms_dw", rms_dw, 0, 0},
};

tn_status tn_ref_norm(const struct tn_problem *p, struct tn_kernel *out)
{
    const uint32_t split = p->in[0].rank - 1;    /* of x and dy; w has no rows, mean and rstd no columns */
    struct norm *k = tn_ref_state(sizeof *k);
    uint32_t kind = 0;

    if (!k)
        return TN_ERR_MEMORY;
    while (strcmp(kinds[kind].op, p->op))
        kind++;
    k->has_b = p->n_in > 2;
    for (uint32_t i = 0; i < p->n_in; i++)
        tn_ref_input(k, p, i, kinds[kind].weights >> i & 1 ? 0 : split, &k->in[i]);
    for (uint32_t i = 0; i < p->n_out; i++)
        tn_ref_output(k, p, i, kinds[kind].row_outputs ? split : 0, &k->out[i]);
    k->rows = k->in[0].n_row, k->width = k->in[0].n_col;
    k->eps = tn_problem_float(p, "eps", 1e-5);
    return tn_ref_ready(out, k, kinds[kind].launch, 3 * k->width);
}
