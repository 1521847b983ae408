/* measure_products.c - how fast the kernel plugins multiply matrices: see measure.h.
 *
 * Each product of the step is made alone: a graph of one einsum with the same dims in the same order, planned
 * and run like any other, without epilogue, into memory of its own without gaps. The head multiplies inside;
 * its products are made with at most HEAD_ROWS rows at a time, as a kernel would, and counted as often as
 * that takes. Attention is not among them: its tiles are nobody's choice but the kernel's. */
#include <stdlib.h>
#include "base/status.h"
#include "run/run.h"
#include "train/engine.h"
#include "train/measure.h"

#define HEAD_ROWS 256
#define MOST_SECONDS 1.0 /* for one shape */
#define SQUARE_SECONDS 4.0
#define LEAST_SECONDS 0.05
#define LEAST_ROUNDS 3
#define MOST_ROUNDS 200
#define WAIT_SECONDS 600.0

/* One operand: what is needed of a value to make one like it. */
struct side {
    uint32_t dtype, rank;
    const char *dim[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];
};
struct product {
    struct side a, b, y;
};

/* --- in words */

static int64_t size_in(const struct side *s, const char *dim)
{
    for (uint32_t d = 0; d < s->rank; d++)
        if (!strcmp(s->dim[d], dim))
            return s->size[d];
    return 0;
}

static size_t say_dims(char *out, size_t room, const struct side *s)
{
    size_t at = 0;

    out[0] = 0;
    for (uint32_t d = 0; d < s->rank && at < room; d++)
        at += (size_t)snprintf(out + at, room - at, "%s%s", d ? " " : "", s->dim[d]);
    return at;
}

/* "48 of 64 x 64 x 32: batch seq heads . batch key heads -> batch heads seq" */
static const char *text_of(const struct product *p, struct tn_arena *arena)
{
    int64_t batch = 1, m = 1, n = 1, k = 1;
    char dims[3][200], many[32] = "";

    for (uint32_t d = 0; d < p->a.rank; d++)
        *(!size_in(&p->y, p->a.dim[d]) ? &k : size_in(&p->b, p->a.dim[d]) ? &batch : &m) *= p->a.size[d];
    for (uint32_t d = 0; d < p->b.rank; d++)
        if (!size_in(&p->a, p->b.dim[d]))
            n *= p->b.size[d];
    say_dims(dims[0], sizeof dims[0], &p->a);
    say_dims(dims[1], sizeof dims[1], &p->b);
    say_dims(dims[2], sizeof dims[2], &p->y);
    if (batch > 1)
        snprintf(many, sizeof many, "%lld of ", (long long)batch);
    return tn_text(arena, "%s%lld x %lld x %lld: %s . %s -> %s", many, (long long)m, (long long)n,
                   (long long)k, dims[0], dims[1], dims[2]);
}

static double flops_of(const struct product *p)
{
    double flops = 2;

    for (uint32_t d = 0; d < p->a.rank; d++)
        flops *= (double)p->a.size[d];
    for (uint32_t d = 0; d < p->b.rank; d++)
        if (!size_in(&p->a, p->b.dim[d]))
            flops *= (double)p->b.size[d];
    return flops;
}

/* --- running one */

static struct tn_value *input(struct tn_graph *g, const char *name, const struct side *s)
{
    return tn_graph_input(g, name, s->dtype, s->rank, s->dim, s->size, 0);
}

static struct tn_value *build(const struct product *p, struct tn_graph *g)
{
    struct tn_attr out = {"out", TN_ATTR_NAMES, p->y.rank, {.names = p->y.dim}};
    struct tn_value *a = input(g, "a", &p->a), *b = input(g, "b", &p->b), *y;

    tn_at_end(g, TN_FORWARD, "product");
    tn_set_role(g, "product");
    y = tn_add(g, "einsum", TN_IN(a, b), &out, 1);
    tn_graph_output(g, "y", y);
    return y;
}

