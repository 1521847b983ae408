/* gradient.c - adjoint kernels against the slopes of the forward.
 *
 * A pair is a forward and its adjoint on the same small numbers. The objective is a weighting of the forward's outputs
 * by the gradients that the adjoint is given. Each element of an input is moved up and down in ref, which computes in
 * double, and the slope must be what the plugin's adjoint says, within a thousandth of the largest one. What the
 * adjoint needs of the forward (a log-sum, a mean) is made by the plugin's own forward where it has one, so the two
 * must fit each other. Steps are large, since outputs are fp32. */
#include <math.h>
#include "conform.h"
#include "suite.h"

#define STEP 0.0078125
#define TOLERANCE 1e-3

struct move {
    int8_t to, from;                             /* operand of the adjoint; input or output of the forward */
};
#define NONE {-1, 0}

struct pair {
    struct tn_bench_case forward, back;
    struct move take[6], result[4];              /* inputs of the forward, and its outputs; end with NONE */
    struct move slope[4];                        /* output of the adjoint, input of the forward */
    int8_t weight[2];                            /* operands of the adjoint: gradients of the forward's outputs */
    uint32_t weights;
    int8_t delta;                                /* operand that is the sum of weight times output; 0 none */
};

/* clang-format off */
#define F(o, s, i, u, ...) .forward = {.op = o, .size = s, .in = i, .out = u, ##__VA_ARGS__}
#define B(o, s, i, u, ...) .back = {.op = o, .size = s, .in = i, .out = u, ##__VA_ARGS__}
#define ATTENTION(s, q, kv, l, p, a) \
    {F("attention", s, q " " kv " " kv " " p, q " " l, .attr = a), \
     B("attn_bwd", s, q " " kv " " kv " " p " " l " " l " " q, q " " kv " " kv, .attr = a), \
     .take = {{0, 0}, {1, 1}, {2, 2}, NONE}, .result = {{5, 1}, NONE}, \
     .slope = {{0, 0}, {1, 1}, {2, 2}, NONE}, .weight = {7}, .weights = 1, .delta = 6}
#define GELU "0.5*a*(1 + tanh(0.7978845608028654*(a + 0.044715*a*a*a)))"
#define DGELU "t0 = tanh(0.7978845608028654*(b + 0.044715*b*b*b)); " \
              "a*(0.5*(1 + t0) + 0.5*b*(1 - t0*t0)*0.7978845608028654*(1 + 0.134145*b*b))"

