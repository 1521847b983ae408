/* head.cu - the language model's head with what cross-entropy needs of it, logits never whole.
 *
 * Rows go in chunks: the logits of a chunk are a matrix product into the workspace, in fp32, and a block for each row
 * makes what is wanted of them: the log-sum-exp, the target's logit, and, in training, the gradients of the logits,
 * from which two products give dx and the chunk's part of dw. head_train has the logits once for all of it. Where x
 * and w are of a dtype of two bytes, so are the gradients of the logits, as they would be if the logits were a tensor:
 * all three products then run on tensor cores. Else they take the place of the logits.
 *
 * Tensor cores want sizes in multiples of eight: the vocabulary is filled up to one. A copy of w has rows of zeros
 * there, the gradients are zeros; of dw, which has no such rows, the last few are a product of their own. */
#include "product.h"
#include "softmax.cuh"

#ifdef TN_CUDA_SMALL                             /* as tests compile it: many chunks, few threads */
#define THREADS 64
#define CHUNK_BYTES 20000
#else
#define THREADS 1024                             /* few blocks at a time, so that a row is in the cache when read again */
#define CHUNK_BYTES (INT64_C(1) << 30)           /* of logits and their gradients */
#endif
#define GRANULE 8
#define FILL(n) (((n) + GRANULE - 1) / GRANULE * GRANULE)
#define ALIGN(bytes) (((bytes) + 255) / 256 * 256)

enum { FORWARD, BACK, TRAIN };
struct rows {                                    /* the parameter of the kernels below */
    struct tn_cuda_view index, lse, z, dlse, dz, w; /* index, lse, ... [I...; ], w [V; C] */
    struct tn_cuda_map map;                      /* of the rows of w */
    uint32_t first, n, words, pitch;             /* of the chunk; logits [n, pitch] */
    uint32_t width, low;                         /* low: dtype of the gradients, 0: fp32, in place of the logits */
    float *logits;
    char *gradient, *filled;                     /* filled [pitch, width]: w and rows of zeros */
};

enum { LOGITS, DX, DW, DW_ADD, REST, REST_ADD, PRODUCTS };
struct head {
    struct rows rows;
    int64_t n, chunk;                            /* rows, of a chunk */
    int64_t step_x, step_dx, step_rest;          /* bytes from row to row; to the last rows of dw */
    uint32_t mode, fill, slot_dx, width;         /* fill: w is copied; slot_dx: buffer of dx, dw is the next; of a gradient */
    uint64_t at_gradient, at_filled, at_inner;   /* offsets in the workspace */
    struct tn_cuda_product product[PRODUCTS][2]; /* of a whole chunk, of the last one */
};

/* --- kernels */
TN_DEVICE int64_t place(const rows &k, uint32_t r)
{
    const int64_t id = ((const int32_t *)k.index.base)[tn_axis_at(k.index.row, k.first + r)];

    return id < 0 ? -1 : tn_map_find(k.map, id);
}

TN_DEVICE float of(const tn_cuda_view &v, const rows &k, uint32_t r)
{
    return tn_view_get(v, tn_axis_at(v.row, k.first + r), 0);
}

TN_DEVICE void put(const tn_cuda_view &v, const rows &k, uint32_t r, float x)
{
    tn_view_put(v, tn_axis_at(v.row, k.first + r), 0, x);
}

/* The gradients of row r. TRAIN: the target's logit goes to z, by the thread that is about to overwrite it. */
template <int MODE> TN_DEVICE void gradient_row(const rows &k, uint32_t r, float lse, int64_t here)
{
    char *logits = (char *)(k.logits + (int64_t)r * k.pitch);
    char *out = k.low ? k.gradient + (int64_t)r * k.pitch * 2 : logits;
    const float dlse = of(k.dlse, k, r), dz = of(k.dz, k, r);

    for (uint32_t c = threadIdx.x * 4; c < k.pitch; c += THREADS * 4) {
        tn_f4 f = tn_get4(TN_F32, logits, c);

        if (MODE == TRAIN && here >= c && here < c + 4)
            put(k.z, k, r, tn_get(TN_F32, logits, here));
        for (int i = 0; i < 4; i++)
            f.v[i] = c + i < k.words ? dlse * expf(f.v[i] - lse) + (c + i == here ? dz : 0.0f) : 0.0f;
        tn_put4(k.low ? k.low : TN_F32, out, c, f);
    }
}

