/* reduce.cu - sum, rowmax, sumsq, and contractions without a matrix in them.
 *
 * A block has 32 by 8 threads. Where x is contiguous along a reduced loop, all 256 go along it for one result
 * at a time; where it is contiguous along the results, 32 neighbours are taken at once by 8 rows of threads. The
 * reduced range is cut into parts by sizes alone, each part a block's; with more than one, partial results lie in
 * the workspace and a second kernel adds them in order. So every sum has one order, whatever the GPU. */
#include "cu.cuh"
#include "reduce.h"

#define THREADS 256
#define COLUMNS 32
#define ROWS 8
#define PART 4096                                /* turns of the reduced loops that are worth a block */
#define MOST_PARTS 256

struct reduction {
    struct tn_cuda_nest keep, sum;               /* loops of the result; reduced ones. Last operand: y */
    uint32_t kind, along, y;                     /* along: x is contiguous along the results */
    uint32_t results, turns, parts, per_part;
    uint32_t dtype[3], add;
    const char *in[2];
    char *out;
    float *partial;                              /* [parts, results] */
};

TN_DEVICE float neutral(const reduction &k)
{
    return k.kind == TN_CUDA_MAXIMUM ? -INFINITY : 0.0f;
}

TN_DEVICE float join(const reduction &k, float a, float b)
{
    return k.kind == TN_CUDA_MAXIMUM ? tn_max(a, b) : a + b;
}

/* Turn i of the reduced loops, for the result at these offsets. */
TN_DEVICE float term(const reduction &k, const int64_t *at, uint32_t i)
{
    const tn_turn turn = tn_nest_turn(k.sum, i);
    const float a = tn_get(k.dtype[0], k.in[0], at[0] + tn_nest_at(k.sum, turn, 0));

    if (k.kind == TN_CUDA_SQUARES)
        return a * a;
    if (k.kind == TN_CUDA_PRODUCTS)
        return a * tn_get(k.dtype[1], k.in[1], at[1] + tn_nest_at(k.sum, turn, 1));
    return a;
}

TN_DEVICE float terms(const reduction &k, uint32_t result, uint32_t from, uint32_t to, uint32_t step)
{
    const tn_turn turn = tn_nest_turn(k.keep, result);
    const int64_t at[2] = {tn_nest_at(k.keep, turn, 0), tn_nest_at(k.keep, turn, k.y ? 1 : 0)};
    float v = neutral(k);

    for (uint32_t i = from; i < to; i += step)
        v = join(k, v, term(k, at, i));
    return v;
}

TN_DEVICE void finish(const reduction &k, uint32_t result, float v)
{
    tn_put_or_add(k.dtype[2], k.add, k.out, tn_nest_at(k.keep, tn_nest_turn(k.keep, result), k.y), v);
}

TN_DEVICE void give(const reduction &k, uint32_t part, uint32_t result, float v)
{
    if (k.parts > 1)
        k.partial[(int64_t)part * k.results + result] = v;
    else
        finish(k, result, v);
}

/* One result at a time, all threads along the reduced loops. */
TN_KERNEL(THREADS) reduce_rows(TN_PARAM(reduction) k)
{
    TN_SHARED(float, warp, THREADS / 32);
    const uint32_t from = blockIdx.y * k.per_part, end = from + k.per_part < k.turns ? from + k.per_part : k.turns;

    for (uint32_t r = blockIdx.x; r < k.results; r += gridDim.x) {
        float v = terms(k, r, from + threadIdx.x, end, THREADS);

        for (int o = 16; o; o >>= 1)
            v = join(k, v, __shfl_xor_sync(TN_ALL, v, o));
        if (threadIdx.x % 32 == 0)
            warp[threadIdx.x / 32] = v;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (uint32_t w = 1; w < THREADS / 32; w++)
                v = join(k, v, warp[w]);
            give(k, blockIdx.y, r, v);
        }
        __syncthreads();
    }
}

/* One result a warp: for short rows. */
TN_KERNEL(THREADS) reduce_short_rows(TN_PARAM(reduction) k)
{
    for (uint32_t r = blockIdx.x * ROWS + threadIdx.x / 32; r < k.results; r += gridDim.x * ROWS) {
        float v = terms(k, r, threadIdx.x % 32, k.turns, 32);

        for (int o = 16; o; o >>= 1)
            v = join(k, v, __shfl_xor_sync(TN_ALL, v, o));
        if (threadIdx.x % 32 == 0)
            finish(k, r, v);
    }
}

/* 32 neighbouring results at a time. */
TN_KERNEL(THREADS) reduce_columns(TN_PARAM(reduction) k)
{
    TN_SHARED(float, row, THREADS);
    const uint32_t from = blockIdx.y * k.per_part, end = from + k.per_part < k.turns ? from + k.per_part : k.turns;
    const uint32_t c = threadIdx.x % COLUMNS, j = threadIdx.x / COLUMNS;

    for (uint32_t r0 = blockIdx.x * COLUMNS; r0 < k.results; r0 += gridDim.x * COLUMNS) {
        const uint32_t r = r0 + c;

        row[threadIdx.x] = r < k.results ? terms(k, r, from + j, end, ROWS) : 0.0f;
        __syncthreads();
        if (j == 0 && r < k.results) {
            float v = row[c];

            for (uint32_t i = 1; i < ROWS; i++)
                v = join(k, v, row[i * COLUMNS + c]);
            give(k, blockIdx.y, r, v);
        }
        __syncthreads();
    }
}

