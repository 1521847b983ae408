/* head.cu - the language model's head with what cross-entropy needs of it, logits never whole.
 *
 * Rows go in chunks: the logits of a chunk are a matrix product into the workspace, in fp32, and a block for each row
 * makes what is wanted of them. Backward makes the logits again and turns them into their gradients in place;
 * two products then give dx and the chunk's part of dw. In bf16 a gradient is kept as the sum of two numbers in
 * bf16, high and low, so that both products run on tensor cores and still are nearly as good as in fp32: its
 * rounding is 2^-17 of it. In fp16 small gradients would vanish, so there the gradient stays fp32. */
#include "product.h"
#include "softmax.cuh"

#define THREADS TN_LSE_THREADS
#ifdef TN_CUDA_EMULATED
#define CHUNK_BYTES 20000
#else
#define CHUNK_BYTES (256 << 20)                  /* of logits */
#endif
#define ALIGN(bytes) (((bytes) + 255) / 256 * 256)

struct rows {                                    /* the parameter of the kernels below */
    struct tn_cuda_view index, lse, z, dlse, dz, dx; /* index, lse, ... [I...; ], dx [I...; C] */
    struct tn_cuda_map map;                      /* of the rows of w */
    uint32_t first, n, words, pitch;             /* of the chunk; logits [n, pitch] */
    uint32_t width;
    float *logits;
    uint16_t *high, *low;                        /* bf16 */
    const float *sum;                            /* dx of the chunk in fp32 [n, width] */
};

