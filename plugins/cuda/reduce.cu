/* reduce.cu - sum, rowmax, sumsq, and contractions without a matrix in them.
 *
 * A block has 32 by 8 threads. Where x is contiguous along a reduced loop, all 256 go along it for one result
 * at a time, or, if it is short, 4 to 32 lanes of a warp; where it is contiguous along the results, 32 neighbours are
 * taken at once by 8 rows of threads. Where sizes and strides are multiples of eight a thread takes eight neighbours
 * (unit), which are then neighbouring results or a part of the sum. The reduced range is cut into parts by sizes alone, each part a block's; with more than one, partial results lie in
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
    uint32_t unit, wide, lanes;                  /* unit: 8 or 1; wide: at once; lanes of a short row */
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

TN_DEVICE tn_f8 eight(const reduction &k, int64_t at)
{
    tn_f8 f;

    if (k.wide)
        return tn_get8(k.dtype[0], k.in[0], at);
    for (int i = 0; i < 8; i++)
        f.v[i] = tn_get(k.dtype[0], k.in[0], at + i);
    return f;
}

/* Turns i..i+7, which are neighbours. */
TN_DEVICE float eight_terms(const reduction &k, int64_t at, uint32_t i)
{
    tn_f8 f = eight(k, at + i);

    for (int q = 0; q < 8 && k.kind == TN_CUDA_SQUARES; q++)
        f.v[q] *= f.v[q];
    for (int n = 4; n; n /= 2)
        for (int q = 0; q < n; q++)
            f.v[q] = join(k, f.v[q], f.v[q + n]);
    return f.v[0];
}

