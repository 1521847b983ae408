/* experts.c - mixtures of experts: routes, rows to slots and back, and one matrix product for each expert's rows.
 *
 * Rows of one expert lie one after the other, so the products of docs/experts.md are ordinary ones of sizes that a count
 * says: each on all threads, one expert after the other. Everything lies without gaps. */
#include <math.h>
#include "cpu.h"

#define GRAIN 16384                              /* floats that are worth a piece of their own */

struct experts {
    int64_t rows, experts, slots, width, k, each; /* each: rows for one index of the first dim */
    int64_t first, blocks;                       /* size of the first dim; blocks that it is cut into */
    int64_t out;                                 /* grouped: width of the result */
    uint32_t gates, accumulate;
    uint32_t back;                               /* grouped: w is [expert, in, out], not [expert, out, in] */
};
struct run {
    const struct experts *e;
    void *const *buffer;
};

static int without_gaps(const struct tn_problem *p, uint32_t n_in)
{
    for (uint32_t i = 0; i < n_in; i++)
        if (!tn_contiguous(&p->in[i]))
            return 0;
    for (uint32_t o = 0; o < p->n_out; o++)
        if (!tn_contiguous(&p->out[o]))
            return 0;
    return 1;
}

static int64_t grain(int64_t width)
{
    return TN_MAX(1, GRAIN / TN_MAX(1, width));
}

/* --- route: the k largest, of equal ones the first; a NaN is larger than any number */
static int beats(float a, float b)
{
    return a > b || (a != a && b == b);
}

static void route_row(const struct experts *e, const float *x, float *gate, int32_t *choice)
{
    float max = -INFINITY, sum = 0;

    memset(choice, 0, (size_t)e->experts * sizeof *choice);
    for (int64_t k = 0; k < e->k; k++) {
        int64_t best = -1;

        for (int64_t i = 0; i < e->experts; i++)
            if (!choice[i] && (best < 0 || beats(x[i], x[best])))
                best = i;
        choice[best] = 1;
        max = x[best] > max ? x[best] : max;
    }
    for (int64_t i = 0; i < e->experts; i++)
        sum += gate[i] = choice[i] ? expf(x[i] - max) : 0;
    for (int64_t i = 0; i < e->experts; i++)
        gate[i] = choice[i] ? gate[i] / sum : 0;
}

static void route_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;

    for (int64_t i = lo * r->e->experts; i < hi * r->e->experts; i += r->e->experts)
        route_row(r->e, (const float *)r->buffer[0] + i, (float *)r->buffer[1] + i, (int32_t *)r->buffer[2] + i);
}

static tn_status launch_route(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer};

    tn_host->parallel(r.e->rows, grain(r.e->experts * r.e->k), route_rows, &r);
    return TN_OK;
}

tn_status tn_cpu_prepare_route(const struct tn_problem *p, struct tn_kernel *out)
{
    struct experts e = {.k = tn_problem_int(p, "k", 1)};

    if (p->accumulate || p->in[0].dtype != TN_F32 || p->out[0].dtype != TN_F32 || p->out[1].dtype != TN_I32 || !without_gaps(p, 1))
        return TN_DECLINED;
    e.experts = p->in[0].size[p->in[0].rank - 1], e.rows = tn_count(&p->in[0]) / e.experts;
    if (e.k > e.experts)
        return TN_DECLINED;
    out->launch = launch_route;
    return tn_keep(out, &e, sizeof e, p->op);
}

/* --- arrange: two walks over the choices of a block, one to count, one to number */
static void arrange_block(const struct experts *e, const int32_t *choice, int32_t *place, int32_t *count, int64_t rows, int32_t *slot)
{
    memset(count, 0, (size_t)e->experts * sizeof *count);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t x = 0; x < e->experts; x++)
            count[x] += choice[i * e->experts + x] != 0;
    for (int64_t x = 0; x < e->experts; x++) {
        int32_t next = *slot;

        for (int64_t i = x; i < rows * e->experts; i += e->experts)
            place[i] = choice[i] ? next++ : -1;
        *slot = next;
    }
}

static tn_status launch_arrange(void *state, const struct tn_launch *l)
{
    const struct experts *e = state;
    const int32_t *choice = l->buffer[0];
    int32_t *place = l->buffer[1], *count = l->buffer[2], slot = 0;

    for (int64_t b = 0; b < e->blocks; b++) {
        int64_t rows = e->each * (e->first / e->blocks + (b < e->first % e->blocks));

        arrange_block(e, choice, place, count, rows, &slot);
        choice += rows * e->experts, place += rows * e->experts, count += e->experts;
    }
    return TN_OK;
}

