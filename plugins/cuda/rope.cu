/* rope.cu - rotary positions: pairs of each row turned by the angles of its position.
 *
 * A thread turns eight neighbouring pairs where all of them can be read 16 bytes at a time, else one. Rows of the table
 * of angles are read by all heads of a token, from the cache. y may be x: a pair is read before it is written. */
#include "cu.cuh"

#define THREADS 256

struct rope_plan {
    struct tn_cuda_view x, pos, table, y;        /* x, y [...; D], pos [T;], table [R; D] */
    uint32_t half, times, inner;                 /* inner: rows beside each other at one position */
    float sign;
};

/* Where the table has the angles of row r of x; 0 where it has no row for that position. */
TN_DEVICE int angles_of(const rope_plan &k, uint32_t r, int64_t *row)
{
    const int32_t pos = ((const int32_t *)k.pos.base)[tn_axis_at(k.pos.row, r / k.inner % k.times)];

    *row = pos < 0 || (uint32_t)pos >= k.table.row.total ? 0 : tn_axis_at(k.table.row, (uint32_t)pos);
    return pos >= 0 && (uint32_t)pos < k.table.row.total;
}

TN_KERNEL(THREADS) rope(TN_PARAM(rope_plan) k)
{
    const int64_t pairs = (int64_t)k.x.row.total * k.half;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < pairs; i += (int64_t)gridDim.x * THREADS) {
        const uint32_t r = (uint32_t)(i / k.half), c = (uint32_t)(i % k.half);
        const int64_t x = tn_axis_at(k.x.row, r), y = tn_axis_at(k.y.row, r);
        int64_t row;
        const int here = angles_of(k, r, &row);
        const float cosine = tn_view_get(k.table, row, c), sine = k.sign * tn_view_get(k.table, row, k.half + c);
        const float a = tn_view_get(k.x, x, c), b = tn_view_get(k.x, x, k.half + c);

        tn_view_put(k.y, y, c, here ? a * cosine - b * sine : 0.0f);
        tn_view_put(k.y, y, k.half + c, here ? b * cosine + a * sine : 0.0f);
    }
}

TN_KERNEL(THREADS) rope8(TN_PARAM(rope_plan) k)
{
    const uint32_t each = k.half / 8;
    const int64_t turns = (int64_t)k.x.row.total * each;

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < turns; i += (int64_t)gridDim.x * THREADS) {
        const uint32_t r = (uint32_t)(i / each), c = (uint32_t)(i % each) * 8;
        const int64_t x = tn_axis_at(k.x.row, r), y = tn_axis_at(k.y.row, r);
        int64_t row;
        const int here = angles_of(k, r, &row);
        const tn_f8 cosine = tn_view_get8(k.table, row, c), sine = tn_view_get8(k.table, row, k.half + c);
        tn_f8 a = tn_view_get8(k.x, x, c), b = tn_view_get8(k.x, x, k.half + c);

        for (int j = 0; j < 8; j++) {
            const float s = k.sign * sine.v[j], p = a.v[j], q = b.v[j];

            a.v[j] = here ? p * cosine.v[j] - q * s : 0.0f;
            b.v[j] = here ? q * cosine.v[j] + p * s : 0.0f;
        }
        tn_view_put8(k.y, y, c, a);
        tn_view_put8(k.y, y, k.half + c, b);
    }
}

/* --- host */
static tn_status launch(void *state, const struct tn_launch *l)
{
    struct rope_plan k = *(const struct rope_plan *)state;

    tn_cuda_view_bind(&k.x, l), tn_cuda_view_bind(&k.pos, l), tn_cuda_view_bind(&k.table, l), tn_cuda_view_bind(&k.y, l);
    if (!k.x.row.total)
        return TN_OK;
    if (k.half % 8 == 0 && k.x.wide == 8 && k.y.wide == 8 && k.table.wide == 8)
        return TN_LAUNCH(rope8, tn_grid(TN_CUDA_PARTS((int64_t)k.x.row.total * k.half / 8, THREADS)), THREADS, l->queue, k);
    return TN_LAUNCH(rope, tn_grid(TN_CUDA_PARTS((int64_t)k.x.row.total * k.half, THREADS)), THREADS, l->queue, k);
}

extern "C" tn_status tn_cuda_prepare_rope(const struct tn_problem *p, struct tn_kernel *out)
{
    const struct tn_operand *x = &p->in[0];
    struct rope_plan k = {};
    uint32_t along = 0;

    while (along + 1 < x->rank && strcmp(x->dim[along], p->in[1].dim[0]))
        along++;
    k.inner = 1, k.sign = (float)tn_problem_float(p, "sign", 1);
    for (uint32_t d = along + 1; d + 1 < x->rank; d++)
        k.inner *= (uint32_t)x->size[d];
    if (p->in[1].dtype != TN_I32 || !tn_cuda_view_load(&k.x, p, 0, x->rank - 1) || !tn_cuda_view_load(&k.pos, p, 1, 1) ||
        !tn_cuda_view_load(&k.table, p, 2, 1) || !tn_cuda_view_load(&k.y, p, 3, x->rank - 1))
        return TN_DECLINED;
    k.half = k.x.col.total / 2, k.times = k.pos.row.total;
    return tn_cuda_keep(out, &k, sizeof k, launch);
}
