/* loss.cu - entries picked by number, and cross-entropy over the last dim, with their gradients.
 *
 * For pick the last dim may be a part of the whole one: a number that is not here, or negative, gives 0. For ce it
 * is whole; a block has a row, and reads it once for the log-sum-exp and in backward once more. */
#include "softmax.cuh"

#define THREADS 256

struct loss {
    struct tn_cuda_view x, index, rows, dx;      /* x and dx [I...;V], i [I...;], y or dy [I...;] */
    struct tn_cuda_map map;                      /* of the last dim; pick only */
    uint32_t n_row, n, chunks, total;            /* n: V */
};

TN_DEVICE int64_t number(const loss &k, uint32_t row)
{
    return ((const int32_t *)k.index.base)[tn_axis_at(k.index.row, row)];
}

TN_KERNEL(THREADS) pick(TN_PARAM(loss) k)
{
    for (uint32_t r = blockIdx.x * THREADS + threadIdx.x; r < k.n_row; r += gridDim.x * THREADS) {
        const int64_t id = number(k, r), c = id < 0 ? -1 : tn_map_find(k.map, id);

        tn_view_put(k.rows, tn_axis_at(k.rows.row, r), 0,
                    c < 0 ? 0.0f : tn_view_get(k.x, tn_axis_at(k.x.row, r), (uint32_t)c));
    }
}

TN_KERNEL(THREADS) pick_bwd(TN_PARAM(loss) k)
{
    for (uint32_t at = blockIdx.x * THREADS + threadIdx.x; at < k.total; at += gridDim.x * THREADS) {
        const uint32_t r = at / k.chunks, c = at % k.chunks * 4;
        const int64_t id = number(k, r), here = id < 0 ? -1 : tn_map_find(k.map, id);
        tn_f4 f = {};

        for (int i = 0; i < 4; i++)
            if (here == c + i)
                f.v[i] = tn_view_get(k.rows, tn_axis_at(k.rows.row, r), 0);
        tn_view_put4(k.dx, tn_axis_at(k.dx.row, r), c, f);
    }
}

TN_KERNEL(THREADS) ce(TN_PARAM(loss) k)
{
    for (uint32_t r = blockIdx.x; r < k.n_row; r += gridDim.x) {
        const int64_t id = number(k, r), x = tn_axis_at(k.x.row, r);
        float y = tn_lse_block<THREADS>(k.n, [&](uint32_t c) { return tn_view_get4(k.x, x, c); });

        if (threadIdx.x == 0) {
            y -= id >= 0 && id < k.n ? tn_view_get(k.x, x, (uint32_t)id) : 0.0f;
            tn_view_put(k.rows, tn_axis_at(k.rows.row, r), 0, id < 0 ? 0.0f : y);
        }
    }
}

/* dx may be the buffer of x: an element is written by the thread that has just read it. */
TN_KERNEL(THREADS) ce_bwd(TN_PARAM(loss) k)
{
    for (uint32_t r = blockIdx.x; r < k.n_row; r += gridDim.x) {
        const int64_t id = number(k, r), x = tn_axis_at(k.x.row, r), dx = tn_axis_at(k.dx.row, r);
        const float dy = tn_view_get(k.rows, tn_axis_at(k.rows.row, r), 0);
        const float lse = tn_lse_block<THREADS>(k.n, [&](uint32_t c) { return tn_view_get4(k.x, x, c); });

        for (uint32_t c = threadIdx.x * 4; c < k.n; c += THREADS * 4) {
            tn_f4 f = tn_view_get4(k.x, x, c);

            for (int i = 0; i < 4; i++)
                f.v[i] = id < 0 ? 0.0f : dy * (expf(f.v[i] - lse) - (c + i == id ? 1.0f : 0.0f));
            tn_view_put4(k.dx, dx, c, f);
        }
    }
}

/* --- host */
static struct loss bound(const void *state, const struct tn_launch *l)
{
    struct loss k = *(const struct loss *)state;

