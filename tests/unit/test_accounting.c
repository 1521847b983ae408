/* test_accounting.c - FLOPs, bytes and parameters of a plan, where they are known by hand.
 *
 * Nothing is run: a plan knows its costs before anything is allocated. A launch's bytes are what it must read
 * and write once, its FLOPs 2·M·K·N for a matrix product. What is fused into a launch adds its own FLOPs to
 * it, so the products are counted with the optimizations off where exact numbers of products are asked for.
 *
 * Attention. The textbook's block of 24BTC² + 4BT²C FLOPs counts the scores as a full square, as does a plan
 * in which attention is in parts: those einsums compute all of it. As a whole, attention skips what the mask
 * hides, and a plan counts half of it: 2BT²C. */
#include "graph/op.h"
#include "model/model.h"
#include "plan/estimate.h"
#include "trial.h"

static double flops_of(const struct tn_plan *plan, uint32_t list, const char *op, const char *unit)
{
    double sum = 0;

    for (uint32_t i = 0; i < plan->n_row; i++)
        if (plan->row[i].list == list && !strcmp(plan->row[i].op, op) &&
            !strcmp(plan->row[i].node->unit, unit))
            sum += plan->row[i].flops;
    return sum;
}

/* Planned without a fused pass, so that each launch is one operation. */
static void plan(struct trial *t)
{
    struct tn_mesh mesh = tn_mesh_single();
    struct tn_finish f = trial_finish(t);
    struct tn_pipeline p = {.finish = &f, .claims = trial_claims, .claims_ctx = t};
    struct tn_plan_options o = {
        .kernels = t->kernels, .n_kernels = t->n_kernels, .n_micro = t->n_micro, .no_fuse = 1};

    TRIAL_OK(tn_pipeline_run(&p, t->g));
    TRIAL_OK(tn_plan_new(t->g, &mesh, &o, &t->plan));
}

static const struct tn_row *product(const struct trial *t, uint32_t list)
{
    for (uint32_t i = 0; i < t->plan->n_row; i++)
        if (t->plan->row[i].list == list && !strcmp(t->plan->row[i].op, "einsum"))
            return &t->plan->row[i];
    ck_abort_msg("no einsum");
    return NULL;
}

static void one_linear(int kernels, int64_t rows, double flops, double bytes, double intensity)
{
    const float one = 1;
    struct trial t = trial_begin(kernels);
    struct tn_value *w = trial_param(&t, "w", 2, DIMS("mlp", "embed"), SIZES(4096, 1024));
    struct tn_value *x = trial_input(&t, "x", TN_F32, 2, DIMS("batch", "embed"), SIZES(rows, 1024), &one);
    const struct tn_row *r;

    trial_loss(&t, tn_add(t.g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "batch", "mlp"))));
    trial_count(&t, x, ALL);
    plan(&t);
    r = product(&t, TN_LIST_FORWARD);
    trial_near(r->flops, flops, 0, "FLOPs");
    trial_near(r->bytes, bytes, 0, "bytes");
    trial_near(r->flops / r->bytes, intensity, 0.005, "FLOP/B");
    trial_near(product(&t, TN_LIST_BACKWARD)->flops, flops, 0, "FLOPs of the weight's gradient");
    trial_close(&t);
}

START_TEST(linear_1024_4096)
{
    one_linear(_i, 1, 8388608, 16797696, 0.50);
    one_linear(_i, 512, 4294967296, 27262976, 157.54);
}
END_TEST

static struct tn_value *linear(struct trial *t, struct tn_value *x, const char *w, const char *b,
                               uint32_t rank, const char *const *dim, const int64_t *size)
{
    struct tn_value *y = tn_add(t->g, "einsum", TN_IN(x, trial_param(t, w, rank, dim, size)),
                                TN_WITH(TN_NAMES("out", "batch", dim[0])));

    return tn_expr(t->g, "a + b", TN_IN(y, trial_param(t, b, 1, dim, size)));
}