/* Every step-th unit of turns from..to-1, from unit nth on. */
TN_DEVICE float terms(const reduction &k, uint32_t result, uint32_t from, uint32_t to, uint32_t nth, uint32_t step)
{
    const tn_turn turn = tn_nest_turn(k.keep, result);
    const int64_t at[2] = {tn_nest_at(k.keep, turn, 0), tn_nest_at(k.keep, turn, k.y ? 1 : 0)};
    float v = neutral(k);

    if (k.unit == 8)
        for (uint32_t i = from + nth * 8; i < to; i += step * 8)
            v = join(k, v, eight_terms(k, at[0], i));
    else
        for (uint32_t i = from + nth; i < to; i += step)
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
        float v = terms(k, r, from, end, threadIdx.x, THREADS);

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

/* Short rows: one result for so many lanes of a warp. */
template <int LANES> TN_KERNEL(THREADS) reduce_short_rows(TN_PARAM(reduction) k)
{
    const uint32_t per_block = THREADS / LANES, rounded = (k.results + per_block - 1) / per_block * per_block;

    for (uint32_t r = blockIdx.x * per_block + threadIdx.x / LANES; r < rounded; r += gridDim.x * per_block) {
        float v = r < k.results ? terms(k, r, 0, k.turns, threadIdx.x % LANES, LANES) : 0.0f;

        for (int o = LANES / 2; o; o >>= 1)
            v = join(k, v, __shfl_xor_sync(TN_ALL, v, o));
        if (threadIdx.x % LANES == 0 && r < k.results)
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

        row[threadIdx.x] = r < k.results ? terms(k, r, from, end, j, ROWS) : 0.0f;
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

/* 256 neighbouring results at a time: a thread has eight of them. */
TN_KERNEL(THREADS) reduce_wide_columns(TN_PARAM(reduction) k)
{
    TN_SHARED(float, row, THREADS * 8);
    const uint32_t from = blockIdx.y * k.per_part, end = from + k.per_part < k.turns ? from + k.per_part : k.turns;
    const uint32_t t = threadIdx.x, c = t % COLUMNS, j = t / COLUMNS;

    for (uint32_t r0 = blockIdx.x * THREADS; r0 < k.results; r0 += gridDim.x * THREADS) {
        const uint32_t r = r0 + c * 8, mine = r0 + c * 8 + j;
        float sum[8] = {}, v = 0;

        if (r < k.results) {
            const int64_t at = tn_nest_at(k.keep, tn_nest_turn(k.keep, r), 0);

            for (uint32_t i = from + j; i < end; i += ROWS) {
                const tn_f8 f = eight(k, at + tn_nest_at(k.sum, tn_nest_turn(k.sum, i), 0));

                for (int q = 0; q < 8; q++)
                    sum[q] += f.v[q];
            }
        }
        for (uint32_t q = 0; q < 8; q++)
            row[j * THREADS + q * COLUMNS + c] = sum[q];
        __syncthreads();
        for (uint32_t i = 0; i < ROWS; i++)      /* thread t: result c * 8 + j of the block */
            v += row[i * THREADS + t];
        if (mine < k.results)
            give(k, blockIdx.y, mine, v);
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
static tn_status short_rows(const struct reduction *k, struct tn_queue *q)
{
    const uint32_t grid = tn_grid(TN_CUDA_PARTS(k->results, THREADS / k->lanes));

    return k->lanes == 4    ? TN_LAUNCH(reduce_short_rows<4>, grid, THREADS, q, *k)
           : k->lanes == 8  ? TN_LAUNCH(reduce_short_rows<8>, grid, THREADS, q, *k)
           : k->lanes == 16 ? TN_LAUNCH(reduce_short_rows<16>, grid, THREADS, q, *k)
                            : TN_LAUNCH(reduce_short_rows<32>, grid, THREADS, q, *k);
}

static tn_status columns(const struct reduction *k, struct tn_queue *q)
{
    const uint32_t span = k->unit == 8 ? THREADS : COLUMNS;
    const dim3 grid(tn_grid(TN_CUDA_PARTS(k->results, span)), k->parts);

    return k->unit == 8 ? TN_LAUNCH(reduce_wide_columns, grid, THREADS, q, *k)
                        : TN_LAUNCH(reduce_columns, grid, THREADS, q, *k);
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct reduction k = *(const struct reduction *)state;
    tn_status s;

    if (!k.results)
        return TN_OK;
    k.in[0] = (const char *)l->buffer[0], k.in[1] = (const char *)l->buffer[k.y ? k.y - 1 : 0];
    k.out = (char *)l->buffer[k.y], k.partial = (float *)l->workspace;
    k.wide = k.unit == 8 && (uintptr_t)k.in[0] % 16 == 0;
    if (k.along)
        s = columns(&k, l->queue);
    else if (k.turns <= 1024)
        s = short_rows(&k, l->queue);
    else
        s = TN_LAUNCH(reduce_rows, dim3(tn_grid(k.results), k.parts), THREADS, l->queue, k);
    if (s || k.parts == 1)
        return s;
    return TN_LAUNCH(add_parts, tn_grid(TN_CUDA_PARTS(k.results, THREADS)), THREADS, l->queue, k);
}

/* May eight neighbours be taken at once, along the results or along the sum? By sizes and strides alone. */
static uint32_t unit_of(const struct reduction *k)
{
    const struct tn_cuda_nest *inner = k->along ? &k->keep : &k->sum, *other = k->along ? &k->sum : &k->keep;

    if (k->kind == TN_CUDA_PRODUCTS || (k->along && k->kind != TN_CUDA_SUM) || k->dtype[0] == TN_I32 || !inner->n ||
        inner->stride[inner->n - 1][0] != 1 || inner->size[inner->n - 1] % 8 || (!k->along && inner->n > 1))
        return 1;
    for (uint32_t l = 0; l + 1 < inner->n; l++)
        if (inner->stride[l][0] % 8)
            return 1;
    for (uint32_t l = 0; l < other->n; l++)
        if (other->stride[l][0] % 8)
            return 1;
    return 8;
}

/* Parts: enough blocks for a large GPU, none of less than PART turns; by the sizes alone. */
static void cut(struct reduction *k)
{
    const int64_t unit = k->along ? PART / 16 : PART;
    const int64_t blocks = k->along ? TN_CUDA_PARTS(k->results, k->unit == 8 ? THREADS : COLUMNS) : k->results;
    int64_t parts = TN_CUDA_MIN(k->turns / unit, 2048 / TN_CUDA_MAX(blocks, 1));

    parts = TN_CUDA_MAX(1, TN_CUDA_MIN(parts, MOST_PARTS));
    k->per_part = (uint32_t)(TN_CUDA_PARTS(TN_CUDA_PARTS(k->turns, parts), 8) * 8);
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
    k.parts = 1, k.per_part = k.turns, k.unit = unit_of(&k);
    for (k.lanes = 4; k.lanes < 32 && k.lanes * k.unit < k.turns;)
        k.lanes *= 2;
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
