/* rope.c - rotary positions, the heads of a token at a time.
 *
 * What lies beside each other at one position shares a row of cosines and sines. bf16 and fp16 are turned as floats
 * and rounded once. y may be x: a pair is read before it is written. */
#include "cpu.h"
#include "half.h"

#define MOST_HALF 512                            /* floats of half a head of bf16 or fp16 */

struct rope {
    int64_t places, times, heads, half;          /* blocks of heads; positions; heads of a block */
    int64_t x_step, y_step, pos_step, table_step, rows;
    uint32_t dtype;
    float sign;
};
struct run {
    const struct rope *k;
    const struct tn_launch *l;
};

static inline void turn(const float *x, const float *cosine, const float *sine, float sign, int64_t half, float *y)
{
    _Pragma("omp simd") for (int64_t i = 0; i < half; i++)
    {
        float a = x[i], b = x[half + i], c = cosine[i], s = sign * sine[i];

        y[i] = a * c - b * s;
        y[half + i] = b * c + a * s;
    }
}

static void turn_low(const struct rope *k, const char *x, const float *angles, char *y)
{
    float row[2 * MOST_HALF];

    tn_half_load(k->dtype, x, 1, 2 * k->half, row);
    turn(row, angles, angles + k->half, k->sign, k->half, row);
    tn_half_store(k->dtype, row, 1, 2 * k->half, y);
}

/* lo..hi number blocks of heads. */
static void rows(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    const struct rope *k = r->k;
    const int64_t width = tn_width(k->dtype);

    for (int64_t place = lo; place < hi; place++) {
        const int64_t pos = ((const int32_t *)r->l->buffer[1])[place % k->times * k->pos_step];
        const float *angles = (const float *)r->l->buffer[2] + pos * k->table_step;

        for (int64_t h = place * k->heads; h < (place + 1) * k->heads; h++) {
            const char *x = (const char *)r->l->buffer[0] + h * k->x_step * width;
            char *y = (char *)r->l->buffer[3] + h * k->y_step * width;

            if (pos < 0 || pos >= k->rows)
                memset(y, 0, (size_t)(2 * k->half * width));
            else if (k->dtype == TN_F32)
                turn((const float *)(const void *)x, angles, angles + k->half, k->sign, k->half, (float *)(void *)y);
            else
                turn_low(k, x, angles, y);
        }
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct run r = {state, l};

    tn_host->parallel(r.k->places, TN_MAX(1, 8192 / (r.k->heads * r.k->half + 1)), rows, &r);
    return TN_OK;
}

tn_status tn_cpu_prepare_rope(const struct tn_problem *p, struct tn_kernel *out)
{
    const struct tn_operand *x = &p->in[0], *pos = &p->in[1], *table = &p->in[2];
    struct rope k = {.dtype = x->dtype, .heads = 1, .places = 1, .sign = (float)tn_problem_float(p, "sign", 1)};
    uint32_t along = 0;

    if (p->accumulate || pos->dtype != TN_I32 || table->dtype != TN_F32 || p->out[0].dtype != x->dtype)
        return TN_DECLINED;
    while (along + 1 < x->rank && strcmp(x->dim[along], pos->dim[0]))
        along++;
    for (uint32_t d = 0; d + 1 < x->rank; d++)
        *(d > along ? &k.heads : &k.places) *= x->size[d];
    k.times = x->size[along], k.half = x->size[x->rank - 1] / 2, k.rows = table->size[0];
    if ((k.dtype != TN_F32 && (!tn_is_half(k.dtype) || k.half > MOST_HALF)) || !tn_operand_rows(x, 1, &k.x_step) ||
        !tn_operand_rows(&p->out[0], 1, &k.y_step) || !tn_operand_rows(pos, 0, &k.pos_step) ||
        !tn_operand_rows(table, 1, &k.table_step))
        return TN_DECLINED;
    out->launch = launch;
    return tn_keep(out, &k, sizeof k, p->op);
}