tn_status tn_cpu_prepare_arrange(const struct tn_problem *p, struct tn_kernel *out)
{
    struct experts e = {.blocks = tn_problem_int(p, "blocks", 1)};

    if (p->accumulate || p->in[0].dtype != TN_I32 || p->in[0].rank < 2 || tn_count(&p->in[0]) > INT32_MAX || !without_gaps(p, 1))
        return TN_DECLINED;
    e.first = p->in[0].size[0], e.experts = p->in[0].size[p->in[0].rank - 1];
    e.each = tn_count(&p->in[0]) / (e.first * e.experts);
    out->launch = launch_arrange;
    return tn_keep(out, &e, sizeof e, p->op);
}

/* --- rows and slots. A place that is no slot is not visited */
static void scale(float *to, const float *from, float by, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        to[c] = by * from[c];
}
static void add_scaled(float *to, const float *from, float by, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        to[c] += by * from[c];
}

/* x, place [, gate] */
static void dispatch_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    const struct experts *e = r->e;
    const float *x = r->buffer[0], *gate = e->gates ? r->buffer[2] : NULL;
    const int32_t *place = r->buffer[1];
    float *to = r->buffer[2 + e->gates];

    for (int64_t i = lo; i < hi; i++)
        for (int64_t at = i * e->experts; at < (i + 1) * e->experts; at++)
            if (place[at] >= 0 && place[at] < e->slots)
                scale(to + place[at] * e->width, x + i * e->width, gate ? gate[at] : 1, e->width);
}

/* z, place [, gate] */
static void combine_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    const struct experts *e = r->e;
    const float *z = r->buffer[0], *gate = e->gates ? r->buffer[2] : NULL;
    const int32_t *place = r->buffer[1];
    float *to = r->buffer[2 + e->gates];

    for (int64_t i = lo; i < hi; i++) {
        if (!e->accumulate)
            memset(to + i * e->width, 0, (size_t)e->width * sizeof *to);
        for (int64_t at = i * e->experts; at < (i + 1) * e->experts; at++)
            if (place[at] >= 0 && place[at] < e->slots)
                add_scaled(to + i * e->width, z + place[at] * e->width, gate ? gate[at] : 1, e->width);
    }
}

/* In blocks, so that the error does not grow with the width. */
static double dot(const float *a, const float *b, int64_t n)
{
    double all = 0;

    for (int64_t c = 0; c < n; c += 256) {
        float sum = 0;

        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = c; i < TN_MIN(n, c + 256); i++) sum += a[i] * b[i];
        all += (double)sum;
    }
    return all;
}

/* dy, z, place */
static void gate_rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    const struct experts *e = r->e;
    const float *dy = r->buffer[0], *z = r->buffer[1];
    const int32_t *place = r->buffer[2];
    float *to = r->buffer[3];

    for (int64_t i = lo; i < hi; i++)
        for (int64_t at = i * e->experts; at < (i + 1) * e->experts; at++) {
            int here = place[at] >= 0 && place[at] < e->slots;
            double x = here ? dot(dy + i * e->width, z + place[at] * e->width, e->width) : 0;

            to[at] = e->accumulate ? (float)((double)to[at] + x) : (float)x;
        }
}

static tn_status launch_dispatch(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer};

    tn_host->parallel(r.e->rows, grain(r.e->width), dispatch_rows, &r);
    return TN_OK;
}
static tn_status launch_combine(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer};

    tn_host->parallel(r.e->rows, grain(r.e->width), combine_rows, &r);
    return TN_OK;
}
static tn_status launch_gate(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer};

    tn_host->parallel(r.e->rows, grain(r.e->width), gate_rows, &r);
    return TN_OK;
}

/* packed: the operand of slots. All but place are fp32. */
static tn_status prepare_rows(const struct tn_problem *p, const struct tn_operand *packed, uint32_t place, uint32_t gates,
                              tn_status (*launch)(void *, const struct tn_launch *), struct tn_kernel *out)
{
    struct experts e = {.gates = gates, .accumulate = p->accumulate & 1};

    for (uint32_t i = 0; i < p->n_in; i++)
        if (p->in[i].dtype != (i == place ? TN_I32 : TN_F32))
            return TN_DECLINED;
    if (p->out[0].dtype != TN_F32 || !without_gaps(p, p->n_in))
        return TN_DECLINED;
    e.experts = p->in[place].size[p->in[place].rank - 1], e.rows = tn_count(&p->in[place]) / e.experts;
    e.width = packed->size[packed->rank - 1], e.slots = tn_count(packed) / e.width;
    out->launch = launch;
    return tn_keep(out, &e, sizeof e, p->op);
}
tn_status tn_cpu_prepare_dispatch(const struct tn_problem *p, struct tn_kernel *out)
{
    return p->accumulate ? TN_DECLINED : prepare_rows(p, &p->out[0], 1, p->n_in > 2, launch_dispatch, out);
}
tn_status tn_cpu_prepare_combine(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_rows(p, &p->in[0], 1, p->n_in > 2, launch_combine, out);
}
tn_status tn_cpu_prepare_gate_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_rows(p, &p->in[1], 2, 0, launch_gate, out);
}

