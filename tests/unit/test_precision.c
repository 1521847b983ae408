/* test_precision.c - training in bf16 and fp16: what is low and what is not, the scale of the loss, and that
 * the curve is that of fp32. */
#include "plan_kit.h"
#include "session_kit.h"

/* --- the curve */

#define STEPS 200

/* Mean loss of the last 20 updates. */
static double learned(const char *dtype)
{
    struct session_test t;
    double sum = 0;

    SESSION_BEGIN(&t, TN_SESSION_TRAIN, dtype);
    for (uint64_t step = 0; step < STEPS; step++) {
        struct tn_session_result r = session_update(&t, step, 0.01 * (1 - (double)step / STEPS));

        ck_assert_msg(!r.skipped, "%s, step %d: loss %g, norm %g", dtype, (int)step, r.loss, r.gnorm);
        if (step >= STEPS - 20)
            sum += r.loss / 20;
    }
    session_end(&t);
    return sum;
}

START_TEST(low_dtypes_learn_what_fp32_learns)
{
    double full = learned("backend.dtype=fp32");
    static const char *const low[] = {"backend.dtype=bf16", "backend.dtype=fp16"};

    ck_assert_msg(full < 1.0, "fp32 itself learned only to %g", full);
    for (int i = 0; i < 2; i++) {
        double loss = learned(low[i]);

        ck_assert_msg(fabs(loss - full) < 0.02 * full, "%s: loss %g, in fp32 %g", low[i], loss, full);
    }
}
END_TEST

/* --- what is low */

static int is_low(const struct tn_value *v)
{
    return v->dtype == TN_BF16 || v->dtype == TN_F16;
}

static void check_node(const struct tn_node *n)
{
    static const char *const products[] = {"einsum", "attention", "attn_bwd", "head", "embed", NULL};
    static const char *const stays_low[] = {"dropout", "layernorm", "ln_dx", NULL};
    const char *op = n->op->name;

    if (tn_is_(op, products))
        ck_assert_msg(is_low(n->in[0]), "node %u %s (role %s): its first input is not low", n->id, op,
                      n->role);
    if (tn_is_(op, stays_low))
        ck_assert_msg(is_low(n->out[0]), "node %u %s (role %s): its result is not low", n->id, op, n->role);
    for (uint32_t o = !strcmp(op, "layernorm") || !strcmp(op, "attention"); o < n->n_out; o++)
        if (tn_is(op, "layernorm", "attention", "head", "sum", "sumsq", "accum", "ln_dw", "embed_bwd"))
            ck_assert_msg(n->out[o]->dtype == TN_F32, "node %u %s (role %s): result %u is low", n->id, op,
                          n->role, o);
    if (n->phase == TN_AFTER)
        for (uint32_t i = 0; i < n->n_in; i++)
            ck_assert_msg(!is_low(n->in[i]), "node %u %s after the micro-batches reads %%%u, which is low",
                          n->id, op, n->in[i]->id);
}

/* One cast of a parameter at most, in the prologue; norms and biases are read as they are. Gradients are made
 * in fp32, not rounded and cast. */
static void check_param(const struct tn_value *p)
{
    int casts = 0;

    ck_assert_uint_eq(p->dtype, TN_F32);
    ck_assert_uint_eq(p->param->grad->dtype, TN_F32);
    ck_assert_msg(strcmp(p->param->grad->producer->in[0]->producer->op->name, "cast"),
                  "the gradient of %s was low", p->name);
    for (uint32_t i = 0; i < p->n_user; i++)
        if (!strcmp(p->user[i]->op->name, "cast")) {
            ck_assert_uint_eq(p->user[i]->phase, TN_PROLOGUE);
            casts++;
        }
    ck_assert_msg(casts == (p->param->spec.file_rank == 2), "%s has %d casts", p->name, casts);
    for (uint32_t s = 0; s < p->param->n_state; s++)
        ck_assert_uint_eq(p->param->state[s]->dtype, TN_F32);
}

static void check_graph(const char *dtype, const char *recompute)
{
    struct session_test t;
    const struct tn_graph *g;
    const struct tn_plan *plan;

    SESSION_BEGIN(&t, TN_SESSION_TRAIN | TN_SESSION_STEP, "model.dropout=0.1", "model.tie_embeddings=yes",
                  dtype, recompute);
    g = tn_session_graph(t.session, TN_SESSION_TRAIN);
    for (const struct tn_node *n = tn_graph_first(g); n; n = tn_node_next(n))
        check_node(n);
    for (const struct tn_value *p = g->params; p; p = p->next)
        check_param(p);
    for (uint32_t i = 0; i < g->n_output; i++)
        ck_assert_msg(!is_low(g->output[i].value), "output %s is low", g->output[i].name);
    plan = tn_session_plan(t.session, TN_SESSION_TRAIN);
    for (uint32_t r = 0; r < plan->n_row; r++)
        for (int k = 0; k < 2; k++)
            if (plan->row[r].kernel[k] >= 0)
                ck_assert_msg(!strcmp(plan->kernel[plan->row[r].kernel[k]].by, "cpu"),
                              "%s of node %u (role %s) is computed by %s", plan->row[r].op,
                              plan->row[r].node->id, plan->row[r].node->role,
                              plan->kernel[plan->row[r].kernel[k]].by);
    session_end(&t);
}

