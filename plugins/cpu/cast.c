/* cast.c - between fp32, bf16 and fp16, round to nearest even; arrays without gaps.
 *
 * The numbers are those of half.h. */
#include "cpu.h"
#include "half.h"

#define CHUNK 512

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
        EACH(float, uint16_t, tn_to_bf16)
    else if (r->c->to == TN_F16)
        EACH(float, uint16_t, tn_to_f16)
    else if (r->c->from == TN_BF16)
        EACH(uint16_t, float, tn_from_bf16)
    else
        EACH(uint16_t, float, tn_from_f16)
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

tn_status tn_cpu_prepare_cast(const struct tn_problem *p, struct tn_kernel *out)
{
    struct cast c = {tn_count(&p->in[0]), p->in[0].dtype, p->out[0].dtype};

    if (!(c.from == TN_F32 && tn_is_half(c.to)) && !(tn_is_half(c.from) && c.to == TN_F32))
        return TN_DECLINED;
    if (p->accumulate || !tn_contiguous(&p->in[0]) || !tn_contiguous(&p->out[0]))
        return TN_DECLINED;
    out->launch = launch;
    return tn_keep(out, &c, sizeof c, p->op);
}
