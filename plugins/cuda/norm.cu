/* norm.cu - layernorm and rmsnorm over the last dim, and their gradients. rmsnorm is layernorm with mean 0, without a bias,
 * and without mean(d) in its gradient.
 *
 * A warp has a row: its lanes read eight neighbours each, and read the row again from the cache where they need
 * it again. The variance is taken around the mean, in a second walk. dw sums over rows: blocks of fixed numbers of
 * rows make partial rows in the workspace, a second kernel adds those in order. */
#include "cu.cuh"

#define WARPS 8
#define THREADS (32 * WARPS)
#define MOST_PARTS 256
#define SPAN 256                                 /* columns of a block, or of a turn of a warp */

struct norm_plan {
    struct tn_cuda_view x, dy, w, b, mean, rstd, y; /* w, b: no rows; mean, rstd: no columns */
    uint32_t has_b, rms, rows, width;            /* rms: there is no mean */
    float eps;
    uint32_t parts, per_part;                    /* ln_dw: rows in a part */
    float *partial;                              /* [parts, width] */
};

TN_DEVICE float mean_at(const norm_plan &k, uint32_t row)
{
    return k.rms ? 0.0f : tn_view_get(k.mean, tn_axis_at(k.mean.row, row), 0);
}

TN_DEVICE float row_sum(const tn_cuda_view &x, int64_t row)
{
    float sum = 0;

    for (uint32_t c = threadIdx.x % 32 * 8; c < x.col.total; c += SPAN) {
        const tn_f8 f = tn_view_get8(x, row, c);

        for (int i = 0; i < 8; i += 2)
            sum += f.v[i] + f.v[i + 1];
    }
    return tn_warp_sum(sum);
}

TN_DEVICE float row_squares(const tn_cuda_view &x, int64_t row, float mean)
{
    float sum = 0;

    for (uint32_t c = threadIdx.x % 32 * 8; c < x.col.total; c += SPAN) {
        const tn_f8 f = tn_view_get8(x, row, c);

        for (uint32_t i = 0; i < 8; i++)
            sum += c + i < x.col.total ? (f.v[i] - mean) * (f.v[i] - mean) : 0.0f;
    }
    return tn_warp_sum(sum);
}

TN_KERNEL(THREADS, 4) layernorm(TN_PARAM(norm_plan) k)
{
    for (uint32_t r = blockIdx.x * WARPS + threadIdx.x / 32; r < k.rows; r += gridDim.x * WARPS) {
        const int64_t x = tn_axis_at(k.x.row, r), y = tn_axis_at(k.y.row, r);
        const float mean = k.rms ? 0.0f : row_sum(k.x, x) / k.width;
        const float rstd = 1 / sqrtf(row_squares(k.x, x, mean) / k.width + k.eps);

        for (uint32_t c = threadIdx.x % 32 * 8; c < k.width; c += SPAN) {
            const tn_f8 w = tn_view_get8(k.w, 0, c), b = k.has_b ? tn_view_get8(k.b, 0, c) : tn_f8{};
            tn_f8 f = tn_view_get8(k.x, x, c);

            for (int i = 0; i < 8; i++)
                f.v[i] = (f.v[i] - mean) * rstd * w.v[i] + b.v[i];
            tn_view_put8(k.y, y, c, f);
        }
        if (threadIdx.x % 32 == 0 && !k.rms)
            tn_view_put(k.mean, tn_axis_at(k.mean.row, r), 0, mean);
        if (threadIdx.x % 32 == 0)
            tn_view_put(k.rstd, tn_axis_at(k.rstd.row, r), 0, rstd);
    }
}