template <int MODE> TN_KERNEL(THREADS) head_rows(TN_PARAM(rows) k)
{
    for (uint32_t r = blockIdx.x; r < k.n; r += gridDim.x) {
        const char *logits = (const char *)(k.logits + (int64_t)r * k.pitch);
        const int64_t here = place(k, r);
        float lse;

        if (MODE == BACK)
            lse = of(k.lse, k, r);
        else {
            lse = tn_lse_block<THREADS>(k.words, [&](uint32_t c) { return tn_get4(TN_F32, logits, c); });
            if (threadIdx.x == 0)
                put(k.lse, k, r, lse);
            if (threadIdx.x == 0 && (MODE == FORWARD || here < 0))
                put(k.z, k, r, here < 0 ? 0.0f : tn_get(TN_F32, logits, here));
        }
        if (MODE != FORWARD)
            gradient_row<MODE>(k, r, lse, here);
    }
}

TN_KERNEL(256) head_fill(TN_PARAM(rows) k)
{
    const uint32_t chunks = (k.width + 3) / 4;

    for (uint32_t at = blockIdx.x * 256 + threadIdx.x; at < k.pitch * chunks; at += gridDim.x * 256) {
        const uint32_t r = at / chunks, c = at % chunks * 4;
        const tn_f4 f = r < k.words ? tn_view_get4(k.w, tn_axis_at(k.w.row, r), c) : tn_f4{};

        for (uint32_t i = 0; i < 4 && c + i < k.width; i++)
            tn_put(k.w.dtype, k.filled, (int64_t)r * k.width + c + i, f.v[i]);
    }
}

/* --- launch */
static tn_status product(const struct head *k, int which, int last, const char *a, const char *b, char *c,
                         const struct tn_launch *l)
{
    return tn_cuda_product_run(&k->product[which][last], a, b, c, (char *)l->workspace + k->at_inner, l->queue);
}

/* dx and dw of a chunk whose gradients are there. x: its rows. */
static tn_status gradients(const struct head *k, const struct rows *r, int last, const char *x, const char *w,
                           const struct tn_launch *l)
{
    const char *g = r->low ? r->gradient : (const char *)r->logits;
    const char *rest = g + (int64_t)(r->words / GRANULE * GRANULE) * k->width;
    char *dw = (char *)l->buffer[k->slot_dx + 1];
    tn_status s = product(k, DX, last, g, w, (char *)l->buffer[k->slot_dx] + r->first * k->step_dx, l);

    if (!s)
        s = product(k, r->first ? DW_ADD : DW, last, g, x, dw, l);
    return s ? s : product(k, r->first ? REST_ADD : REST, last, rest, x, dw + k->step_rest, l);
}

static tn_status run_rows(const struct head *k, const struct rows *r, struct tn_queue *q)
{
    return k->mode == FORWARD ? TN_LAUNCH(head_rows<FORWARD>, tn_grid(r->n), THREADS, q, *r)
           : k->mode == BACK  ? TN_LAUNCH(head_rows<BACK>, tn_grid(r->n), THREADS, q, *r)
                              : TN_LAUNCH(head_rows<TRAIN>, tn_grid(r->n), THREADS, q, *r);
}

static void bind(const struct head *k, const struct tn_launch *l, struct rows *r)
{
    char *work = (char *)l->workspace;

    *r = k->rows;
    tn_cuda_view_bind(&r->index, l), tn_cuda_view_bind(&r->lse, l), tn_cuda_view_bind(&r->z, l);
    tn_cuda_view_bind(&r->dlse, l), tn_cuda_view_bind(&r->dz, l), tn_cuda_view_bind(&r->w, l);
    r->logits = (float *)work, r->gradient = work + k->at_gradient, r->filled = work + k->at_filled;
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct head *k = (const struct head *)state;
    struct rows r;
    const char *w;
    tn_status s = TN_OK;

    bind(k, l, &r);
    w = k->fill ? r.filled : r.w.base;
    if (k->fill)
        s = TN_LAUNCH(head_fill, tn_grid(TN_CUDA_PARTS((int64_t)r.pitch * TN_CUDA_PARTS(r.width, 4), 256)), 256,
                      l->queue, r);
    for (int64_t at = 0; at < k->n && !s; at += k->chunk) {
        const int last = k->n - at < k->chunk;
        const char *x = (const char *)l->buffer[0] + at * k->step_x;

        r.first = (uint32_t)at, r.n = (uint32_t)(last ? k->n - at : k->chunk);
        if (!(s = product(k, LOGITS, last, x, w, (char *)r.logits, l)) && !(s = run_rows(k, &r, l->queue)) &&
            k->mode != FORWARD)
            s = gradients(k, &r, last, x, w, l);
    }
    return s;
}

