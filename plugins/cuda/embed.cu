/* embed.cu - rows of a table by number, and their gradient; rows written by number (store).
 *
 * The table may be a part of the whole one: a number that is not here, or below 0, gives zeros and meets no row.
 * embed: four columns of a place are a thread's. embed_bwd: a warp has a row of the table and up to 768 of its
 * columns; the block brings 256 numbers at a time into shared memory, and if one of them is of its rows, each warp looks
 * for its own among them and adds those places in their order. So nothing is sorted, no sum is atomic and every run has the same bits. */
#include "cu.cuh"

#define WARPS 8
#define THREADS (32 * WARPS)
#define PER_LANE 24
#define SPAN (32 * PER_LANE)                     /* columns of a warp */

struct embed {
    struct tn_cuda_view table, index, rows;      /* w or dw [R; C...], i [I...; ], y or dy [I...; C...] */
    struct tn_cuda_map map;                      /* of the table's rows */
    uint32_t chunks, total;
};

TN_DEVICE int64_t number(const embed &k, uint32_t place)
{
    return ((const int32_t *)k.index.base)[tn_axis_at(k.index.row, place)];
}

TN_KERNEL(THREADS) embed_rows(TN_PARAM(embed) k)
{
    for (uint32_t at = blockIdx.x * THREADS + threadIdx.x; at < k.total; at += gridDim.x * THREADS) {
        const uint32_t place = at / k.chunks, c = at % k.chunks * 4;
        const int64_t id = number(k, place), row = id < 0 ? -1 : tn_map_find(k.map, id);
        tn_f4 f = {};

        if (row >= 0)
            f = tn_view_get4(k.table, tn_axis_at(k.table.row, (uint32_t)row), c);
        tn_view_put4(k.rows, tn_axis_at(k.rows.row, place), c, f);
    }
}

/* sum += columns c0 + lane, c0 + lane + 32, ... of a place */
TN_DEVICE void add_place(const embed &k, uint32_t place, uint32_t c0, float *sum)
{
    const int64_t row = tn_axis_at(k.rows.row, place);

#pragma unroll
    for (uint32_t i = 0; i < PER_LANE; i++) {
        const uint32_t c = c0 + threadIdx.x % 32 + i * 32;

        if (c < k.rows.col.total)
            sum[i] += tn_view_get(k.rows, row, c);
    }
}

TN_KERNEL(THREADS, 3) add_rows(TN_PARAM(embed) k)
{
    TN_SHARED(int32_t, id, THREADS);
    const uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32, c0 = blockIdx.y * SPAN, places = k.index.row.total;
    const int64_t mine = row < k.map.size ? tn_map_global(k.map, row) : -1;
    float sum[PER_LANE] = {};

    for (uint32_t first = 0; first < places; first += THREADS) {
        const int64_t read = first + threadIdx.x < places ? number(k, first + threadIdx.x) : -1;
        const int64_t here = read < 0 ? -1 : tn_map_find(k.map, read);

        id[threadIdx.x] = (int32_t)read;
        if (!__syncthreads_or(here >= 0 && here / WARPS == blockIdx.x))
            continue;                            /* nobody reads what the next turn writes */
        for (uint32_t i = 0; i < THREADS && mine >= 0; i += 32) {
            uint32_t hits = __ballot_sync(TN_ALL, id[i + threadIdx.x % 32] == mine);

            for (; hits; hits &= hits - 1)
                add_place(k, first + i + (uint32_t)__ffs((int)hits) - 1, c0, sum);
        }
        __syncthreads();
    }
    if (mine < 0)
        return;
#pragma unroll
    for (uint32_t i = 0; i < PER_LANE; i++) {
        const uint32_t c = c0 + threadIdx.x % 32 + i * 32;

        if (c < k.table.col.total)
            tn_view_put(k.table, tn_axis_at(k.table.row, row), c, sum[i]);
    }
}

/* store: table [B R; C...], rows [B T; C...], index [T; ]. What no number names is left alone. */
struct store {
    struct embed e;
    uint32_t places, room;                       /* T, R */
};