/* dx = rstd * (d - mean(d) - hat * mean(d * hat)), where d = dy * w and hat = (x - mean) * rstd */
TN_KERNEL(THREADS, 4) ln_dx(TN_PARAM(norm_plan) k)
{
    for (uint32_t r = blockIdx.x * WARPS + threadIdx.x / 32; r < k.rows; r += gridDim.x * WARPS) {
        const int64_t x = tn_axis_at(k.x.row, r), dy = tn_axis_at(k.dy.row, r), dx = tn_axis_at(k.y.row, r);
        const float mean = mean_at(k, r);
        const float rstd = tn_view_get(k.rstd, tn_axis_at(k.rstd.row, r), 0);
        float sum = 0, dot = 0;

        for (uint32_t c = threadIdx.x % 32 * 8; c < k.width; c += SPAN) {
            const tn_f8 g = tn_view_get8(k.dy, dy, c), w = tn_view_get8(k.w, 0, c), f = tn_view_get8(k.x, x, c);

            for (uint32_t i = 0; i < 8; i++) {
                const float d = c + i < k.width ? g.v[i] * w.v[i] : 0.0f;

                sum += d;
                dot += c + i < k.width ? d * ((f.v[i] - mean) * rstd) : 0.0f;
            }
        }
        sum = k.rms ? 0.0f : tn_warp_sum(sum) / k.width, dot = tn_warp_sum(dot) / k.width;
        for (uint32_t c = threadIdx.x % 32 * 8; c < k.width; c += SPAN) {
            const tn_f8 g = tn_view_get8(k.dy, dy, c), w = tn_view_get8(k.w, 0, c);
            tn_f8 f = tn_view_get8(k.x, x, c);

            for (int i = 0; i < 8; i++)
                f.v[i] = rstd * (g.v[i] * w.v[i] - sum - (f.v[i] - mean) * rstd * dot);
            tn_view_put8(k.y, dx, c, f);
        }
    }
}

/* 256 columns of a part of the rows: a lane has eight of them, warps go along the rows. */
TN_KERNEL(THREADS) ln_dw_part(TN_PARAM(norm_plan) k)
{
    TN_SHARED(float, part, WARPS *SPAN);
    const uint32_t t = threadIdx.x, c = blockIdx.x * SPAN + t % 32 * 8, first = blockIdx.y * k.per_part;
    const uint32_t end = first + k.per_part < k.rows ? first + k.per_part : k.rows;
    float sum[8] = {};

    for (uint32_t r = first + t / 32; r < end && c < k.width; r += WARPS) {
        const float mean = mean_at(k, r);
        const float rstd = tn_view_get(k.rstd, tn_axis_at(k.rstd.row, r), 0);
        const tn_f8 g = tn_view_get8(k.dy, tn_axis_at(k.dy.row, r), c);
        const tn_f8 f = tn_view_get8(k.x, tn_axis_at(k.x.row, r), c);

        for (int i = 0; i < 8; i++)
            sum[i] += g.v[i] * (f.v[i] - mean) * rstd;
    }
    for (uint32_t i = 0; i < 8; i++)
        part[t / 32 * SPAN + i * 32 + t % 32] = sum[i];
    __syncthreads();
    for (uint32_t w = 1; w < WARPS; w++)         /* thread t: column t % 32 * 8 + t / 32 of the block */
        part[t] += (float)part[w * SPAN + t];
    if (blockIdx.x * SPAN + t % 32 * 8 + t / 32 < k.width)
        k.partial[(int64_t)blockIdx.y * k.width + blockIdx.x * SPAN + t % 32 * 8 + t / 32] = part[t];
}

TN_KERNEL(THREADS) ln_dw_add(TN_PARAM(norm_plan) k)
{
    for (uint32_t c = blockIdx.x * THREADS + threadIdx.x; c < k.width; c += gridDim.x * THREADS) {
        float sum = 0;

        for (uint32_t p = 0; p < k.parts; p++)
            sum += k.partial[(int64_t)p * k.width + c];
        tn_view_put(k.y, 0, c, sum);
    }
}

/* --- host */
static struct norm_plan bound(const void *state, const struct tn_launch *l)
{
    struct norm_plan k = *(const struct norm_plan *)state;

    tn_cuda_view_bind(&k.x, l), tn_cuda_view_bind(&k.dy, l), tn_cuda_view_bind(&k.w, l);
    tn_cuda_view_bind(&k.b, l), tn_cuda_view_bind(&k.mean, l), tn_cuda_view_bind(&k.rstd, l);
    tn_cuda_view_bind(&k.y, l);
    k.partial = (float *)l->workspace;
    return k;
}

static tn_status launch_forward(void *state, const struct tn_launch *l)
{
    const struct norm_plan k = bound(state, l);

    return k.rows ? TN_LAUNCH(layernorm, tn_grid(TN_CUDA_PARTS(k.rows, WARPS)), THREADS, l->queue, k) : TN_OK;
}

static tn_status launch_dx(void *state, const struct tn_launch *l)
{
    const struct norm_plan k = bound(state, l);

    return k.rows ? TN_LAUNCH(ln_dx, tn_grid(TN_CUDA_PARTS(k.rows, WARPS)), THREADS, l->queue, k) : TN_OK;
}