/* --- products */
static int64_t segment(int32_t count, int64_t room)
{
    return count < 0 ? 0 : TN_MIN((int64_t)count, room);
}

/* x, w, count: y = x·w[e] or x·w[e]ᵀ for the rows of e; zeros behind the last one */
static tn_status launch_grouped(void *state, const struct tn_launch *l)
{
    const struct experts *e = state;
    const float *x = l->buffer[0], *w = l->buffer[1];
    const int32_t *count = l->buffer[2];
    float *y = l->buffer[3];
    int64_t at = 0;

    for (int64_t i = 0; i < e->blocks * e->experts; i++) {
        int64_t n = segment(count[i], e->slots - at);
        struct tn_cpu_gemm g = {.m = n, .n = e->out, .k = e->width, .lda = e->width, .ldb = e->back ? e->out : e->width,
                                .ldc = e->out, .bt = !e->back};

        if (n)
            tn_cpu_product_run(&g, x + at * e->width, w + i % e->experts * e->width * e->out, y + at * e->out, 0, l->workspace);
        at += n;
    }
    memset(y + at * e->out, 0, (size_t)((e->slots - at) * e->out) * sizeof *y);
    return TN_OK;
}

/* dy, x, count: dw[e] is the sum over the rows of e, in all blocks. dw is [expert, out, in], or with back [expert, in, out],
 * where in is the width of x. */
static void one_weight(const struct experts *e, const struct tn_launch *l, int64_t expert)
{
    const float *dy = l->buffer[0], *x = l->buffer[1];
    const int32_t *count = l->buffer[2];
    float *dw = (float *)l->buffer[3] + expert * e->width * e->out;
    struct tn_cpu_gemm g = {.m = e->back ? e->width : e->out, .n = e->back ? e->out : e->width, .at = 1};
    uint32_t add = e->accumulate;
    int64_t at = 0;

    g.lda = g.m, g.ldb = g.ldc = g.n;
    for (int64_t i = 0; i < e->blocks * e->experts; i++) {
        g.k = segment(count[i], e->slots - at);
        if (i % e->experts == expert && g.k) {
            const float *a = e->back ? x : dy, *b = e->back ? dy : x;

            tn_cpu_product_run(&g, a + at * g.m, b + at * g.n, dw, add ? 1 : 0, l->workspace);
            add = 1;
        }
        at += g.k;
    }
    if (!add)
        memset(dw, 0, (size_t)(e->width * e->out) * sizeof *dw);
}

static tn_status launch_grouped_dw(void *state, const struct tn_launch *l)
{
    const struct experts *e = state;

    for (int64_t i = 0; i < e->experts; i++)
        one_weight(e, l, i);
    return TN_OK;
}

/* x: what is summed over its width, or over its rows; w: the weights, or their gradient. */
static int read_weights(const struct tn_operand *x, const struct tn_operand *w, const struct tn_operand *count, struct experts *e)
{
    if (w->rank != 3 || count->dtype != TN_I32 || count->rank != 2)
        return 0;
    e->back = !strcmp(w->dim[1], x->dim[x->rank - 1]);
    e->width = x->size[x->rank - 1], e->slots = tn_count(x) / e->width, e->out = w->size[e->back ? 2 : 1];
    e->blocks = count->size[0], e->experts = count->size[1];
    return e->slots <= INT32_MAX && e->width <= INT32_MAX && e->out <= INT32_MAX;
}

tn_status tn_cpu_prepare_grouped(const struct tn_problem *p, struct tn_kernel *out)
{
    struct experts e = {0};

    if (p->accumulate || p->in[0].dtype != TN_F32 || p->in[1].dtype != TN_F32 || p->out[0].dtype != TN_F32 || !without_gaps(p, 3) ||
        !read_weights(&p->in[0], &p->in[1], &p->in[2], &e))
        return TN_DECLINED;
    out->launch = launch_grouped;
    out->workspace = (uint64_t)tn_cpu_product_floats(e.slots, e.out, e.width, tn_host->threads()) * sizeof(float);
    return tn_keep(out, &e, sizeof e, p->op);
}
tn_status tn_cpu_prepare_grouped_dw(const struct tn_problem *p, struct tn_kernel *out)
{
    struct experts e = {.accumulate = p->accumulate & 1};

    if (p->in[0].dtype != TN_F32 || p->in[1].dtype != TN_F32 || p->out[0].dtype != TN_F32 || !without_gaps(p, 3) ||
        !read_weights(&p->in[1], &p->out[0], &p->in[2], &e))
        return TN_DECLINED;
    out->launch = launch_grouped_dw;
    out->workspace = (uint64_t)tn_cpu_product_floats(e.back ? e.width : e.out, e.back ? e.out : e.width, e.slots, tn_host->threads()) * sizeof(float);
    return tn_keep(out, &e, sizeof e, p->op);
}
