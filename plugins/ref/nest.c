/* nest.c - everything that arrives as a nest of loops: einsum, sum, sumsq, rowmax, expand, copy, cast, accum
 * and expr.
 *
 * The last loop over the output is cut into lanes, up to TN_REF_LANES elements that are computed together in
 * double. Around them the other loops over the output, inside them the reduced ones, both by recursion:
 *
 *     for each outer position, for each block of lanes:
 *         value[lane] = 0; for each reduced position: value[lane] += a * b
 *         run the program, if there is one, and store
 *
 * So a lane's sum has one order, whatever the strides, and every input of an element is read before any of
 * its outputs is written: an output may be the buffer of an input. */
#include "ref.h"

#define MAX_LOOPS (2 * TN_MAX_RANK + 1)

/* what value[lane] is */
#define LOAD 0u                                  /* in 0 */
#define SUM 1u                                   /* sum of in 0 */
#define PRODUCT 2u                               /* sum of in 0 times in second */
#define MAX 3u                                   /* maximum of in 0 */
#define NOTHING 4u                               /* the program reads the inputs itself */

struct nest {
    struct tn_ref_base base;
    uint32_t what, second, n_in, n_out, accumulate;
    uint32_t n_loop, lane; /* loop[lane] is cut into lanes, those behind it are reduced */
    struct tn_loop loop[MAX_LOOPS];
    uint32_t dtype[TN_MAX_OPERANDS];
    uint32_t extra;                              /* first input that the program reads from memory */
    const struct tn_ref_program *program;        /* or NULL */
};

/* value[lane] for one position of the reduced loops; a and b: offsets of lane 0. */
static void fold(const struct nest *k, const struct tn_launch *l, int64_t a, int64_t b, int64_t n,
                 double *value)
{
    const uint32_t two = k->second, da = k->dtype[0], db = k->dtype[two];
    const int64_t sa = k->loop[k->lane].stride[0], sb = k->loop[k->lane].stride[two];
    const void *x = l->buffer[0], *w = l->buffer[two];

    if (k->what == PRODUCT && da == TN_F32 && db == TN_F32) {
        const float *xf = (const float *)x + a, *wf = (const float *)w + b;

        for (int64_t j = 0; j < n; j++)
            value[j] += (double)xf[j * sa] * wf[j * sb];
    } else if (k->what == PRODUCT) {
        for (int64_t j = 0; j < n; j++)
            value[j] += tn_ref_load(da, x, a + j * sa) * tn_ref_load(db, w, b + j * sb);
    } else if (k->what == SUM) {
        for (int64_t j = 0; j < n; j++)
            value[j] += tn_ref_load(da, x, a + j * sa);
    } else {
        for (int64_t j = 0; j < n; j++) {
            double v = tn_ref_load(da, x, a + j * sa);

            value[j] = v > value[j] || isnan(v) ? v : value[j];
        }
    }
}

static void reduce(const struct nest *k, const struct tn_launch *l, uint32_t depth, int64_t a, int64_t b,
                   int64_t n, double *value)
{
    const struct tn_loop *loop = &k->loop[depth];

    if (depth == k->n_loop) {
        fold(k, l, a, b, n, value);
        return;
    }
    for (int64_t i = 0; i < loop->size; i++)
        reduce(k, l, depth + 1, a + i * loop->stride[0], b + i * loop->stride[k->second], n, value);
}

static void load(const struct nest *k, const struct tn_launch *l, uint32_t i, const int64_t *at, int64_t n,
                 double *to)
{
    for (int64_t j = 0; j < n; j++)
        to[j] = tn_ref_load(k->dtype[i], l->buffer[i], at[i] + j * k->loop[k->lane].stride[i]);
}

/* n lanes; at: offset of the first one in every operand. Workspace: the program's inputs, then its registers.
 */