/* Numbers between -1 and 1; of half width the same two patterns for all, small in both formats. */
static tn_status fill(struct tn_run *run, const struct tn_plan *plan, const char *name)
{
    const struct tn_value *v = tn_graph_find_input(plan->graph, name);
    uint64_t bytes = tn_plan_bytes(plan, v), seed = 1;
    char *host = malloc(bytes + 1);
    tn_status s;

    if (!host)
        return tn_error(TN_ERR_MEMORY, "no memory for the operand of a product: %llu bytes",
                        (unsigned long long)bytes);
    for (uint64_t i = 0; i < bytes / tn_dtype_bytes(v->dtype); i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if (v->dtype == TN_F32)
            ((float *)host)[i] = (float)(int32_t)(seed >> 32) * 0x1p-31f;
        else
            ((uint16_t *)host)[i] = seed >> 63 ? 0x2c00 : 0xac00;
    }
    s = tn_run_input(run, name, host, bytes);
    free(host);
    return s;
}

/* The median of a few rounds after one that warms up. */
static tn_status time_run(struct tn_run *run, double *seconds)
{
    double one[MOST_ROUNDS], all = 0;
    tn_status s = tn_run_step(run);
    uint32_t n = 0;

    while (!s && n < MOST_ROUNDS && (n < LEAST_ROUNDS || all < LEAST_SECONDS) && all < MOST_SECONDS) {
        double start = tn_measure_now();
        s = tn_run_step(run);
        one[n] = tn_measure_now() - start;
        all += one[n++];
    }
    *seconds = tn_measure_median(one, n);
    return s;
}

static tn_status time_plan(const struct tn_engine *e, const struct tn_plan *plan, double *seconds)
{
    struct tn_memory *memory = NULL;
    struct tn_run *run = NULL;
    tn_status s = tn_memory_new(e->device_api, e->device, &memory);

    if (!s)
        s = tn_run_open(plan, memory, WAIT_SECONDS, &run);
    if (!s)
        s = fill(run, plan, "a");
    if (!s)
        s = fill(run, plan, "b");
    if (!s)
        s = time_run(run, seconds);
    tn_run_close(run);
    tn_memory_free(memory);
    return s;
}

static tn_status time_product(struct tn_session *s, const struct product *p, struct tn_arena *arena,
                              struct tn_measure_product *out)
{
    const struct tn_engine *e = tn_session_engine(s);
    struct tn_mesh mesh = tn_mesh_single();
    struct tn_graph *g = tn_graph_new(&mesh);
    struct tn_value *y = build(p, g);
    struct tn_plan_options o = {
        .kernels = e->kernels, .n_kernels = e->n_kernels, .keep = &y, .n_keep = 1, .n_micro = 1};
    struct tn_plan *plan = NULL;
    tn_status status = tn_graph_status(g);

    *out = (struct tn_measure_product){.text = text_of(p, arena), .count = 1, .flops = flops_of(p)};
    if (!status)
        status = tn_plan_new(g, &mesh, &o, &plan);
    if (!status && plan->n_kernel)
        out->kernel = plan->kernel[0].by;
    if (!status)
        status = time_plan(e, plan, &out->seconds);
    tn_plan_free(plan);
    tn_graph_free(g);
    return status;
}

/* --- those of the step */

struct list {
    struct tn_arena *arena;
    struct product *product;
    struct tn_measure_product *measured; /* text and count until it is measured */
    uint32_t n;
};

static void add(struct list *l, const struct product *p, double count)
{
    const char *text = text_of(p, l->arena);
    uint32_t k = 0;

    while (k < l->n && (strcmp(l->measured[k].text, text) || l->product[k].a.dtype != p->a.dtype ||
                        l->product[k].b.dtype != p->b.dtype))
        k++;
    if (k == l->n) {
        l->product = tn_alloc_grow(l->arena, l->product, l->n, sizeof *l->product);
        l->measured = tn_alloc_grow(l->arena, l->measured, l->n, sizeof *l->measured);
        l->product[l->n] = *p;
        l->measured[l->n++] = (struct tn_measure_product){.text = text};
    }
    l->measured[k].count += (uint32_t)count;
}

static struct side side_of(const struct tn_plan *plan, const struct tn_value *v)
{
    const struct tn_local *local = &plan->place[v->id].local;
    struct side s = {.dtype = v->dtype, .rank = v->rank};

    memcpy(s.dim, v->dim, sizeof s.dim);
    memcpy(s.size, local->size, sizeof s.size);
    return s;
}