static tn_status launch_dw(void *state, const struct tn_launch *l)
{
    const struct norm_plan k = bound(state, l);
    tn_status s = TN_OK;

    if (k.parts)
        s = TN_LAUNCH(ln_dw_part, dim3(TN_CUDA_PARTS(k.width, SPAN), k.parts), THREADS, l->queue, k);
    return s ? s : TN_LAUNCH(ln_dw_add, TN_CUDA_PARTS(k.width, THREADS), THREADS, l->queue, k);
}

static int has_width(const struct tn_problem *p)
{
    const struct tn_operand *x = &p->in[0];

    return x->rank > 0 && x->size[x->rank - 1] > 0;
}

static tn_status prepare_forward(const struct tn_problem *p, uint32_t rms, struct tn_kernel *out)
{
    const uint32_t split = p->in[0].rank - 1, n = p->n_in;
    struct norm_plan k = {};

    if (!has_width(p) || !tn_cuda_view_load(&k.x, p, 0, split) || !tn_cuda_view_load(&k.w, p, 1, 0) ||
        (n > 2 && !tn_cuda_view_load(&k.b, p, 2, 0)) || !tn_cuda_view_load(&k.y, p, n, split) ||
        (!rms && !tn_cuda_view_load(&k.mean, p, n + 1, split)) || !tn_cuda_view_load(&k.rstd, p, n + 2 - rms, split))
        return TN_DECLINED;
    k.has_b = n > 2, k.rms = rms, k.rows = k.x.row.total, k.width = k.x.col.total;
    k.eps = (float)tn_problem_float(p, "eps", 1e-5);
    return tn_cuda_keep(out, &k, sizeof k, launch_forward);
}

extern "C" tn_status tn_cuda_prepare_layernorm(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_forward(p, 0, out);
}

extern "C" tn_status tn_cuda_prepare_rmsnorm(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_forward(p, 1, out);
}

/* dy, x, w, mean, rstd -> dx */
static tn_status prepare_dx(const struct tn_problem *p, uint32_t rms, struct tn_kernel *out)
{
    const uint32_t split = p->in[0].rank - 1;
    struct norm_plan k = {};

    if (!has_width(p) || !tn_cuda_view_load(&k.dy, p, 0, split) || !tn_cuda_view_load(&k.x, p, 1, split) ||
        !tn_cuda_view_load(&k.w, p, 2, 0) || (!rms && !tn_cuda_view_load(&k.mean, p, 3, split)) ||
        !tn_cuda_view_load(&k.rstd, p, 4 - rms, split) || !tn_cuda_view_load(&k.y, p, 5 - rms, split))
        return TN_DECLINED;
    k.rms = rms, k.rows = k.x.row.total, k.width = k.x.col.total;
    return tn_cuda_keep(out, &k, sizeof k, launch_dx);
}

extern "C" tn_status tn_cuda_prepare_ln_dx(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_dx(p, 0, out);
}

extern "C" tn_status tn_cuda_prepare_rms_dx(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_dx(p, 1, out);
}

/* dy, x, mean, rstd -> dw */
static tn_status prepare_dw(const struct tn_problem *p, uint32_t rms, struct tn_kernel *out)
{
    const uint32_t split = p->in[0].rank - 1;
    struct norm_plan k = {};
    tn_status s;

    if (!has_width(p) || !tn_cuda_view_load(&k.dy, p, 0, split) || !tn_cuda_view_load(&k.x, p, 1, split) ||
        (!rms && !tn_cuda_view_load(&k.mean, p, 2, split)) || !tn_cuda_view_load(&k.rstd, p, 3 - rms, split) ||
        !tn_cuda_view_load(&k.y, p, 4 - rms, 0))
        return TN_DECLINED;
    k.rms = rms, k.rows = k.x.row.total, k.width = k.x.col.total;
    k.per_part = TN_CUDA_MAX(64, TN_CUDA_PARTS(k.rows, MOST_PARTS));
    k.parts = TN_CUDA_PARTS(k.rows, k.per_part);
    if (!(s = tn_cuda_keep(out, &k, sizeof k, launch_dw)))
        out->workspace = (uint64_t)k.parts * k.width * sizeof(float);
    return s;
}

extern "C" tn_status tn_cuda_prepare_ln_dw(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_dw(p, 0, out);
}

extern "C" tn_status tn_cuda_prepare_rms_dw(const struct tn_problem *p, struct tn_kernel *out)
{
    return prepare_dw(p, 1, out);
}
