/* norm.c - layernorm, rmsnorm and their gradients, a row at a time.
 *
 * rmsnorm is layernorm with mean 0, without a bias, and without mean(d) in its gradient.
 * Rows are shared out to threads; the sums over a row are those of vsum.h. dw sums over rows: blocks of 128
 * rows make one partial row each in the workspace, those are added in order in double. */
#include "cpu.h"
#include "vsum.h"

#define DW_ROWS 128

struct norm {
    int64_t rows, c;
    int64_t step[6];                             /* between rows, of each operand; 0 for w, b and dw */
    double eps;
    uint32_t bias, accumulate, rms;              /* rms: there is no mean among the operands */
};
struct run {
    const struct norm *n;
    void *const *buffer;
    float *part;
};

static float *row_of(const struct run *r, uint32_t op, int64_t i)
{
    return (float *)r->buffer[op] + i * r->n->step[op];
}

/* Operand number op of the list with a mean, which is that before rstd. */
static uint32_t after_mean(const struct run *r, uint32_t op)
{
    return op - r->n->rms;
}

static float mean_at(const struct run *r, uint32_t op, int64_t i)
{
    return r->n->rms ? 0.0f : *row_of(r, op, i);
}

static double sum_of_squares(const float *x, float mean, int64_t n)
{
    TN_SUM_OVER((x[i] - mean) * (x[i] - mean));
}

static void forward(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    int64_t c = r->n->c;
    uint32_t y_op = r->n->bias ? 3 : 2;

    for (int64_t i = lo; i < hi; i++) {
        const float *x = row_of(r, 0, i), *w = r->buffer[1], *b = r->n->bias ? r->buffer[2] : NULL;
        float *y = row_of(r, y_op, i);
        float mean = r->n->rms ? 0.0f : (float)(tn_sum(x, c) / (double)c);
        float rstd = (float)(1.0 / sqrt(sum_of_squares(x, mean, c) / (double)c + r->n->eps));

        if (b)
            for (int64_t k = 0; k < c; k++)
                y[k] = (x[k] - mean) * rstd * w[k] + b[k];
        else
            for (int64_t k = 0; k < c; k++)
                y[k] = (x[k] - mean) * rstd * w[k];
        if (!r->n->rms)
            *row_of(r, y_op + 1, i) = mean;
        *row_of(r, after_mean(r, y_op + 2), i) = rstd;
    }
}

static double sum_along(const float *dy, const float *w, const float *x, float mean, float rstd, int64_t n)
{
    TN_SUM_OVER(dy[i] * w[i] * ((x[i] - mean) * rstd));
}

/* dy, x, w, mean, rstd -> dx */
static void backward_x(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    int64_t c = r->n->c;

    for (int64_t i = lo; i < hi; i++) {
        const float *dy = row_of(r, 0, i), *x = row_of(r, 1, i), *w = r->buffer[2];
        float *dx = row_of(r, after_mean(r, 5), i), mean = mean_at(r, 3, i), rstd = *row_of(r, after_mean(r, 4), i);
        float plain = r->n->rms ? 0.0f : (float)(tn_dot(dy, w, c) / (double)c);
        float tilt = (float)(sum_along(dy, w, x, mean, rstd, c) / (double)c);

        if (r->n->accumulate)
            for (int64_t k = 0; k < c; k++)
                dx[k] += rstd * (dy[k] * w[k] - plain - (x[k] - mean) * rstd * tilt);
        else
            for (int64_t k = 0; k < c; k++)
                dx[k] = rstd * (dy[k] * w[k] - plain - (x[k] - mean) * rstd * tilt);
    }
}

/* dy, x, mean, rstd -> one partial dw of each block of rows */
static void backward_w(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    int64_t c = r->n->c;

    for (int64_t block = lo; block < hi; block++) {
        float *part = r->part + block * c;

        memset(part, 0, (size_t)c * sizeof *part);
        for (int64_t i = block * DW_ROWS; i < TN_MIN(r->n->rows, (block + 1) * DW_ROWS); i++) {
            const float *dy = row_of(r, 0, i), *x = row_of(r, 1, i);
            float mean = mean_at(r, 2, i), rstd = *row_of(r, after_mean(r, 3), i);

            for (int64_t k = 0; k < c; k++)
                part[k] += dy[k] * ((x[k] - mean) * rstd);
        }
    }
}