START_TEST(products_are_low_and_sums_are_not)
{
    check_graph("backend.dtype=bf16", "train.recompute=no");
    check_graph("backend.dtype=fp16", "train.recompute=yes");
}
END_TEST

START_TEST(activations_take_half_the_memory)
{
    static const char *const dtype[] = {"backend.dtype=fp32", "backend.dtype=bf16"};
    struct tn_plan_report r[2];

    for (int i = 0; i < 2; i++) {
        struct session_test t;

        SESSION_BEGIN(&t, TN_SESSION_TRAIN, "model.block_size=128", "train.seq_len=128",
                      "train.micro_batch=8", dtype[i]);
        tn_plan_sum(tn_session_plan(t.session, TN_SESSION_TRAIN), &r[i]);
        session_end(&t);
    }
    ck_assert_uint_lt(10 * (r[1].arena - r[1].gradients), 6 * (r[0].arena - r[0].gradients));
    ck_assert_uint_eq(r[1].parameters, r[0].parameters);
}
END_TEST

/* In bf16 256 + 1 is 256, and 1 + 1/256 is 1. The gradient of w is x, added over two micro-batches. */
START_TEST(micro_batches_add_up_in_fp32)
{
    static const float x[6] = {256, 1, 0.5f, 1, 1.0f / 256, 0.25f}, want[3] = {257, 1 + 1.0f / 256, 0.75f},
                       one = 1;
    const struct tn_attr rows = TN_NAMES("out", "batch"), none = {"out", TN_ATTR_NAMES, 0, {.names = NULL}};
    struct tn_graph *g = kit_graph();
    struct tn_value *w = kit_param(g, "w", 1, DIMS("c"), SIZES(3)), *keep[1];
    struct tn_value *in = tn_graph_input(g, "x", TN_F32, 2, DIMS("batch", "c"), SIZES(1, 3), 1);
    struct tn_value *n = tn_graph_input(g, "n", TN_F32, 0, NULL, NULL, 0);
    struct tn_memory *m = kit_memory();
    struct tn_plan *plan;
    struct tn_run *run;
    float got[3];

    tn_graph_output(g, "loss",
                    tn_add(g, "sum", TN_IN(tn_add(g, "einsum", TN_IN(in, w), &rows, 1)), &none, 1));
    tn_at_end(g, TN_PROLOGUE, "unit");
    tn_graph_output(g, "count", tn_expr(g, "a", TN_IN(n)));
    ck_assert_msg(!tn_graph_precision(g, TN_BF16) && !tn_graph_autodiff(g) && !tn_graph_verify(g), "%s",
                  tn_error_text());
    ck_assert_ptr_ne(w->user[0], w->param->grad->producer);
    keep[0] = w->param->grad;
    plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = 2, .keep = keep, .n_keep = 1});
    ck_assert_int_eq(tn_run_open(plan, m, 10, &run), TN_OK);
    ck_assert(!tn_run_input(run, "x", x, sizeof x) && !tn_run_input(run, "n", &one, sizeof one) &&
              !tn_run_step(run));
    ck_assert(!tn_run_read(run, keep[0], 0, got, sizeof got));
    for (int i = 0; i < 3; i++)
        ck_assert_msg(got[i] == want[i], "element %d: %g, should be %g", i, got[i], want[i]);
    tn_run_close(run);
    tn_memory_free(m);
    tn_plan_free(plan);
    tn_graph_free(g);
}
END_TEST

/* --- the scale of the loss */

static void set_scale(struct session_test *t, double scale, uint64_t good)
{
    ck_assert_msg(!tn_session_scale_set(t->session, scale, good), "%s", tn_error_text());
}

static double scale_of(const struct session_test *t, uint64_t *good)
{
    double scale;

    ck_assert_int_eq(tn_session_scale_get(t->session, &scale, good), 1);
    return scale;
}

static int same_state(struct session_state *a, struct session_state *b)
{
    int same = a->bytes == b->bytes && !memcmp(a->x, b->x, a->bytes);

    free(a->x);
    free(b->x);
    return same;
}