/* 16 bytes a parameter: itself, its gradient and two moments. */
START_TEST(mlp_1024_4096_1024)
{
    const float one = 1;
    struct trial t = trial_begin(_i);
    struct tn_value *x = trial_input(&t, "x", TN_F32, 2, DIMS("batch", "embed"), SIZES(512, 1024), &one), *h;
    struct tn_plan_report r;
    int64_t parameters = 0;

    t.optimizer = "adamw";
    h = linear(&t, x, "w1", "b1", 2, DIMS("mlp", "embed"), SIZES(4096, 1024));
    h = linear(&t, tn_expr(t.g, "relu(a)", TN_IN(h)), "w2", "b2", 2, DIMS("embed", "mlp"), SIZES(1024, 4096));
    trial_mse(&t, h, x);
    plan(&t);
    tn_plan_sum(t.plan, &r);
    for (const struct tn_value *p = t.g->params; p; p = p->next)
        parameters += tn_plan_count(t.plan, p);
    ck_assert_int_eq(parameters, 8393728);
    trial_near(flops_of(t.plan, TN_LIST_FORWARD, "einsum", "unit"), 8589934592, 0, "forward FLOPs");
    ck_assert_uint_eq(r.parameters, 4 * 8393728);
    ck_assert_uint_eq(r.states, 8 * 8393728);
    ck_assert_uint_eq(r.parameters + r.gradients + r.states, 134299648);
    /* Beside the products: bias and relu; bias, three for the loss and three for the count; 1/count. */
    trial_near(r.flops_forward, 8589934592 + 512.0 * (4096 * 2 + 1024 * (1 + 3 + 3)) + 2, 0,
               "FLOPs of the forward");
    trial_close(&t);
}
END_TEST

/* --- one block of a GPT-2: B 2, T 3, C 8, two heads */

static struct trial block(int kernels, const char *without)
{
    struct tn_model_config c = {.arch = "gpt2",
                                .n_layer = 1,
                                .n_head = 2,
                                .n_embd = 8,
                                .vocab_size = 11,
                                .block_size = 3,
                                .n_inner = 32,
                                .norm_eps = 1e-5,
                                .init_std = 0.02,
                                .tie_embeddings = 1,
                                .gelu = "tanh"};
    struct tn_model_use use = {.batch = 2, .seq = 3, .micro = 1, .train = 1, .loss = 1};
    struct trial t = trial_begin(kernels);

    t.without = without;
    TRIAL_OK(tn_model_build(t.g, &c, &use));
    plan(&t);
    return t;
}

START_TEST(block_in_parts_is_the_textbook_s)
{
    struct trial t = block(_i, "attention");
    const struct tn_value *scores = NULL;

    trial_near(flops_of(t.plan, TN_LIST_FORWARD, "einsum", "block0"), 9792, 0, "24BTC² + 4BT²C");
    trial_near(flops_of(t.plan, TN_LIST_BACKWARD, "einsum", "block0"), 2 * 9792, 0, "its backward");
    for (const struct tn_node *n = tn_graph_first(t.g); n && !scores; n = tn_node_next(n))
        if (!strcmp(n->op->name, "rowmax"))
            scores = n->in[0];
    ck_assert_ptr_nonnull(scores);
    ck_assert_int_eq(tn_plan_count(t.plan, scores), 36);
    ck_assert_uint_eq(tn_plan_bytes(t.plan, scores), 144);
    trial_close(&t);
}
END_TEST

START_TEST(block_as_a_whole_skips_what_is_masked)
{
    struct trial t = block(_i, NULL);

    trial_near(flops_of(t.plan, TN_LIST_FORWARD, "einsum", "block0"), 24 * 2 * 3 * 8 * 8, 0, "24BTC²");
    trial_near(flops_of(t.plan, TN_LIST_FORWARD, "attention", "block0"), 2 * 2 * 3 * 3 * 8, 0,
               "half of 4BT²C");
    trial_near(flops_of(t.plan, TN_LIST_BACKWARD, "einsum", "block0"), 2 * 24 * 2 * 3 * 8 * 8, 0,
               "twice 24BTC²");
    trial_near(flops_of(t.plan, TN_LIST_BACKWARD, "attn_bwd", "block0"), 5 * 2 * 3 * 3 * 8, 0,
               "scores once more, and four products");
    trial_close(&t);
}
END_TEST

/* --- memory by launch */