static void add_parts(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    int64_t c = r->n->c, blocks = (r->n->rows + DW_ROWS - 1) / DW_ROWS;
    float *dw = r->buffer[after_mean(r, 4)];

    for (int64_t k = lo; k < hi; k++) {
        double sum = 0;

        for (int64_t b = 0; b < blocks; b++)
            sum += (double)r->part[b * c + k];
        dw[k] = r->n->accumulate ? (float)(dw[k] + sum) : (float)sum;
    }
}

static tn_status launch_forward(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer, NULL};

    tn_host->parallel(r.n->rows, TN_MAX(1, 8192 / r.n->c), forward, &r);
    return TN_OK;
}
static tn_status launch_x(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer, NULL};

    tn_host->parallel(r.n->rows, TN_MAX(1, 8192 / r.n->c), backward_x, &r);
    return TN_OK;
}
static tn_status launch_w(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer, l->workspace};

    tn_host->parallel((r.n->rows + DW_ROWS - 1) / DW_ROWS, 1, backward_w, &r);
    tn_host->parallel(r.n->c, 512, add_parts, &r);
    return TN_OK;
}

/* tail: for each operand 'r' rows of C, 's' one number a row, 'w' a vector of C. */
static tn_status prepare(const struct tn_problem *p, const char *kinds, const struct tn_operand *x,
                         struct norm *n)
{
    n->c = x->size[x->rank - 1], n->rows = tn_count(x) / n->c;
    n->eps = tn_problem_float(p, "eps", 1e-5);
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++) {
        const struct tn_operand *o = i < p->n_in ? &p->in[i] : &p->out[i - p->n_in];
        uint32_t tail = kinds[i] == 's' ? 0 : 1;

        if (o->dtype != TN_F32 || !tn_operand_rows(o, tail, &n->step[i]))
            return TN_DECLINED;
        if (kinds[i] == 'w')
            n->step[i] = 0;
    }
    return TN_OK;
}

tn_status tn_cpu_prepare_layernorm(const struct tn_problem *p, struct tn_kernel *out)
{
    struct norm n = {.bias = p->n_in == 3};

    if (p->accumulate || p->n_out != 3 || p->n_in < 2 ||
        prepare(p, n.bias ? "rwwrss" : "rwrss", &p->in[0], &n))
        return TN_DECLINED;
    out->launch = launch_forward;
    return tn_keep(out, &n, sizeof n, p->op);
}
tn_status tn_cpu_prepare_rmsnorm(const struct tn_problem *p, struct tn_kernel *out)
{
    struct norm n = {.rms = 1};

    if (p->accumulate || p->n_out != 2 || p->n_in != 2 || prepare(p, "rwrs", &p->in[0], &n))
        return TN_DECLINED;
    out->launch = launch_forward;
    return tn_keep(out, &n, sizeof n, p->op);
}

static tn_status prepare_x(const struct tn_problem *p, uint32_t rms, const char *kinds, struct tn_kernel *out)
{
    struct norm n = {.accumulate = p->accumulate & 1, .rms = rms};

    if (p->n_in != 5 - rms || p->n_out != 1 || prepare(p, kinds, &p->in[1], &n))
        return TN_DECLINED;
    out->launch = launch_x;
    return tn_keep(out, &n, sizeof n, p->op);
}
tn_status tn_cpu_prepare_ln_dx(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_x(p, 0, "rrwssr", out);
}
tn_status tn_cpu_prepare_rms_dx(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_x(p, 1, "rrwsr", out);
}

static tn_status prepare_w(const struct tn_problem *p, uint32_t rms, const char *kinds, struct tn_kernel *out)
{
    struct norm n = {.accumulate = p->accumulate & 1, .rms = rms};

    if (p->n_in != 4 - rms || p->n_out != 1 || prepare(p, kinds, &p->in[1], &n))
        return TN_DECLINED;
    out->launch = launch_w;
    out->workspace = (uint64_t)((n.rows + DW_ROWS - 1) / DW_ROWS * n.c) * sizeof(float);
    return tn_keep(out, &n, sizeof n, p->op);
}
tn_status tn_cpu_prepare_ln_dw(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_w(p, 0, "rrssw", out);
}
tn_status tn_cpu_prepare_rms_dw(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_w(p, 1, "rrsw", out);
}
