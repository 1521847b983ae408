/* product.cu - see product.h.
 *
 * Loops of y that only x has are M, that only w has N, the others are a batch; reduced loops are K. An offset is a
 * sum of what m, n and k give, so the own kernel takes any number of loops and any strides in each class. It is
 * made to be right everywhere and not slow: tiles of 64 by 64 in shared memory, 4 by 4 results a thread, fp32; tiles
 * of 16 along what is short. The library gets what is a matrix in all three operands. */
#include "cu.cuh"
#include "product.h"

#define SIDE 16                                  /* threads along a tile, and its depth */
#define THREADS (SIDE * SIDE)

TN_DEVICE int64_t axis_at(const tn_cuda_axis3 &axis, uint32_t i, uint32_t op)
{
    int64_t at = 0;

    if (axis.n == 0)
        return 0;
    for (uint32_t l = axis.n - 1; l; l--) {
        at += i % axis.size[l] * axis.stride[l][op];
        i /= axis.size[l];
    }
    return at + i * axis.stride[0][op];
}

/* Which element of a tile of EACH * SIDE rows a thread loads in turn i. */
template <int EACH> TN_DEVICE uint32_t tile_k(uint32_t along_k, uint32_t i)
{
    return along_k ? threadIdx.x % SIDE : threadIdx.x / (EACH * SIDE) + i * (SIDE / EACH);
}

template <int EACH> TN_DEVICE uint32_t tile_row(uint32_t along_k, uint32_t i)
{
    return along_k ? threadIdx.x / SIDE + i * SIDE : threadIdx.x % (EACH * SIDE);
}