enum { LOGITS, DX, DX_ADD, DW, DW_ADD, PRODUCTS };
struct head {
    struct rows rows;
    int64_t n, chunk;                            /* rows, of a chunk */
    int64_t step_x, step_dx;                     /* bytes from row to row */
    uint32_t back, split;                        /* split: high and low */
    uint64_t at_high, at_low, at_sum, at_inner;  /* offsets in the workspace */
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

TN_KERNEL(THREADS) head_rows(TN_PARAM(rows) k)
{
    for (uint32_t r = blockIdx.x; r < k.n; r += gridDim.x) {
        const char *logits = (const char *)(k.logits + (int64_t)r * k.pitch);
        const float lse = tn_lse_block(k.words, [&](uint32_t c) { return tn_get4(TN_F32, logits, c); });

        if (threadIdx.x == 0) {
            const int64_t here = place(k, r);

            tn_view_put(k.lse, tn_axis_at(k.lse.row, k.first + r), 0, lse);
            tn_view_put(k.z, tn_axis_at(k.z.row, k.first + r), 0, here < 0 ? 0.0f : tn_get(TN_F32, logits, here));
        }
    }
}

/* logits -> their gradients */
TN_KERNEL(THREADS) head_gradient(TN_PARAM(rows) k)
{
    for (uint32_t r = blockIdx.x; r < k.n; r += gridDim.x) {
        char *logits = (char *)(k.logits + (int64_t)r * k.pitch);
        const float lse = of(k.lse, k, r), dlse = of(k.dlse, k, r), dz = of(k.dz, k, r);
        const int64_t here = place(k, r);

        for (uint32_t c = threadIdx.x * 4; c < k.words; c += THREADS * 4) {
            tn_f4 f = tn_get4(TN_F32, logits, c), rest;

            for (int i = 0; i < 4; i++)
                f.v[i] = dlse * expf(f.v[i] - lse) + (c + i == here ? dz : 0.0f);
            if (!k.high) {
                tn_put4(TN_F32, logits, c, f);
                continue;
            }
            for (int i = 0; i < 4; i++)
                rest.v[i] = f.v[i] - tn_from_bf16(tn_to_bf16(f.v[i]));
            tn_put4(TN_BF16, (char *)(k.high + (int64_t)r * k.pitch), c, f);
            tn_put4(TN_BF16, (char *)(k.low + (int64_t)r * k.pitch), c, rest);
        }
    }
}

TN_KERNEL(THREADS) head_store(TN_PARAM(rows) k)
{
    const uint32_t chunks = (k.width + 3) / 4;

    for (uint32_t at = blockIdx.x * THREADS + threadIdx.x; at < k.n * chunks; at += gridDim.x * THREADS) {
        const uint32_t r = at / chunks, c = at % chunks * 4;
        tn_f4 f = {};

        for (uint32_t i = 0; i < 4 && c + i < k.width; i++)
            f.v[i] = k.sum[(int64_t)r * k.width + c + i];
        tn_view_put4(k.dx, tn_axis_at(k.dx.row, k.first + r), c, f);
    }
}

/* --- launch */
static tn_status product(const struct head *k, int which, int last, const char *a, const char *b, char *c,
                         const struct tn_launch *l)
{
    return tn_cuda_product_run(&k->product[which][last], a, b, c, (char *)l->workspace + k->at_inner, l->queue);
}

/* dx and dw of a chunk whose gradients are there. x: its rows. */
static tn_status gradients(const struct head *k, const struct rows *r, int first, int last, const char *x,
                           const struct tn_launch *l)
{
    const char *w = (const char *)l->buffer[1], *g = (const char *)(k->split ? (void *)r->high : r->logits);
    char *dx = k->split ? (char *)r->sum : (char *)l->buffer[6] + r->first * k->step_dx;
    char *dw = (char *)l->buffer[7];
    tn_status s = product(k, DX, last, g, w, dx, l);

    if (!s)
        s = product(k, first ? DW : DW_ADD, last, g, x, dw, l);
    if (s || !k->split)
        return s;
    if (!(s = product(k, DX_ADD, last, (const char *)r->low, w, dx, l)))
        s = product(k, DW_ADD, last, (const char *)r->low, x, dw, l);
    return s ? s
             : TN_LAUNCH(head_store, tn_grid(TN_CUDA_PARTS((int64_t)r->n * TN_CUDA_PARTS(r->width, 4), THREADS)),
                         THREADS, l->queue, *r);
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct head *k = (const struct head *)state;
    struct rows r = k->rows;
    char *work = (char *)l->workspace;
    tn_status s = TN_OK;

    tn_cuda_view_bind(&r.index, l), tn_cuda_view_bind(&r.lse, l), tn_cuda_view_bind(&r.z, l);
    tn_cuda_view_bind(&r.dlse, l), tn_cuda_view_bind(&r.dz, l), tn_cuda_view_bind(&r.dx, l);
    r.logits = (float *)work, r.sum = (const float *)(work + k->at_sum);
    if (k->split)
        r.high = (uint16_t *)(work + k->at_high), r.low = (uint16_t *)(work + k->at_low);
    for (int64_t at = 0; at < k->n && !s; at += k->chunk) {
        const int last = k->n - at < k->chunk;
        const char *x = (const char *)l->buffer[0] + at * k->step_x;

        r.first = (uint32_t)at, r.n = (uint32_t)(last ? k->n - at : k->chunk);
        if ((s = product(k, LOGITS, last, x, (const char *)l->buffer[1], (char *)r.logits, l)))
            break;
        if (!k->back)
            s = TN_LAUNCH(head_rows, tn_grid(r.n), THREADS, l->queue, r);
        else if (!(s = TN_LAUNCH(head_gradient, tn_grid(r.n), THREADS, l->queue, r)))
            s = gradients(k, &r, at == 0, last, x, l);
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
    return out->gemm.total || !m ? TN_OK : tn_cuda_product_make(&q, out);
}

static struct matrix matrix_of(const struct tn_cuda_view *v)
{
    return (struct matrix){v->dtype, v->row.n ? v->row.stride[0] : 0, v->col.n ? v->col.stride[0] : 0};
}

static struct matrix turned(struct matrix m)
{
    return (struct matrix){m.dtype, m.col, m.row};
}

static tn_status make_products(struct head *k, int last, struct matrix x, struct matrix w, struct matrix dw,
                               uint32_t add)
{
    const struct matrix logits = {TN_F32, k->rows.pitch, 1};
    const struct matrix gradient = {k->split ? TN_BF16 : TN_F32, k->rows.pitch, 1};
    const struct matrix sum = {TN_F32, k->rows.width, 1};
    const struct matrix dx = k->split ? sum : matrix_of(&k->rows.dx);
    const int64_t m = last ? k->n % k->chunk : k->chunk, n = k->rows.words, c = k->rows.width;
    struct tn_cuda_product(*p)[2] = k->product;
    tn_status s = make(&p[LOGITS][last], m, n, c, x, turned(w), logits, 0);

    if (s || !k->back)
        return s;
    if ((s = make(&p[DX][last], m, c, n, gradient, w, dx, k->split ? 0 : add & 1)) ||
        (s = make(&p[DX_ADD][last], m, c, n, gradient, w, dx, 1)) ||
        (s = make(&p[DW][last], n, c, m, turned(gradient), x, dw, add >> 1 & 1)))
        return s;
    return make(&p[DW_ADD][last], n, c, m, turned(gradient), x, dw, 1);
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

static int load(struct head *k, const struct tn_problem *p, struct tn_cuda_view *x, struct tn_cuda_view *w,
                struct tn_cuda_view *dw)
{
    const uint32_t rank = p->in[2].rank;
    struct rows *r = &k->rows;

    if (p->in[2].dtype != TN_I32 || !tn_cuda_view_load(x, p, 0, rank) || !tn_cuda_view_load(w, p, 1, 1) ||
        !is_matrix(x) || !is_matrix(w) || !tn_cuda_map_load(&r->map, &p->in[1], 0) ||
        !tn_cuda_view_load(&r->index, p, 2, rank))
        return 0;
    if (!k->back)
        return tn_cuda_view_load(&r->lse, p, 3, rank) && tn_cuda_view_load(&r->z, p, 4, rank);
    return tn_cuda_view_load(&r->lse, p, 3, rank) && tn_cuda_view_load(&r->dlse, p, 4, rank) &&
           tn_cuda_view_load(&r->dz, p, 5, rank) && tn_cuda_view_load(&r->dx, p, 6, rank) && is_matrix(&r->dx) &&
           tn_cuda_view_load(dw, p, 7, 1) && is_matrix(dw);
}

/* How many rows to a chunk, and where things lie in the workspace. */
static uint64_t lay_out(struct head *k)
{
    const uint64_t row = (uint64_t)k->rows.pitch * sizeof(float);
    uint64_t chunk;

    k->chunk = TN_CUDA_MAX(16, CHUNK_BYTES / (int64_t)row / 64 * 64);
    k->chunk = TN_CUDA_MIN(k->chunk, k->n);
    chunk = ALIGN((uint64_t)k->chunk * row);
    k->at_high = chunk, k->at_low = k->at_high + (k->split ? ALIGN(chunk / 2) : 0);
    k->at_sum = k->at_low + (k->split ? ALIGN(chunk / 2) : 0);
    k->at_inner = k->at_sum + (k->split ? ALIGN((uint64_t)k->chunk * k->rows.width * sizeof(float)) : 0);
    return k->at_inner;
}

static tn_status prepare(const struct tn_problem *p, uint32_t back, struct tn_kernel *out)
{
    struct tn_cuda_view x, w, dw = {};
    struct head *k = (struct head *)calloc(1, sizeof *k);
    uint64_t bytes;
    tn_status s = TN_OK;

    if (!k)
        return tn_error(TN_ERR_MEMORY, "cuda: no memory for a kernel's plan of %zu bytes", sizeof *k);
    k->back = back;
    if (!load(k, p, &x, &w, &dw)) {
        free(k);
        return TN_DECLINED;
    }
    k->n = x.row.total, k->rows.words = w.row.total, k->rows.width = x.col.total;
    k->rows.pitch = (k->rows.words + 7) / 8 * 8;
    k->split = back && x.dtype == TN_BF16 && w.dtype == TN_BF16;
    k->step_x = matrix_of(&x).row * tn_cuda_width(x.dtype);
    k->step_dx = matrix_of(&k->rows.dx).row * tn_cuda_width(k->rows.dx.dtype);
    bytes = lay_out(k);
    for (int last = 0; last < 2 && !s; last++)
        s = make_products(k, last, matrix_of(&x), matrix_of(&w), matrix_of(&dw), p->accumulate);
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
    return prepare(p, 0, out);
}

extern "C" tn_status tn_cuda_prepare_head_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare(p, 1, out);
}
