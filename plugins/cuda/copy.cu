/* copy.cu - y = x with other strides.
 *
 * Bits are moved, not numbers, so int32 and NaN stay what they are. Where x and y are contiguous along different
 * loops, a block moves tiles of 32 by 32 through shared memory, read along x and written along y; otherwise an
 * element is a thread's. */
#include "cu.cuh"

#define TILE 32
#define ROWS 8                                   /* of a tile at once */

struct copy {
    struct tn_cuda_nest nest;                    /* x, y; without the two loops of the tile */
    uint32_t across, down;                       /* sizes: the loops along which y and x are contiguous */
    int64_t across_x, across_y, down_x, down_y;
    uint32_t tiles_across, tiles_down, total;    /* tiles, or elements / 1 */
    uint32_t width, tiled;
    const char *x;
    char *y;
};

TN_DEVICE uint32_t read_bits(const copy &k, int64_t at)
{
    return k.width == 2 ? ((const uint16_t *)k.x)[at] : ((const uint32_t *)k.x)[at];
}

TN_DEVICE void write_bits(const copy &k, int64_t at, uint32_t bits)
{
    if (k.width == 2)
        ((uint16_t *)k.y)[at] = (uint16_t)bits;
    else
        ((uint32_t *)k.y)[at] = bits;
}

TN_KERNEL(TILE *ROWS) copy_tiles(TN_PARAM(copy) k)
{
    TN_SHARED(uint32_t, tile, TILE *(TILE + 1));
    const uint32_t i = threadIdx.x % TILE, j = threadIdx.x / TILE;

    for (uint32_t at = blockIdx.x; at < k.total; at += gridDim.x) {
        const uint32_t a0 = at % k.tiles_across * TILE, d0 = at / k.tiles_across % k.tiles_down * TILE;
        const tn_turn turn = tn_nest_turn(k.nest, at / k.tiles_across / k.tiles_down);
        const int64_t x = tn_nest_at(k.nest, turn, 0), y = tn_nest_at(k.nest, turn, 1);

        for (uint32_t r = j; r < TILE; r += ROWS)
            if (a0 + r < k.across && d0 + i < k.down)
                tile[r * (TILE + 1) + i] = read_bits(k, x + (a0 + r) * k.across_x + (d0 + i) * k.down_x);
        __syncthreads();
        for (uint32_t r = j; r < TILE; r += ROWS)
            if (a0 + i < k.across && d0 + r < k.down)
                write_bits(k, y + (a0 + i) * k.across_y + (d0 + r) * k.down_y, tile[i * (TILE + 1) + r]);
        __syncthreads();
    }
}

TN_KERNEL(256) copy_elements(TN_PARAM(copy) k)
{
    for (uint32_t at = blockIdx.x * 256 + threadIdx.x; at < k.total; at += gridDim.x * 256) {
        const tn_turn turn = tn_nest_turn(k.nest, at / k.across);
        const uint32_t i = at % k.across;

        write_bits(k, tn_nest_at(k.nest, turn, 1) + i * k.across_y,
                   read_bits(k, tn_nest_at(k.nest, turn, 0) + i * k.across_x));
    }
}

/* x is contiguous along another loop than y: takes that loop out of the nest. */
static void find_tile(struct copy *k)
{
    for (uint32_t l = 0; k->across_x != 1 && k->across >= 8 && l < k->nest.n; l++) {
        if (k->nest.stride[l][0] != 1 || k->nest.size[l] < 8)
            continue;
        k->tiled = 1, k->down = k->nest.size[l];
        k->down_x = 1, k->down_y = k->nest.stride[l][1];
        for (k->nest.n--; l < k->nest.n; l++) {
            k->nest.size[l] = k->nest.size[l + 1];
            memcpy(k->nest.stride[l], k->nest.stride[l + 1], sizeof k->nest.stride[l]);
        }
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct copy k = *(const struct copy *)state;

    k.x = (const char *)l->buffer[0], k.y = (char *)l->buffer[1];
    if (!k.total)
        return TN_OK;
    if (k.tiled)
        return TN_LAUNCH(copy_tiles, tn_grid(k.total), TILE * ROWS, l->queue, k);
    return TN_LAUNCH(copy_elements, tn_grid(TN_CUDA_PARTS(k.total, 256)), 256, l->queue, k);
}

extern "C" tn_status tn_cuda_prepare_copy(const struct tn_problem *p, struct tn_kernel *out)
{
    struct copy k = {};
    int64_t step[TN_MAX_OPERANDS], total;

    if (p->accumulate || p->in[0].dtype != p->out[0].dtype || !tn_cuda_nest_load(&k.nest, p, 0, p->n_loop))
        return TN_DECLINED;
    tn_cuda_nest_simplify(&k.nest, 1);
    if (k.nest.n == 1 && p->in[0].dtype != TN_I32 && k.nest.stride[0][0] == 1 && k.nest.stride[0][1] == 1)
        return tn_cuda_prepare_cast(p, out);     /* four elements at once */
    tn_cuda_nest_pop(&k.nest, &k.across, step);
    k.across_x = step[0], k.across_y = step[1], k.width = tn_cuda_width(p->in[0].dtype);
    find_tile(&k);
    k.tiles_across = TN_CUDA_PARTS(k.across, TILE), k.tiles_down = TN_CUDA_PARTS(k.down, TILE);
    total = tn_cuda_nest_count(&k.nest) * (k.tiled ? (int64_t)k.tiles_across * k.tiles_down : k.across);
    if (total > INT32_MAX)
        return TN_DECLINED;
    k.total = (uint32_t)total;
    return tn_cuda_keep(out, &k, sizeof k, launch);
}