/* No launch has less alive than it reads and writes of the arena, and the most is what the plan says. */
START_TEST(timeline_of_a_plan)
{
    struct trial t = block(_i, NULL);
    uint64_t live[1000], most = 0;
    uint32_t changes = 0;

    ck_assert_uint_lt(t.plan->n_row, 1000);
    tn_plan_timeline(t.plan, live);
    for (uint32_t r = 0; r < t.plan->n_row; r++) {
        const struct tn_row *row = &t.plan->row[r];
        uint64_t touched = 0;

        for (uint32_t k = 0; k < row->n_in + row->n_out; k++) {
            int again = row->ref[k].storage == TN_NOWHERE || t.plan->storage[row->ref[k].storage].where != TN_AT_ARENA;

            for (uint32_t j = 0; j < k; j++)
                again |= row->ref[j].storage == row->ref[k].storage;
            touched += again ? 0 : t.plan->storage[row->ref[k].storage].bytes;
        }
        ck_assert_uint_ge(live[r], touched);
        most = live[r] > most ? live[r] : most;
        changes += r > 0 && live[r] != live[r - 1];
    }
    ck_assert_uint_eq(most, t.plan->live_peak);
    ck_assert_uint_gt(changes, 10);
    trial_close(&t);
}
END_TEST

/* --- time */

/* 100 TFLOP/s and 1 TB/s meet at 100 FLOP/B: at 157 a launch is bound by computing, at 0.5 by memory. */
START_TEST(roofline_of_launches)
{
    const double rate = 100e12, memory = 1e12;
    struct tn_roofline low = tn_roofline(8388608, 16797696, rate, memory),
                       high = tn_roofline(4294967296, 27262976, rate, memory);

    ck_assert(low.compute == 0 && high.memory == 0);
    trial_near(low.memory, 16797696 / 1e12, 1e-18, "seconds at 0.5 FLOP/B");
    trial_near(high.compute, 4294967296 / 100e12, 1e-18, "seconds at 157 FLOP/B");
    ck_assert(tn_roofline(99e12, 1e12, rate, memory).memory == 1);
    ck_assert(tn_roofline(101e12, 1e12, rate, memory).compute == 1.01);
    ck_assert(tn_roofline(1e12, 1e15, rate, 0).compute == 0.01);
}
END_TEST

/* Every launch of an update, as often as it is launched, each under one of the two roofs. */
START_TEST(roofline_of_a_plan)
{
    struct trial t = block(_i, NULL);
    struct tn_plan_report r;
    struct tn_roofline fast_memory, fast_compute, both;

    tn_plan_sum(t.plan, &r);
    fast_memory = tn_plan_roofline(t.plan, 1e9, 0);
    fast_compute = tn_plan_roofline(t.plan, 1e30, 1e9);
    both = tn_plan_roofline(t.plan, 1e9, 1e9);
    trial_near(fast_memory.compute * 1e9, r.flops_forward + r.flops_backward + r.flops_update, 1e-3, "all FLOPs");
    trial_near(fast_compute.memory * 1e9, r.bytes_moved, 1e-3, "all bytes");
    ck_assert(fast_memory.memory == 0 && fast_compute.compute < 1e-18);
    ck_assert(both.compute > 0 && both.memory > 0);
    ck_assert(both.compute + both.memory > fmax(fast_memory.compute, fast_compute.memory));
    ck_assert(both.compute + both.memory < fast_memory.compute + fast_compute.memory);
    trial_close(&t);
}
END_TEST

START_TEST(training_by_6nd)
{
    const double day = 86400, cluster = 1024 * 989.5e12;

    trial_near(tn_estimate_6nd(70e9, 15e12, cluster, 1) / day, 72, 0.05, "days at MFU 1");
    trial_near(tn_estimate_6nd(70e9, 15e12, cluster, 0.5) / day, 144, 0.1, "days at MFU 0.5");
    trial_near(tn_estimate_6nd(70e9, 15e12, cluster, 0.4) / day, 180, 0.15, "days at MFU 0.4");
    trial_near(tn_estimate_6nd(1e9, 10e9, 100e12, 0.4), 1.5e6, 1e-3, "seconds");
}
END_TEST

int main(void)
{
    const TTest *const test[] = {linear_1024_4096, mlp_1024_4096_1024, block_in_parts_is_the_textbook_s,
                                 block_as_a_whole_skips_what_is_masked, roofline_of_launches, roofline_of_a_plan,
                                 training_by_6nd, timeline_of_a_plan};

    return trial_main("accounting", test, sizeof test / sizeof *test);
}