static const struct pair pairs[] = {
    {F("einsum", "b2 t3 c5 o4", "btc oc", "bto"), B("einsum", "b2 t3 c5 o4", "bto oc", "btc"),
     .take = {{1, 1}, NONE}, .result = {NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("einsum", "b2 t3 c5 o4", "btc oc", "bto"), B("einsum", "b2 t3 c5 o4", "bto btc", "oc"),
     .take = {{1, 0}, NONE}, .result = {NONE}, .slope = {{0, 1}, NONE}, .weight = {0}, .weights = 1},
    {F("sum", "b3 t2 c5", "btc", "tc"), B("expand", "b3 t2 c5", "tc btc?", "btc"),
     .take = {NONE}, .result = {NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("expand", "b3 t2 c5", "tc btc?", "btc"), B("sum", "b3 t2 c5", "btc", "tc"),
     .take = {NONE}, .result = {NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("expr", "b3 c5", "bc", "bc", .f = GELU), B("expr", "b3 c5", "bc bc", "bc", .f = DGELU),
     .take = {{1, 0}, NONE}, .result = {NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("expr", "b3 c5", "bc", "bc", .f = "tanh(a)"), B("expr", "b3 c5", "bc bc", "bc", .f = "a*(1 - b*b)"),
     .take = {NONE}, .result = {{1, 0}, NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("dropout", "b3 t2 c5", "btc", "btc", .attr = "p=0.25 key=5 micro_dim=0"),
     B("dropout", "b3 t2 c5", "btc", "btc", .attr = "p=0.25 key=5 micro_dim=0"),
     .take = {NONE}, .result = {NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("embed", "v5@1/8 b7 c3", "vc b:i8", "bc"), B("embed_bwd", "v5@1/8 b7 c3", "bc b:i8 vc?", "vc"),
     .take = {{1, 1}, NONE}, .result = {NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("pick", "v5@1/8 b7", "bv b:i8", "b"), B("pick_bwd", "v5@1/8 b7", "b b:i8 bv?", "bv"),
     .take = {{1, 1}, NONE}, .result = {NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("layernorm", "b3 c5", "bc c c", "bc b b", .attr = "eps=0.1"), B("ln_dx", "b3 c5", "bc bc c b b", "bc"),
     .take = {{1, 0}, {2, 1}, NONE}, .result = {{3, 1}, {4, 2}, NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("layernorm", "b3 c5", "bc c c", "bc b b", .attr = "eps=0.1"), B("ln_dw", "b3 c5", "bc bc b b", "c"),
     .take = {{1, 0}, NONE}, .result = {{2, 1}, {3, 2}, NONE}, .slope = {{0, 1}, NONE}, .weight = {0}, .weights = 1},
    {F("rmsnorm", "b3 c5", "bc c", "bc b", .attr = "eps=0.1"), B("rms_dx", "b3 c5", "bc bc c b", "bc"),
     .take = {{1, 0}, {2, 1}, NONE}, .result = {{3, 1}, NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("rmsnorm", "b3 c5", "bc c", "bc b", .attr = "eps=0.1"), B("rms_dw", "b3 c5", "bc bc b", "c"),
     .take = {{1, 0}, NONE}, .result = {{2, 1}, NONE}, .slope = {{0, 1}, NONE}, .weight = {0}, .weights = 1},
    {F("rope", "b2 t3 h2 d6 r5", "bthd t:p1 rd", "bthd", .attr = "sign=1"),
     B("rope", "b2 t3 h2 d6 r5", "bthd t:p1 rd", "bthd", .attr = "sign=-1"),
     .take = {{1, 1}, {2, 2}, NONE}, .result = {NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    ATTENTION("b2 t5 s5 h2 d3", "bthd", "bshd", "bth", "t:p0? s:p0?", "scale=0.6 causal=1"),
    ATTENTION("b1 t4 s7 h2 d3", "bthd", "bshd", "bth", "t:p5 s:p2", "scale=0.6 causal=0"),
    ATTENTION("b1 t4 s4 h2 r3 d3", "bthrd", "bshd", "bthr", "t:p0? s:p0?", "scale=0.6 causal=1"),
    ATTENTION("b2 t5 s5 h2 d3", "bthd", "bshd", "bth", "t:p0? s:p0?",
              "scale=0.6 causal=1 dropout=0.3 key=3 block=8 micro_dim=0"),
    {F("ce", "b7 v5", "bv b:i5", "b"), B("ce_bwd", "b7 v5", "b bv b:i5", "bv"),
     .take = {{1, 0}, {2, 1}, NONE}, .result = {NONE}, .slope = {{0, 0}, NONE}, .weight = {0}, .weights = 1},
    {F("head", "b7 v5@1/8 c3", "bc vc b:i8", "b b"), B("head_bwd", "b7 v5@1/8 c3", "bc vc b:i8 b b b", "bc vc"),
     .take = {{0, 0}, {1, 1}, {2, 2}, NONE}, .result = {{3, 0}, NONE}, .slope = {{0, 0}, {1, 1}, NONE},
     .weight = {4, 5}, .weights = 2},
    {F("head", "b7 v5@1/8 c3", "bc vc b:i8", "b b"), B("head_train", "b7 v5@1/8 c3", "bc vc b:i8 b b", "b b bc vc"),
     .take = {{0, 0}, {1, 1}, {2, 2}, NONE}, .result = {NONE}, .slope = {{2, 0}, {3, 1}, NONE}, .weight = {3, 4}, .weights = 2},
};
/* clang-format on */
#define PAIRS (sizeof pairs / sizeof *pairs)

/* --- numbers from one bench to another */

static void take(struct tn_bench *to, uint32_t operand, const struct tn_bench *from, uint32_t source)
{
    for (int64_t e = 0; e < tn_bench_count(to, operand); e++)
        tn_bench_set(to, operand, e, tn_bench_get(from, source, e));
}

static void take_result(struct tn_bench *to, uint32_t operand, const struct tn_bench *from, uint32_t output)
{
    for (int64_t e = 0; e < tn_bench_count(to, operand); e++)
        tn_bench_set(to, operand, e, tn_bench_result(from, output, e));
}

/* Row r of the weights is as long as there are elements for each of delta's. */
static void set_delta(struct tn_bench *back, uint32_t operand, uint32_t weight, const struct tn_bench *forward)
{
    const int64_t rows = tn_bench_count(back, operand), width = tn_bench_count(back, weight) / rows;

    for (int64_t r = 0; r < rows; r++) {
        double delta = 0;

        for (int64_t d = 0; d < width; d++)
            delta += tn_bench_get(back, weight, r * width + d) * tn_bench_result(forward, 0, r * width + d);
        tn_bench_set(back, operand, r, delta);
    }
}

/* --- slopes */

struct trial {
    struct check_run *r;
    const struct pair *p;
    const struct tn_kernels *ref;
    struct tn_bench *f, *back;                   /* f: in ref */
};

static double objective(const struct trial *t)
{
    uint32_t n_in;
    double sum = 0;

    tn_bench_operands(t->f, &n_in);
    if (tn_bench_run(t->f, t->ref) != TN_OK)
        check_fail(t->r, "the forward by ref: %s", tn_bench_error(t->f));
    for (uint32_t o = 0; o < t->p->weights; o++)
        for (int64_t e = 0; e < tn_bench_count(t->f, n_in + o); e++)
            sum += tn_bench_get(t->back, (uint32_t)t->p->weight[o], e) * tn_bench_result(t->f, o, e);
    return sum;
}

static void check_slopes(const struct trial *t, uint32_t out, uint32_t in)
{
    const int64_t n = tn_bench_count(t->f, in);
    double *slope = calloc((size_t)n, sizeof *slope), largest = 0;

    for (int64_t e = 0; e < n; e++) {
        const double x = tn_bench_get(t->f, in, e);
        double up, down, width;

        tn_bench_set(t->f, in, e, x + STEP), width = tn_bench_get(t->f, in, e), up = objective(t);
        tn_bench_set(t->f, in, e, x - STEP), width -= tn_bench_get(t->f, in, e), down = objective(t);
        tn_bench_set(t->f, in, e, x);
        slope[e] = (up - down) / width;
        largest = fmax(largest, fabs(slope[e]));
    }
    for (int64_t e = 0; e < n; e++) {
        const double g = tn_bench_result(t->back, out, e), off = fabs(slope[e] - g) / (TOLERANCE * largest);

        if (!(off <= 1))
            check_fail(t->r, "gradient of input %u of %s, element %lld: %g, by differences %g", in, t->p->forward.op,
                       (long long)e, g, slope[e]);
        t->r->result->worst = fmax(t->r->result->worst, off);
    }
    free(slope);
}

/* By the plugin, or by ref where the plugin does not do it. */
static struct tn_bench *forward(struct check_run *r, const struct pair *p, const struct tn_kernels *mine,
                                const struct tn_kernels *ref, const struct tn_bench_device *d)
{
    struct tn_bench *f = tn_bench_new(&p->forward, 42);
    const int own = tn_conform_claims(mine, p->forward.op) && !tn_bench_declines(f, mine);

    tn_bench_on(f, own ? d : NULL);
    if (tn_bench_run(f, own ? mine : ref) != TN_OK)
        check_fail(r, "the forward: %s", tn_bench_error(f));
    return f;
}

static void give_back(struct trial *t, struct tn_bench *forward)
{
    tn_bench_free(t->f), tn_bench_free(t->back), tn_bench_free(forward);
}

static void gradient(struct check_run *r)
{
    const struct pair *p = r->test->with;
    const struct tn_kernels *mine = check_table(r, TN_KERNELS_ID), *ref = check_ref(r, TN_KERNELS_ID);
    struct tn_bench_device d;
    const struct tn_bench_device *remote = check_device(r, r->subject->claims.kernels_kind, &d) ? &d : NULL;
    struct tn_bench *f = forward(r, p, mine, ref, remote);
    struct trial t = {r, p, ref, tn_bench_new(&p->forward, 42), tn_bench_new(&p->back, 43)};

    for (const struct move *m = p->take; m->to >= 0; m++)
        take(t.back, (uint32_t)m->to, f, (uint32_t)m->from);
    for (const struct move *m = p->result; m->to >= 0; m++)
        take_result(t.back, (uint32_t)m->to, f, (uint32_t)m->from);
    if (p->delta)
        set_delta(t.back, (uint32_t)p->delta, (uint32_t)p->weight[0], f);
    if (tn_bench_declines(t.back, mine)) {
        give_back(&t, f);
        check_decline(r);
    }
    tn_bench_on(t.back, remote);
    tn_bench_once(t.f);
    if (tn_bench_run(t.back, mine) != TN_OK)
        check_fail(r, "%s", tn_bench_error(t.back));
    r->result->variants = 1;
    for (const struct move *m = p->slope; m->to >= 0; m++)
        check_slopes(&t, (uint32_t)m->to, (uint32_t)m->from);
    give_back(&t, f);
}

void check_list_gradients(struct check_list *l, const struct check_subject *s)
{
    struct check_test *t;
    char text[400], half[200];

    for (uint32_t i = 0; i < PAIRS; i++) {
        uint32_t claimed = 0;

        for (uint32_t k = 0; k < s->claims.claims; k++)
            claimed |= !strcmp(s->claims.op[k], pairs[i].back.op);
        if (!claimed)
            continue;
        snprintf(text, sizeof text, "%s against differences of %s",
                 tn_conform_text(&pairs[i].back, half, sizeof half), pairs[i].forward.op);
        t = check_add(l, gradient, text, "gradient/%s/%u", pairs[i].forward.op, i + 1);
        t->with = &pairs[i], t->shared = 1;
    }
}