TN_KERNEL(THREADS) store_rows(TN_PARAM(store) k)
{
    for (uint32_t at = blockIdx.x * THREADS + threadIdx.x; at < k.e.total; at += gridDim.x * THREADS) {
        const uint32_t from = at / k.e.chunks, c = at % k.e.chunks * 4, b = from / k.places;
        const int64_t id = number(k.e, from % k.places);

        if (id < 0 || id >= k.room)
            continue;
        tn_view_put4(k.e.table, tn_axis_at(k.e.table.row, b * k.room + (uint32_t)id), c,
                     tn_view_get4(k.e.rows, tn_axis_at(k.e.rows.row, from), c));
    }
}

/* --- host */
static struct embed bound(const void *state, const struct tn_launch *l)
{
    struct embed k = *(const struct embed *)state;

    tn_cuda_view_bind(&k.table, l), tn_cuda_view_bind(&k.index, l), tn_cuda_view_bind(&k.rows, l);
    return k;
}

static tn_status launch_forward(void *state, const struct tn_launch *l)
{
    const struct embed k = bound(state, l);

    return k.total ? TN_LAUNCH(embed_rows, tn_grid(TN_CUDA_PARTS(k.total, THREADS)), THREADS, l->queue, k)
                   : TN_OK;
}

static tn_status launch_backward(void *state, const struct tn_launch *l)
{
    const struct embed k = bound(state, l);

    if (!k.map.size || !k.table.col.total)
        return TN_OK;
    return TN_LAUNCH(add_rows, dim3(TN_CUDA_PARTS(k.map.size, WARPS), TN_CUDA_PARTS(k.table.col.total, SPAN)),
                     THREADS, l->queue, k);
}

static tn_status prepare(const struct tn_problem *p, int back, struct tn_kernel *out)
{
    const struct tn_operand *table = back ? &p->out[0] : &p->in[0];
    const uint32_t places = p->in[1].rank;
    struct embed k = {};
    int64_t total;

    if (!table->rank || p->in[1].dtype != TN_I32 ||
        !tn_cuda_view_load(&k.table, p, back ? p->n_in : 0, 1) || !tn_cuda_view_load(&k.index, p, 1, places) ||
        !tn_cuda_view_load(&k.rows, p, back ? 0 : p->n_in, places) || !tn_cuda_map_load(&k.map, table, 0))
        return TN_DECLINED;
    k.chunks = TN_CUDA_PARTS(k.rows.col.total, 4);
    total = (int64_t)k.rows.row.total * k.chunks;
    if (total > INT32_MAX)
        return TN_DECLINED;
    k.total = (uint32_t)total;
    return tn_cuda_keep(out, &k, sizeof k, back ? launch_backward : launch_forward);
}

extern "C" tn_status tn_cuda_prepare_embed(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare(p, 0, out);
}

extern "C" tn_status tn_cuda_prepare_embed_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare(p, 1, out);
}

static tn_status launch_store(void *state, const struct tn_launch *l)
{
    struct store k = *(const struct store *)state;

    k.e = bound(&k.e, l);
    return k.e.total ? TN_LAUNCH(store_rows, tn_grid(TN_CUDA_PARTS(k.e.total, THREADS)), THREADS, l->queue, k) : TN_OK;
}

extern "C" tn_status tn_cuda_prepare_store(const struct tn_problem *p, struct tn_kernel *out)
{
    struct store k = {};
    int64_t total;

    if (p->accumulate || p->in[1].rank < 2 || p->in[2].dtype != TN_I32 || p->in[1].dtype != p->out[0].dtype ||
        !tn_cuda_view_load(&k.e.table, p, p->n_in, 2) || !tn_cuda_view_load(&k.e.index, p, 2, 1) ||
        !tn_cuda_view_load(&k.e.rows, p, 1, 2))
        return TN_DECLINED;
    k.places = (uint32_t)p->in[1].size[1], k.room = (uint32_t)p->out[0].size[1];
    k.e.chunks = TN_CUDA_PARTS(k.e.rows.col.total, 4);
    total = (int64_t)k.e.rows.row.total * k.e.chunks;
    if (total > INT32_MAX)
        return TN_DECLINED;
    k.e.total = (uint32_t)total;
    return tn_cuda_keep(out, &k, sizeof k, launch_store);
}