static struct side matrix(uint32_t dtype, const char *d0, int64_t n0, const char *d1, int64_t n1)
{
    return (struct side){.dtype = dtype, .rank = 2, .dim = {d0, d1}, .size = {n0, n1}};
}

/* x [..., C], w [V, C]: logits = x w^T; backward makes them (again, if it is a step of its own), then dx = dlogits w and
 * dw = dlogits^T x. */
static void add_head(struct list *l, const struct tn_plan *plan, const struct tn_row *row, int back,
                     double launches)
{
    struct side x = side_of(plan, row->value[0]), w = side_of(plan, row->value[1]);
    int64_t rows = plan->place[row->value[0]->id].local.count / w.size[1],
            some = rows < HEAD_ROWS ? rows : HEAD_ROWS;
    double count = launches * (double)((rows + some - 1) / some);
    struct side xs = matrix(x.dtype, "rows", some, "embd", w.size[1]),
                ws = matrix(w.dtype, "vocab", w.size[0], "embd", w.size[1]),
                ls = matrix(x.dtype, "rows", some, "vocab", w.size[0]);

    add(l, &(struct product){xs, ws, ls}, count);
    if (!back)
        return;
    add(l, &(struct product){ls, ws, xs}, count);
    add(l, &(struct product){ls, xs, ws}, count);
}

static double launches_of(const struct tn_plan *plan, const struct tn_row *row)
{
    int repeats =
        row->list == TN_LIST_PER_MICRO || row->list == TN_LIST_FORWARD || row->list == TN_LIST_BACKWARD;

    return (row->kernel[0] >= 0) + (repeats && row->kernel[1] >= 0 ? plan->n_micro - 1.0 : 0);
}

tn_status tn_measure_products(struct tn_session *s, struct tn_arena *arena, struct tn_measure_product **out,
                              uint32_t *n)
{
    const struct tn_plan *plan = tn_session_plan(s, TN_SESSION_TRAIN);
    struct list l = {.arena = arena};
    tn_status status = TN_OK;

    for (uint32_t r = 0; r < plan->n_row; r++) {
        const struct tn_row *row = &plan->row[r];
        double launches = launches_of(plan, row);
        if (!strcmp(row->op, "einsum") && launches > 0)
            add(&l,
                &(struct product){side_of(plan, row->value[0]), side_of(plan, row->value[1]),
                                  side_of(plan, row->value[row->n_in])},
                launches);
        else if (!strncmp(row->op, "head", 4))
            add_head(&l, plan, row, strcmp(row->op, "head") != 0, launches);
    }
    for (uint32_t k = 0; k < l.n && !status; k++) {
        uint32_t count = l.measured[k].count;
        status = time_product(s, &l.product[k], arena, &l.measured[k]);
        l.measured[k].count = count;
    }
    *out = l.measured;
    *n = l.n;
    return status;
}

tn_status tn_measure_square(struct tn_session *s, uint32_t most, uint32_t low, struct tn_arena *arena,
                            struct tn_measure_product *out, uint32_t *side)
{
    const uint32_t dtype = low ? tn_session_shape(s)->dtype : TN_F32;
    tn_status status = TN_OK;
    double estimate = 0;

    *side = most < 128 ? most : 128;
    for (;;) {
        int64_t n = *side;
        status =
            time_product(s,
                         &(struct product){matrix(dtype, "m", n, "k", n), matrix(dtype, "k", n, "n", n),
                                           matrix(dtype, "m", n, "n", n)},
                         arena, out);
        estimate =
            out->seconds * (double)most / (double)n * (double)most / (double)n * (double)most / (double)n;
        if (status || *side == most)
            return status;
        if (estimate < SQUARE_SECONDS)
            *side = most;
        else if (8 * out->seconds < SQUARE_SECONDS)
            *side = 2 * *side < most ? 2 * *side : most;
        else
            return TN_OK;
    }
}

double tn_measure_rate(const struct tn_measure_product *p, uint32_t n)
{
    double flops = 0, seconds = 0;

    for (uint32_t k = 0; k < n; k++)
        flops += p[k].count * p[k].flops, seconds += p[k].count * p[k].seconds;
    return seconds > 0 ? flops / seconds : 0;
}