static void block(const struct nest *k, const struct tn_launch *l, const int64_t *at, int64_t n)
{
    double (*in)[TN_REF_LANES] = l->workspace, (*reg)[TN_REF_LANES] = in + k->n_in + 1;
    const double *value = in[0];

    for (int64_t j = 0; j < n; j++)
        in[0][j] = k->what == MAX ? -INFINITY : 0;
    if (k->what == LOAD)
        load(k, l, 0, at, n, in[0]);
    else if (k->what != NOTHING)
        reduce(k, l, k->lane + 1, at[0], at[k->second], n, in[0]);
    if (k->program) {
        for (uint32_t i = k->extra; i < k->n_in; i++)
            load(k, l, i, at, n, in[k->what == NOTHING ? i : i - 1]);
        tn_ref_program_run(k->program, n, (const double (*)[TN_REF_LANES])in, l->uniform, reg);
    }
    for (uint32_t i = 0, o = k->n_in; i < k->n_out; i++, o++) {
        if (k->program)
            value = tn_ref_program_result(k->program, (const double (*)[TN_REF_LANES])reg, i);
        for (int64_t j = 0; j < n; j++)
            tn_ref_store(k->dtype[o], l->buffer[o], at[o] + j * k->loop[k->lane].stride[o], value[j],
                         k->accumulate >> i & 1);
    }
}

static void walk(const struct nest *k, const struct tn_launch *l, uint32_t depth, const int64_t *from)
{
    const struct tn_loop *loop = &k->loop[depth];
    const int64_t step = depth == k->lane ? TN_REF_LANES : 1;
    int64_t at[TN_MAX_OPERANDS];

    for (int64_t i = 0; i < loop->size; i += step) {
        for (uint32_t o = 0; o < k->n_in + k->n_out; o++)
            at[o] = from[o] + i * loop->stride[o];
        if (depth == k->lane)
            block(k, l, at, loop->size - i < step ? loop->size - i : step);
        else
            walk(k, l, depth + 1, at);
    }
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    walk(state, l, 0, (const int64_t[TN_MAX_OPERANDS]){0});
    return TN_OK;
}

static uint32_t what(const struct tn_problem *p)
{
    static const struct {
        const char *op;
        uint32_t what;
    } kinds[] = {{"einsum", PRODUCT}, {"sumsq", PRODUCT}, {"sum", SUM}, {"rowmax", MAX}, {"expr", NOTHING}};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(p->op, kinds[i].op))
            return kinds[i].what;
    return LOAD;
}

/* The loops as given; where the output is a single number, the loop that is cut into lanes has one turn. */
static void take_loops(const struct tn_problem *p, struct nest *k)
{
    const uint32_t outer = p->n_loop - p->n_reduced, none = outer == 0;

    if (none)
        k->loop[0].size = 1;
    if (p->n_loop)
        memcpy(k->loop + none, p->loop, p->n_loop * sizeof *p->loop);
    k->n_loop = p->n_loop + none, k->lane = outer + none - 1;
}

tn_status tn_ref_nest(const struct tn_problem *p, struct tn_kernel *out)
{
    struct nest *k;

    if (p->n_loop >= MAX_LOOPS || p->n_in + p->n_out > TN_MAX_OPERANDS ||
        (p->program && !tn_ref_program_known(p->program)))
        return TN_DECLINED;
    if (!(k = tn_ref_state(sizeof *k)))
        return TN_ERR_MEMORY;
    take_loops(p, k);
    k->what = what(p), k->n_in = p->n_in, k->n_out = p->n_out, k->accumulate = p->accumulate;
    k->second = !strcmp(p->op, "einsum") ? 1 : 0;
    k->extra = k->what == NOTHING ? 0 : 2;
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        k->dtype[i] = i < p->n_in ? p->in[i].dtype : p->out[i - p->n_in].dtype;
    if (p->program)
        k->program = tn_ref_program(k, p->program);
    return tn_ref_ready(out, k, launch,
                        (p->n_in + 1 + (p->program ? p->program->n_instr : 0)) * TN_REF_LANES);
}