TN_KERNEL(THREADS) add_parts(TN_PARAM(reduction) k)
{
    for (uint32_t r = blockIdx.x * THREADS + threadIdx.x; r < k.results; r += gridDim.x * THREADS) {
        float v = k.partial[r];

        for (uint32_t p = 1; p < k.parts; p++)
            v = join(k, v, k.partial[(int64_t)p * k.results + r]);
        finish(k, r, v);
    }
}

/* --- host */
static tn_status launch(void *state, const struct tn_launch *l)
{
    struct reduction k = *(const struct reduction *)state;
    tn_status s;

    if (!k.results)
        return TN_OK;
    k.in[0] = (const char *)l->buffer[0], k.in[1] = (const char *)l->buffer[k.y ? k.y - 1 : 0];
    k.out = (char *)l->buffer[k.y], k.partial = (float *)l->workspace;
    if (k.along)
        s = TN_LAUNCH(reduce_columns, dim3(tn_grid(TN_CUDA_PARTS(k.results, COLUMNS)), k.parts), THREADS,
                      l->queue, k);
    else if (k.turns <= 1024)
        s = TN_LAUNCH(reduce_short_rows, tn_grid(TN_CUDA_PARTS(k.results, ROWS)), THREADS, l->queue, k);
    else
        s = TN_LAUNCH(reduce_rows, dim3(tn_grid(k.results), k.parts), THREADS, l->queue, k);
    if (s || k.parts == 1)
        return s;
    return TN_LAUNCH(add_parts, tn_grid(TN_CUDA_PARTS(k.results, THREADS)), THREADS, l->queue, k);
}

/* Parts: enough blocks for a large GPU, none of less than PART turns; by the sizes alone. */
static void cut(struct reduction *k)
{
    const int64_t unit = k->along ? PART / 16 : PART;
    const int64_t blocks = k->along ? TN_CUDA_PARTS(k->results, COLUMNS) : k->results;
    int64_t parts = TN_CUDA_MIN(k->turns / unit, 2048 / TN_CUDA_MAX(blocks, 1));

    parts = TN_CUDA_MAX(1, TN_CUDA_MIN(parts, MOST_PARTS));
    k->per_part = (uint32_t)TN_CUDA_PARTS(k->turns, parts);
    k->parts = k->per_part ? TN_CUDA_PARTS(k->turns, k->per_part) : 1;
}

tn_status tn_cuda_reduce_make(const struct tn_problem *p, uint32_t kind, struct tn_kernel *out)
{
    struct reduction k = {};
    int64_t results, turns, along = INT64_MAX, reduced = INT64_MAX;
    tn_status s;

    if (!tn_cuda_nest_load(&k.keep, p, 0, p->n_loop - p->n_reduced) ||
        !tn_cuda_nest_load(&k.sum, p, p->n_loop - p->n_reduced, p->n_reduced))
        return TN_DECLINED;
    tn_cuda_nest_simplify(&k.keep, 0), tn_cuda_nest_simplify(&k.sum, 0);
    results = tn_cuda_nest_count(&k.keep), turns = tn_cuda_nest_count(&k.sum);
    if (results > INT32_MAX || turns > INT32_MAX)
        return TN_DECLINED;
    k.results = (uint32_t)results, k.turns = (uint32_t)turns;
    if (k.keep.n)
        along = k.keep.stride[k.keep.n - 1][0] ? k.keep.stride[k.keep.n - 1][0] : INT64_MAX;
    if (k.sum.n)
        reduced = k.sum.stride[k.sum.n - 1][0];
    k.kind = kind, k.y = p->n_in, k.add = p->accumulate & 1, k.along = along < reduced;
    k.dtype[0] = p->in[0].dtype, k.dtype[1] = p->in[p->n_in - 1].dtype, k.dtype[2] = p->out[0].dtype;
    k.parts = 1, k.per_part = k.turns;
    if (k.along || k.turns > 1024)
        cut(&k);
    if (!(s = tn_cuda_keep(out, &k, sizeof k, launch)))
        out->workspace = k.parts > 1 ? (uint64_t)k.parts * k.results * sizeof(float) : 0;
    return s;
}

extern "C" tn_status tn_cuda_prepare_sum(const struct tn_problem *p, struct tn_kernel *out)
{
    return tn_cuda_reduce_make(p, TN_CUDA_SUM, out);
}

extern "C" tn_status tn_cuda_prepare_sumsq(const struct tn_problem *p, struct tn_kernel *out)
{
    return tn_cuda_reduce_make(p, TN_CUDA_SQUARES, out);
}

extern "C" tn_status tn_cuda_prepare_rowmax(const struct tn_problem *p, struct tn_kernel *out)
{
    return tn_cuda_reduce_make(p, TN_CUDA_MAXIMUM, out);
}