    tn_cuda_view_bind(&k.x, l), tn_cuda_view_bind(&k.index, l), tn_cuda_view_bind(&k.rows, l);
    tn_cuda_view_bind(&k.dx, l);
    return k;
}

static tn_status launch_pick(void *state, const struct tn_launch *l)
{
    const struct loss k = bound(state, l);

    return k.n_row ? TN_LAUNCH(pick, tn_grid(TN_CUDA_PARTS(k.n_row, THREADS)), THREADS, l->queue, k) : TN_OK;
}

static tn_status launch_pick_bwd(void *state, const struct tn_launch *l)
{
    const struct loss k = bound(state, l);

    return k.total ? TN_LAUNCH(pick_bwd, tn_grid(TN_CUDA_PARTS(k.total, THREADS)), THREADS, l->queue, k)
                   : TN_OK;
}

static tn_status launch_ce(void *state, const struct tn_launch *l)
{
    const struct loss k = bound(state, l);

    return k.n_row ? TN_LAUNCH(ce, tn_grid(k.n_row), THREADS, l->queue, k) : TN_OK;
}

static tn_status launch_ce_bwd(void *state, const struct tn_launch *l)
{
    const struct loss k = bound(state, l);

    return k.n_row ? TN_LAUNCH(ce_bwd, tn_grid(k.n_row), THREADS, l->queue, k) : TN_OK;
}

/* x: operand with the last dim; index, rows, dx: operands, TN_MAX_OPERANDS: none. */
static int load(struct loss *k, const struct tn_problem *p, uint32_t x, uint32_t index, uint32_t rows, uint32_t dx)
{
    const uint32_t rank = p->in[index].rank;
    const struct tn_operand *wide = x == TN_MAX_OPERANDS ? &p->out[0] : &p->in[x];
    int64_t total;

    if (p->in[index].dtype != TN_I32 || wide->rank != rank + 1 || !tn_cuda_map_load(&k->map, wide, rank) ||
        (x != TN_MAX_OPERANDS && !tn_cuda_view_load(&k->x, p, x, rank)) ||
        !tn_cuda_view_load(&k->index, p, index, rank) || !tn_cuda_view_load(&k->rows, p, rows, rank) ||
        (dx != TN_MAX_OPERANDS && !tn_cuda_view_load(&k->dx, p, dx, rank)))
        return 0;
    k->n_row = k->index.row.total, k->n = k->map.size, k->chunks = TN_CUDA_PARTS(k->n, 4);
    total = (int64_t)k->n_row * k->chunks;
    k->total = (uint32_t)total;
    return total <= INT32_MAX;
}

extern "C" tn_status tn_cuda_prepare_pick(const struct tn_problem *p, struct tn_kernel *out)
{
    struct loss k = {};

    return load(&k, p, 0, 1, 2, TN_MAX_OPERANDS) ? tn_cuda_keep(out, &k, sizeof k, launch_pick) : TN_DECLINED;
}

/* dy, i, like x -> dx */
extern "C" tn_status tn_cuda_prepare_pick_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    struct loss k = {};

    return load(&k, p, TN_MAX_OPERANDS, 1, 0, p->n_in) ? tn_cuda_keep(out, &k, sizeof k, launch_pick_bwd)
                                                       : TN_DECLINED;
}

extern "C" tn_status tn_cuda_prepare_ce(const struct tn_problem *p, struct tn_kernel *out)
{
    struct loss k = {};

    return load(&k, p, 0, 1, 2, TN_MAX_OPERANDS) ? tn_cuda_keep(out, &k, sizeof k, launch_ce) : TN_DECLINED;
}

/* dy, x, i -> dx */
extern "C" tn_status tn_cuda_prepare_ce_bwd(const struct tn_problem *p, struct tn_kernel *out)
{
    struct loss k = {};

    return load(&k, p, 1, 2, 0, 3) ? tn_cuda_keep(out, &k, sizeof k, launch_ce_bwd) : TN_DECLINED;
}
