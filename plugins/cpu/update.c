/* update.c - AdamW in one pass over memory.
 *
 * An optimizer is text, and every text runs as an element-wise program (program.c). That costs more time
 * than memory does. So programs that are known by their text get a loop of their own: four
 * streams in, three of them out again, everything between in registers. The operations and their order are
 * those of the program, so the bits are too.
 *
 * Texts are compared with each number and each uniform replaced by "#"; what stood there, in order, are the
 * numbers of the loop. A text that is not known is no error: elementwise.c takes it. Results are written where
 * they were read, into lines that are in the cache, so stores around the cache would gain nothing. */
#include <ctype.h>
#include <math.h>
#include "cpu.h"

#define PIECE 4096 /* elements that are worth a thread's while */
#define NUMBERS 10

/* In the order of the texts; scale is 1 where the text has none. */
enum number { SCALE, BETA1, NEW1, BETA2, NEW2, DECAY, LR, BIAS1, BIAS2, EPS };

#define MOMENTS(g, m, v) m " = #*c + #*" g "; " v " = #*d + #*" g "*" g "; "
#define STEP(m, v) "r0 = a*# - #*(" m "/#/(sqrt(" v "/#) + #)); r1 = " m "; r2 = " v

/* The gradient as it is, clipped, unscaled, unscaled and clipped (libcore/pass/finish.c). */
static const struct form {
    const char *text;
    uint32_t scaled, clipped;
} forms[] = {
    {MOMENTS("b", "t0", "t1") STEP("t0", "t1"), 0, 0},
    {"t0 = b*e; " MOMENTS("t0", "t1", "t2") STEP("t1", "t2"), 0, 1},
    {"t0 = b*#; " MOMENTS("t0", "t1", "t2") STEP("t1", "t2"), 1, 0},
    {"t0 = b*#*e; " MOMENTS("t0", "t1", "t2") STEP("t1", "t2"), 1, 1},
};

struct update {
    int64_t n;
    uint32_t scaled, clipped;
    float constant[NUMBERS];
    int32_t uniform[NUMBERS]; /* its index, or -1: the constant */
};
struct run {
    const float *w, *g, *m, *v, *clip;
    float *w_new, *m_new, *v_new;
    float number[NUMBERS];
};

static void adamw(void *arg, int64_t lo, int64_t hi)
{
    const struct run *r = arg;
    const float *w = r->w, *g = r->g, *m = r->m, *v = r->v, *k = r->number;
    const float scale = k[SCALE], clip = *r->clip, beta1 = k[BETA1], new1 = k[NEW1], beta2 = k[BETA2],
                new2 = k[NEW2], decay = k[DECAY], lr = k[LR], bias1 = k[BIAS1], bias2 = k[BIAS2], eps = k[EPS];
    float *w_new = r->w_new, *m_new = r->m_new, *v_new = r->v_new;

    _Pragma("omp simd") for (int64_t i = lo; i < hi; i++)
    {
        const float grad = g[i] * scale * clip;
        const float mean = beta1 * m[i] + new1 * grad;
        const float square = beta2 * v[i] + new2 * grad * grad;
        const float now = w[i] * decay - lr * (mean / bias1 / (sqrtf(square / bias2) + eps));

        w_new[i] = now, m_new[i] = mean, v_new[i] = square;
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    static const float one = 1;
    const struct update *u = state;
    const float *uniform = l->uniform;
    void *const *b = l->buffer, *const *out = b + 4 + u->clipped;
    struct run r = {b[0], b[1], b[2], b[3], u->clipped ? b[4] : &one, out[0], out[1], out[2], {0}};

    for (uint32_t i = 0; i < NUMBERS; i++)
        r.number[i] = u->uniform[i] < 0 ? u->constant[i] : uniform[u->uniform[i]];
    tn_host->parallel(u->n, PIECE, adamw, &r);
    return TN_OK;
}

/* Is text of this form? Then its numbers are in u. */
static int matches(const char *text, const struct form *f, struct update *u)
{
    uint32_t n = 0;

    u->scaled = f->scaled, u->clipped = f->clipped;
    u->constant[SCALE] = 1, u->uniform[SCALE] = -1;
    n = f->scaled ? SCALE : BETA1;
    for (const char *at = f->text; *at; at++) {
        char *end = (char *)(uintptr_t)text + 1;

        if (*at == '#') {
            if (n == NUMBERS || (*text != 'u' && !isdigit((unsigned char)*text)))
                return 0;
            u->uniform[n] = *text == 'u' ? (int32_t)strtol(text + 1, &end, 10) : -1;
            u->constant[n] = *text == 'u' ? 0 : (float)strtod(text, &end);
            n++;
        } else if (*at != *text) {
            return 0;
        }
        text = end;
    }
    return !*text && n == NUMBERS;
}

/* Elements one behind the other in all operands but the factor of clipping, which is one number. */
static int is_flat(const struct tn_problem *p, struct update *u)
{
    struct tn_nest nest;

    if (!tn_nest_load(&nest, p, 0, p->n_loop))
        return 0;
    tn_nest_simplify(&nest, 0);
    if (nest.n > 1)
        return 0;
    for (uint32_t i = 0; i < p->n_in + p->n_out && nest.n; i++)
        if (nest.stride[0][i] != (u->clipped && i == 4 ? 0 : 1))
            return 0;
    u->n = tn_nest_count(&nest);
    return 1;
}

tn_status tn_cpu_update_make(const struct tn_problem *p, struct tn_kernel *out)
{
    struct update u = {0};
    uint32_t i = 0;

    while (i < sizeof forms / sizeof *forms && !matches(p->program->text, &forms[i], &u))
        i++;
    if (i == sizeof forms / sizeof *forms || p->n_in != 4 + u.clipped || p->n_out != 3 || p->accumulate ||
        !tn_all_f32(p) || !is_flat(p, &u))
        return TN_DECLINED;
    out->launch = launch;
    return tn_keep(out, &u, sizeof u, p->op);
}