START_TEST(an_overflow_halves_the_scale_and_skips)
{
    struct session_test t;
    struct session_state before, after;
    struct tn_session_result r;
    uint64_t good, step = 0;

    SESSION_BEGIN(&t, TN_SESSION_TRAIN, "backend.dtype=fp16");
    ck_assert(scale_of(&t, &good) == 65536 && good == 0);
    ck_assert(!session_update(&t, step++, 0.01).skipped);
    ck_assert(scale_of(&t, &good) == 65536 && good == 1);
    set_scale(&t, 0x1p40, 7);
    before = session_state(&t, 0);
    r = session_update(&t, step++, 0.01);
    after = session_state(&t, 0);
    ck_assert(r.skipped && r.overflow && r.scale == 0x1p40 && isfinite(r.loss) && !isfinite(r.gnorm));
    ck_assert(scale_of(&t, &good) == 0x1p39 && good == 0);
    ck_assert_msg(same_state(&before, &after), "a skipped update changed something");
    while ((r = session_update(&t, step++, 0.01)).skipped)
        ck_assert(r.overflow && step < 40);
    ck_assert(r.scale < 0x1p39 && r.scale > 1024 && !r.overflow);
    session_end(&t);
}
END_TEST

START_TEST(the_scale_doubles_with_patience)
{
    struct session_test t;
    uint64_t good;

    SESSION_BEGIN(&t, TN_SESSION_TRAIN, "backend.dtype=fp16");
    set_scale(&t, 1024, 1998);
    session_update(&t, 0, 0.01);
    ck_assert(scale_of(&t, &good) == 1024 && good == 1999);
    session_update(&t, 1, 0.01);
    ck_assert(scale_of(&t, &good) == 2048 && good == 0);
    for (int i = 0; i < 4; i++) {
        static const double bad[] = {3, 0.5, NAN, 0x1p41};

        ck_assert_int_eq(tn_session_scale_set(t.session, bad[i], 0), TN_ERR_INPUT);
    }
    ck_assert_int_eq(tn_session_scale_set(t.session, 4, 2000), TN_ERR_INPUT);
    session_end(&t);
}
END_TEST

/* Weights that are not finite make a loss that is not: no scale helps. */
START_TEST(a_loss_that_is_not_finite_is_no_overflow)
{
    struct session_test t;
    struct tn_session_result r;
    uint64_t good;
    float *w;

    SESSION_BEGIN(&t, TN_SESSION_TRAIN, "backend.dtype=fp16");
    w = calloc(1, tn_session_tensor(t.session, 0)->bytes);
    for (uint64_t i = 0; i < tn_session_tensor(t.session, 0)->bytes / sizeof *w; i++)
        w[i] = 1e30f;
    ck_assert(!tn_session_set(t.session, 0, w));
    r = session_update(&t, 0, 0.01);
    ck_assert(r.skipped && !r.overflow && !isfinite(r.loss));
    ck_assert(scale_of(&t, &good) == 65536);
    free(w);
    session_end(&t);
}
END_TEST

START_TEST(other_dtypes_have_no_scale)
{
    struct session_test t;
    double scale;
    uint64_t good;

    SESSION_BEGIN(&t, TN_SESSION_TRAIN, "backend.dtype=bf16");
    ck_assert_int_eq(tn_session_scale_get(t.session, &scale, &good), 0);
    ck_assert(!tn_session_scale_set(t.session, 512, 3) && session_update(&t, 0, 0.01).scale == 1);
    session_end(&t);
}
END_TEST

/* Norm and gradients are those without a scale. */
START_TEST(the_scale_shows_nowhere)
{
    struct session_state s[2];
    struct tn_session_result r[2];

    for (int i = 0; i < 2; i++) {
        struct session_test t;

        SESSION_BEGIN(&t, TN_SESSION_TRAIN | TN_SESSION_STEP, "backend.dtype=fp16", "train.grad_clip=0.1");
        set_scale(&t, i ? 16384 : 4096, 0);
        r[i] = session_update(&t, 0, 0.01);
        s[i] = session_state(&t, 1);
        session_end(&t);
    }
    ck_assert(r[0].loss == r[1].loss && fabs(r[0].gnorm - r[1].gnorm) < 1e-3 * r[0].gnorm && r[0].gnorm < 10);
    for (uint64_t k = 0; k < s[0].bytes / sizeof *s[0].x; k++)
        ck_assert_msg(fabsf(s[0].x[k] - s[1].x[k]) < 2e-3f * (1 + fabsf(s[0].x[k])),
                      "number %llu: %g at scale 4096, %g at 16384", (unsigned long long)k, s[0].x[k],
                      s[1].x[k]);
    free(s[0].x);
    free(s[1].x);
}
END_TEST

SESSION_MAIN("precision", 120, low_dtypes_learn_what_fp32_learns, products_are_low_and_sums_are_not,
             activations_take_half_the_memory, micro_batches_add_up_in_fp32,
             an_overflow_halves_the_scale_and_skips, the_scale_doubles_with_patience,
             a_loss_that_is_not_finite_is_no_overflow, other_dtypes_have_no_scale, the_scale_shows_nowhere)