static void release(void *state)
{
    struct head *k = (struct head *)state;

    for (int which = 0; which < PRODUCTS; which++)
        for (int last = 0; last < 2; last++)
            tn_cuda_product_release(&k->product[which][last]);
    free(k);
}

/* --- prepare */
struct matrix {
    uint32_t dtype;
    int64_t row, col;                            /* strides */
};

/* c [m,n] = a [m,k] · b [k,n] */
static tn_status make(struct tn_cuda_product *out, int64_t m, int64_t n, int64_t depth, struct matrix a,
                      struct matrix b, struct matrix c, uint32_t add)
{
    struct tn_loop loop[3] = {{m, {a.row, 0, c.row}}, {n, {0, b.col, c.col}}, {depth, {a.col, b.row, 0}}};
    struct tn_operand in[2] = {}, y = {};
    struct tn_problem q = {};

    in[0].dtype = a.dtype, in[1].dtype = b.dtype, y.dtype = c.dtype;
    q.struct_size = sizeof q, q.op = "einsum", q.n_in = 2, q.n_out = 1, q.in = in, q.out = &y;
    q.n_loop = 3, q.n_reduced = 1, q.loop = loop, q.accumulate = add;
    return m ? tn_cuda_product_make(&q, out) : TN_OK;
}

static struct matrix matrix_of(const struct tn_cuda_view *v)
{
    return (struct matrix){v->dtype, v->row.n ? v->row.stride[0] : 0, v->col.n ? v->col.stride[0] : 0};
}

static struct matrix turned(struct matrix m)
{
    return (struct matrix){m.dtype, m.col, m.row};
}

struct operands {
    struct tn_cuda_view x, dx, dw;
};

/* For chunks of m rows. */
static tn_status make_products(struct head *k, int last, int64_t m, const struct operands *o, uint32_t add)
{
    const struct rows *r = &k->rows;
    const int64_t n = r->pitch, c = r->width, whole = r->words / GRANULE * GRANULE;
    const struct matrix x = matrix_of(&o->x), dx = matrix_of(&o->dx), dw = matrix_of(&o->dw);
    const struct matrix w = k->fill ? (struct matrix){r->w.dtype, c, 1} : matrix_of(&r->w);
    const struct matrix logits = {TN_F32, n, 1}, g = {r->low ? r->low : TN_F32, n, 1};
    struct tn_cuda_product(*p)[2] = k->product;
    tn_status s = make(&p[LOGITS][last], m, n, c, x, turned(w), logits, 0);

    if (s || k->mode == FORWARD)
        return s;
    if ((s = make(&p[DX][last], m, c, n, g, w, dx, add & 1)) ||
        (s = make(&p[DW][last], whole, c, m, turned(g), x, dw, add >> 1 & 1)) ||
        (s = make(&p[DW_ADD][last], whole, c, m, turned(g), x, dw, 1)) ||
        (s = make(&p[REST][last], r->words - whole, c, m, turned(g), x, dw, add >> 1 & 1)))
        return s;
    return make(&p[REST_ADD][last], r->words - whole, c, m, turned(g), x, dw, 1);
}

static uint64_t inner_workspace(const struct head *k)
{
    uint64_t most = 0;

    for (int which = 0; which < PRODUCTS; which++)
        for (int last = 0; last < 2; last++)
            most = TN_CUDA_MAX(most, k->product[which][last].workspace);
    return most;
}

/* x [I...;C] and dx are one loop of rows and one of columns; so is w. */
static int is_matrix(const struct tn_cuda_view *v)
{
    return v->row.n <= 1 && v->col.n <= 1 && v->row.total && v->col.total;
}