/* A thread has EM by EN results, SIDE apart. */
template <int EM, int EN> TN_KERNEL(THREADS, 2) multiply(TN_PARAM(tn_cuda_gemm) g)
{
    TN_SHARED(float, a, SIDE *(EM * SIDE + 1));
    TN_SHARED(float, b, SIDE *(EN * SIDE + 1));
    const uint32_t tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;

    for (uint32_t at = blockIdx.x; at < g.total; at += gridDim.x) {
        const uint32_t n0 = at % g.tiles_n * (EN * SIDE), m0 = at / g.tiles_n % g.tiles_m * (EM * SIDE);
        const uint32_t nth = at / g.tiles_n / g.tiles_m;
        int64_t row_a[EM], row_b[EN];
        float sum[EM][EN] = {};

#pragma unroll
        for (uint32_t i = 0; i < EM; i++)
            row_a[i] = axis_at(g.batch, nth, 0) + axis_at(g.m, m0 + tile_row<EM>(g.a_along_k, i), 0);
#pragma unroll
        for (uint32_t i = 0; i < EN; i++)
            row_b[i] = axis_at(g.batch, nth, 1) + axis_at(g.n, n0 + tile_row<EN>(g.b_along_k, i), 1);
        for (uint32_t k0 = 0; k0 < g.k.total; k0 += SIDE) {
            __syncthreads();
#pragma unroll
            for (uint32_t i = 0; i < EM; i++) {
                const uint32_t k = tile_k<EM>(g.a_along_k, i), r = tile_row<EM>(g.a_along_k, i);

                a[k * (EM * SIDE + 1) + r] =
                    k0 + k < g.k.total && m0 + r < g.m.total
                        ? tn_get(g.dtype[0], g.a, row_a[i] + axis_at(g.k, k0 + k, 0))
                        : 0.0f;
            }
#pragma unroll
            for (uint32_t i = 0; i < EN; i++) {
                const uint32_t k = tile_k<EN>(g.b_along_k, i), r = tile_row<EN>(g.b_along_k, i);

                b[k * (EN * SIDE + 1) + r] =
                    k0 + k < g.k.total && n0 + r < g.n.total
                        ? tn_get(g.dtype[1], g.b, row_b[i] + axis_at(g.k, k0 + k, 1))
                        : 0.0f;
            }
            __syncthreads();
#pragma unroll
            for (uint32_t k = 0; k < SIDE; k++) {
                float fa[EM], fb[EN];

#pragma unroll
                for (uint32_t i = 0; i < EM; i++)
                    fa[i] = a[k * (EM * SIDE + 1) + ty + SIDE * i];
#pragma unroll
                for (uint32_t j = 0; j < EN; j++)
                    fb[j] = b[k * (EN * SIDE + 1) + tx + SIDE * j];
#pragma unroll
                for (uint32_t i = 0; i < EM; i++)
#pragma unroll
                    for (uint32_t j = 0; j < EN; j++)
                        sum[i][j] += fa[i] * fb[j];
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < EM; i++)
#pragma unroll
            for (uint32_t j = 0; j < EN; j++)
                if (m0 + ty + SIDE * i < g.m.total && n0 + tx + SIDE * j < g.n.total)
                    tn_put_or_add(g.dtype[2], g.add, g.c,
                                  axis_at(g.batch, nth, 2) + axis_at(g.m, m0 + ty + SIDE * i, 2) +
                                      axis_at(g.n, n0 + tx + SIDE * j, 2),
                                  sum[i][j]);
    }
}

/* --- host */
static int put(struct tn_cuda_axis3 *axis, const struct tn_loop *l, uint32_t y)
{
    if (axis->n == TN_CUDA_LOOPS || l->size > INT32_MAX)
        return 0;
    axis->size[axis->n] = (uint32_t)l->size;
    axis->stride[axis->n][0] = l->stride[0], axis->stride[axis->n][1] = l->stride[1];
    axis->stride[axis->n++][2] = l->stride[y];
    return 1;
}

static void swap(struct tn_cuda_axis3 *axis, uint32_t i, uint32_t j)
{
    const uint32_t size = axis->size[i];
    int64_t stride[3];

    axis->size[i] = axis->size[j], axis->size[j] = size;
    memcpy(stride, axis->stride[i], sizeof stride);
    memcpy(axis->stride[i], axis->stride[j], sizeof stride);
    memcpy(axis->stride[j], stride, sizeof stride);
}

/* Largest strides of the key operand first, then neighbours merged; the number of turns. */
static int settle(struct tn_cuda_axis3 *axis, uint32_t key)
{
    uint32_t n = axis->n ? 1 : 0;
    int64_t total = 1;

    for (uint32_t i = 1; i < axis->n; i++)
        for (uint32_t j = i; j && axis->stride[j - 1][key] < axis->stride[j][key]; j--)
            swap(axis, j - 1, j);
    for (uint32_t i = 1; i < axis->n; i++) {
        int one = (int64_t)axis->size[i] * axis->size[n - 1] <= INT32_MAX;

        for (uint32_t op = 0; op < 3; op++)
            one = one && axis->stride[n - 1][op] == axis->stride[i][op] * axis->size[i];
        if (one) {
            axis->size[i] *= axis->size[n - 1];
            n--;
        }
        swap(axis, n++, i);
    }
    axis->n = n;
    for (uint32_t i = 0; i < n; i++)
        total *= axis->size[i];
    axis->total = (uint32_t)total;
    return total <= INT32_MAX;
}

static int64_t step(const struct tn_cuda_axis3 *axis, uint32_t op)
{
    return axis->n ? axis->stride[axis->n - 1][op] : INT64_MAX;
}

/* y: the operand that receives the product */
static int load(struct tn_cuda_gemm *g, const struct tn_problem *p, uint32_t y)
{
    const uint32_t outer = p->n_loop - p->n_reduced;
    int64_t total;

    for (uint32_t i = 0; i < p->n_loop; i++) {
        const struct tn_loop *l = &p->loop[i];
        struct tn_cuda_axis3 *axis = i >= outer                       ? &g->k
                                     : l->stride[0] && !l->stride[1] ? &g->m
                                     : l->stride[1] && !l->stride[0] ? &g->n
                                                                     : &g->batch;

        if (l->size != 1 && !put(axis, l, y))
            return 0;
    }
    if (!settle(&g->m, 2) || !settle(&g->n, 2) || !settle(&g->k, 0) || !settle(&g->batch, 2))
        return 0;
    g->each_m = g->m.total > 2 * SIDE ? 4 : 1, g->each_n = g->n.total > 2 * SIDE ? 4 : 1;
    g->tiles_m = TN_CUDA_PARTS(g->m.total, g->each_m * SIDE);
    g->tiles_n = TN_CUDA_PARTS(g->n.total, g->each_n * SIDE);
    total = (int64_t)g->tiles_m * g->tiles_n * g->batch.total;
    g->total = (uint32_t)total;
    g->a_along_k = step(&g->k, 0) < step(&g->m, 0), g->b_along_k = step(&g->k, 1) < step(&g->n, 1);
    g->dtype[0] = p->in[0].dtype, g->dtype[1] = p->in[1].dtype, g->dtype[2] = p->out[y - p->n_in].dtype;
    g->add = p->accumulate & 1;
    return total <= INT32_MAX;
}

/* --- matrices for the library: one loop in each class, and one of the batch that it walks itself */

/* r by c at strides sr, sc: leading dimension, and whether it is stored transposed; 0 if it is neither. */
static int as_matrix(int64_t r, int64_t c, int64_t sr, int64_t sc, int64_t *ld, uint32_t *transposed)
{
    *transposed = 0;
    if ((c == 1 || sc == 1) && (r == 1 || sr >= c))
        *ld = r == 1 ? c : sr;
    else if ((r == 1 || sr == 1) && (c == 1 || sc >= r))
        *transposed = 1, *ld = c == 1 ? r : sc;
    else
        return 0;
    return 1;
}

static int64_t stride_of(const struct tn_cuda_axis3 *axis, uint32_t op)
{
    return axis->n ? axis->stride[0][op] : 0;
}

/* With a as the left operand, or, where c is stored transposed, b. */
static int as_matmul(const struct tn_cuda_gemm *g, uint32_t swapped, struct tn_cuda_matmul *out)
{
    const struct tn_cuda_axis3 *m = swapped ? &g->n : &g->m, *n = swapped ? &g->m : &g->n, *k = &g->k;
    const uint32_t left = swapped ? 1 : 0, right = swapped ? 0 : 1;
    uint32_t transposed;

    out->m = m->total, out->n = n->total, out->k = k->total;
    return as_matrix(out->m, out->k, stride_of(m, left), stride_of(k, left), &out->lda, &out->at) &&
           as_matrix(out->k, out->n, stride_of(k, right), stride_of(n, right), &out->ldb, &out->bt) &&
           as_matrix(out->m, out->n, stride_of(m, 2), stride_of(n, 2), &out->ldc, &transposed) && !transposed;
}

/* Of the batch's loops the longest one is the library's, the others are walked around it. */
static void take_batch(const struct tn_cuda_gemm *g, uint32_t swapped, struct tn_cuda_product *k,
                       struct tn_cuda_matmul *m)
{
    uint32_t longest = 0;

    m->batch = 1, k->around = g->batch;
    for (uint32_t i = 1; i < g->batch.n; i++)
        longest = g->batch.size[i] > g->batch.size[longest] ? i : longest;
    if (!g->batch.n)
        return;
    m->batch = g->batch.size[longest];
    m->step_a = g->batch.stride[longest][swapped], m->step_b = g->batch.stride[longest][!swapped];
    m->step_c = g->batch.stride[longest][2];
    swap(&k->around, longest, k->around.n - 1);
    k->around.n--, k->around.total /= k->around.size[k->around.n];
}

/* What the library would have to do; 0: no matrix. */
static int as_library(struct tn_cuda_product *k, struct tn_cuda_matmul *m)
{
    const struct tn_cuda_gemm *g = &k->gemm;

    memset(m, 0, sizeof *m);
    if (!tn_cuda_blas || g->m.n > 1 || g->n.n > 1 || g->k.n > 1 || !g->total || !g->k.total ||
        g->dtype[0] != g->dtype[1] || g->dtype[0] == TN_I32 || g->dtype[2] == TN_I32)
        return 0;
    if (!as_matmul(g, 0, m)) {
        k->swapped = 1;
        if (!as_matmul(g, 1, m))
            return 0;
    }
    m->dtype = g->dtype[0], m->dtype_c = g->dtype[2], m->beta = g->add ? 1.0f : 0.0f;
    take_batch(g, k->swapped, k, m);
    return 1;
}

tn_status tn_cuda_product_make(const struct tn_problem *p, struct tn_cuda_product *out)
{
    struct tn_cuda_matmul m;

    memset(out, 0, sizeof *out);
    if (!load(&out->gemm, p, p->n_in))
        return TN_DECLINED;
    if (as_library(out, &m) && tn_cuda_blas->plan(&m, &out->plan, &out->workspace) != TN_OK)
        out->plan = NULL, out->workspace = 0;
    return TN_OK;
}

tn_status tn_cuda_product_fuse(const struct tn_problem *p, uint32_t o, struct tn_cuda_product *out)
{
    struct tn_cuda_epilogue *e = &out->epilogue;
    struct tn_cuda_matmul m;

    memset(out, 0, sizeof *out);
    if (!tn_cuda_blas || !(o == TN_MAX_OPERANDS ? tn_cuda_epilogue_find(p, e) : tn_cuda_epilogue_of(p, o, e)) || !load(&out->gemm, p, e->y) || !as_library(out, &m) ||
        out->swapped || m.batch != 1 || out->around.total != 1)
        return TN_DECLINED;
    m.epilogue = e->kind, m.beta = e->add ? 1.0f : 0.0f;
    m.dtype_bias = e->bias ? p->in[e->bias].dtype : 0;
    return tn_cuda_blas->plan(&m, &out->plan, &out->workspace);
}

tn_status tn_cuda_product_run_fused(const struct tn_cuda_product *k, const struct tn_launch *l)
{
    const struct tn_cuda_epilogue *e = &k->epilogue;
    struct tn_cuda_pointers at = {};

    at.a = l->buffer[0], at.b = l->buffer[1], at.c = l->buffer[e->y];
    at.add = e->add ? l->buffer[e->add] : at.c;
    at.bias = e->bias ? l->buffer[e->bias] : NULL, at.aux = e->aux ? l->buffer[e->aux] : NULL;
    return tn_cuda_blas->run(k->plan, &at, l->workspace, l->queue);
}

/* Offset in bytes of turn i of the loops around. */
static int64_t around_at(const struct tn_cuda_product *k, uint32_t i, uint32_t op)
{
    int64_t at = 0;

    for (uint32_t l = k->around.n; l-- > 0; i /= k->around.size[l])
        at += i % k->around.size[l] * k->around.stride[l][op];
    return at * tn_cuda_width(k->gemm.dtype[op]);
}

tn_status tn_cuda_product_run(const struct tn_cuda_product *k, const char *x, const char *w, char *y,
                              void *workspace, struct tn_queue *q)
{
    struct tn_cuda_gemm g;
    tn_status s = TN_OK;

    if (!k->gemm.total)
        return TN_OK;
    for (uint32_t i = 0; k->plan && i < k->around.total && !s; i++) {
        const char *a = x + around_at(k, i, 0), *b = w + around_at(k, i, 1);
        struct tn_cuda_pointers at = {};

        at.a = k->swapped ? b : a, at.b = k->swapped ? a : b, at.c = y + around_at(k, i, 2), at.add = at.c;
        s = tn_cuda_blas->run(k->plan, &at, workspace, q);
    }
    if (k->plan)
        return s;
    g = k->gemm;
    g.a = x, g.b = w, g.c = y;
    if (g.each_m == 1)
        return g.each_n == 1 ? TN_LAUNCH((multiply<1, 1>), tn_grid(g.total), THREADS, q, g)
                             : TN_LAUNCH((multiply<1, 4>), tn_grid(g.total), THREADS, q, g);
    return g.each_n == 1 ? TN_LAUNCH((multiply<4, 1>), tn_grid(g.total), THREADS, q, g)
                         : TN_LAUNCH((multiply<4, 4>), tn_grid(g.total), THREADS, q, g);
}

void tn_cuda_product_release(struct tn_cuda_product *k)
{
    if (k->plan)
        tn_cuda_blas->release(k->plan);
}
