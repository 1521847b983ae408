/* cast.c - between fp32, bf16 and fp16, round to nearest even; arrays without gaps.
 *
 * bf16 is the upper half of fp32. fp16 goes through integer arithmetic that needs no support by the machine: the
 * compiler vectorises it. NaN stays NaN, what is too large becomes infinite. */
#include "cpu.h"

#define CHUNK 512

union word {
    float f;
    uint32_t u;
};

static inline uint16_t to_bf16(float x)
{
    union word w = {.f = x};
    uint32_t rounded = (w.u + 0x7fffu + (w.u >> 16 & 1)) >> 16;

    return (uint16_t)(x != x ? w.u >> 16 | 0x40u : rounded);
}
static inline float from_bf16(uint16_t h)
{
    return (union word){.u = (uint32_t)h << 16}.f;
}

/* Below 2^-14 the sum with 1/2 rounds to the spacing of fp16's subnormals, whose bits it then ends in. */
static inline uint16_t to_f16(float x)
{
    union word w = {.f = x}, small = {.u = w.u & 0x7fffffffu};
    uint32_t sign = w.u >> 16 & 0x8000u, a = small.u;
    uint32_t normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13;

    small.f += 0.5f;
    uint32_t tiny = small.u - 0x3f000000u, h = a < 0x38800000u ? tiny : normal;

    h = a >= 0x477ff000u ? 0x7c00u : h;
    return (uint16_t)(sign | (a > 0x7f800000u ? 0x7e00u : h));
}
static inline float from_f16(uint16_t h)
{
    uint32_t a = h & 0x7fffu;
    union word normal = {.u = (a << 13) + 0x38000000u}, special = {.u = (a << 13) + 0x70000000u}, y;

    y.f = a < 0x400u ? (float)(int32_t)a * 0x1p-24f : normal.f;
    y.u = a >= 0x7c00u ? special.u : y.u;
    y.u |= (uint32_t)(h & 0x8000u) << 16;
    return y.f;
}

struct cast {
    int64_t n;
    uint32_t from, to;
};
struct run {
    const struct cast *c;
    const void *x;
    void *y;
};

/* Through a chunk of x, for y may be the same buffer. */
#define EACH(X, Y, f)                                                                                        \
    for (int64_t at = lo; at < hi; at += CHUNK) {                                                            \
        int64_t n = TN_MIN(CHUNK, hi - at);                                                                  \
        X x[CHUNK];                                                                                          \
        Y y[CHUNK];                                                                                          \
        memcpy(x, (const X *)r->x + at, (size_t)n * sizeof *x);                                              \
        for (int64_t i = 0; i < n; i++)                                                                      \
            y[i] = f(x[i]);                                                                                  \
        memcpy((Y *)r->y + at, y, (size_t)n * sizeof *y);                                                    \
    }
static void run_range(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;

    if (r->c->to == TN_BF16)
        EACH(float, uint16_t, to_bf16)
    else if (r->c->to == TN_F16)
        EACH(float, uint16_t, to_f16)
    else if (r->c->from == TN_BF16)
        EACH(uint16_t, float, from_bf16)
    else
        EACH(uint16_t, float, from_f16)
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct run r = {state, l->buffer[0], l->buffer[1]};

    if (r.x == r.y)                              /* it shrinks in place: in order, on one thread */
        run_range(&r, 0, r.c->n);
    else
        tn_host->parallel(r.c->n, 32768, run_range, &r);
    return TN_OK;
}

static int is_half(uint32_t dtype)
{
    return dtype == TN_BF16 || dtype == TN_F16;
}

tn_status tn_cpu_prepare_cast(const struct tn_problem *p, struct tn_kernel *out)
{
    struct cast c = {tn_count(&p->in[0]), p->in[0].dtype, p->out[0].dtype};

    if (!(c.from == TN_F32 && is_half(c.to)) && !(is_half(c.from) && c.to == TN_F32))
        return TN_DECLINED;
    if (p->accumulate || !tn_contiguous(&p->in[0]) || !tn_contiguous(&p->out[0]))
        return TN_DECLINED;
    out->launch = launch;
    return tn_keep(out, &c, sizeof c, p->op);
}