/* head: x w i -> lse z; head_bwd: x w i lse dlse dz -> dx dw; head_train: x w i dlse dz -> lse z dx dw */
static int load(struct head *k, const struct tn_problem *p, struct operands *o)
{
    const uint32_t rank = p->in[2].rank, out = p->n_in, train = k->mode == TRAIN;
    struct rows *r = &k->rows;

    if (p->in[2].dtype != TN_I32 || !tn_cuda_view_load(&o->x, p, 0, rank) || !tn_cuda_view_load(&r->w, p, 1, 1) ||
        !is_matrix(&o->x) || !is_matrix(&r->w) || !tn_cuda_map_load(&r->map, &p->in[1], 0) ||
        !tn_cuda_view_load(&r->index, p, 2, rank) ||
        !tn_cuda_view_load(&r->lse, p, k->mode == BACK ? 3 : out, rank))
        return 0;
    if (k->mode != BACK && !tn_cuda_view_load(&r->z, p, out + 1, rank))
        return 0;
    k->slot_dx = out + (train ? 2 : 0);
    return k->mode == FORWARD ||
           (tn_cuda_view_load(&r->dlse, p, out - 2, rank) && tn_cuda_view_load(&r->dz, p, out - 1, rank) &&
            tn_cuda_view_load(&o->dx, p, k->slot_dx, rank) && is_matrix(&o->dx) &&
            tn_cuda_view_load(&o->dw, p, k->slot_dx + 1, 1) && is_matrix(&o->dw) && !(train && p->accumulate & 3));
}

/* How many rows to a chunk, and where things lie in the workspace. Chunks are nearly alike. */
static uint64_t lay_out(struct head *k)
{
    const struct rows *r = &k->rows;
    const int64_t row = (int64_t)r->pitch * (int64_t)sizeof(float), low = r->low ? row / 2 : 0;
    const int64_t most = TN_CUDA_MAX(16, CHUNK_BYTES / (row + low)), unit = most < 512 ? 16 : 256;
    const int64_t even = TN_CUDA_PARTS(k->n, TN_CUDA_PARTS(k->n, most));

    k->chunk = TN_CUDA_MIN(k->n, TN_CUDA_PARTS(even, unit) * unit);
    k->at_gradient = ALIGN((uint64_t)(k->chunk * row));
    k->at_filled = k->at_gradient + ALIGN((uint64_t)(k->chunk * low));
    k->at_inner = k->at_filled +
                  (k->fill ? ALIGN((uint64_t)r->pitch * r->width * tn_cuda_width(r->w.dtype)) : 0);
    return k->at_inner;
}

/* What follows from the operands. */
static void settle(struct head *k, const struct operands *o)
{
    struct rows *r = &k->rows;

    k->n = o->x.row.total, r->words = r->w.row.total, r->width = o->x.col.total, r->pitch = FILL(r->words);
    k->fill = r->pitch != r->words;
    r->low = k->mode != FORWARD && o->x.dtype == r->w.dtype && o->x.dtype != TN_F32 ? o->x.dtype : 0;
    k->width = r->low ? 2 : sizeof(float);
    k->step_x = matrix_of(&o->x).row * tn_cuda_width(o->x.dtype);
    k->step_dx = matrix_of(&o->dx).row * tn_cuda_width(o->dx.dtype);
    k->step_rest = r->words / GRANULE * GRANULE * matrix_of(&o->dw).row * tn_cuda_width(o->dw.dtype);
}

static tn_status prepare(const struct tn_problem *p, uint32_t mode, struct tn_kernel *out)
{
    struct operands o = {};
    struct head *k = (struct head *)calloc(1, sizeof *k);
    uint64_t bytes;
    tn_status s;

    if (!k)
        return tn_error(TN_ERR_MEMORY, "cuda: no memory for a kernel's plan of %zu bytes", sizeof *k);
    k->mode = mode;
    if (!load(k, p, &o)) {
        free(k);
        return TN_DECLINED;
    }
    settle(k, &o);
    bytes = lay_out(k);
    s = make_products(k, 0, k->chunk, &o, p->accumulate >> (mode == TRAIN ? 2 : 0));
    if (!s && k->n % k->chunk)
        s = make_products(k, 1, k->n % k->chunk, &o, p->accumulate >> (mode == TRAIN ? 2 : 0));
    if (s) {
        release(k);
        return s;
    }
    out->state = k, out->launch = launch, out->release = release;
    out->workspace = bytes + inner_workspace(k);
    return TN_OK;
}

extern "C" tn_status tn_cuda_prepare_head(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare(p, FORWARD, out);
}

extern "C" tn_status tn_cuda_prepare_head_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare(p, BACK, out);
}

extern "C" tn_status tn_cuda_prepare_head_train(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare(p, TRAIN, out);
}
