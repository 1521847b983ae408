/* test_llama.c - the angles of rotary positions by hand, a block's FLOPs and parameters, and configurations that make no model. */
#include <math.h>
#include "trial.h"
#include "graph/op.h"
#include "model/model.h"

/* --- angles: a head of 8, so four pairs; theta 10000: 1, 0.1, 0.01 and 0.001 radians a position */

static const double plain[4] = {1, 0.1, 0.01, 0.001};

START_TEST(turns)
{
    const struct tn_rotary none = {.theta = 10000}, linear = {TN_ROTARY_LINEAR, 10000, 4, 0, 0, 0};
    /* In 400 positions the pairs turn 63.7, 6.4, 0.64 and 0.064 times: left alone, on the ramp from 0.5 to 16.5, on it, slow. */
    const struct tn_rotary llama3 = {TN_ROTARY_LLAMA3, 10000, 4, 0.5, 16.5, 400};
    double ramp[4] = {1, (400 * 0.1 / (2 * M_PI) - 0.5) / 16, (400 * 0.01 / (2 * M_PI) - 0.5) / 16, 0};

    for (int i = 0; i < 4; i++) {
        trial_near(tn_rotary_turn(&none, i, 8), plain[i], 1e-14, "plain");
        trial_near(tn_rotary_turn(&linear, i, 8), plain[i] / 4, 1e-14, "linear");
        trial_near(tn_rotary_turn(&llama3, i, 8), plain[i] * (ramp[i] + (1 - ramp[i]) / 4), 1e-14, "llama3");
    }
}
END_TEST

/* Far out, where fp32 has no digits left for the angle: a million radians and one. */
START_TEST(a_table)
{
    const struct tn_rotary r = {.theta = 10000};
    struct tn_mesh one = {.size = {1, 1, 1, 1, 1}};
    struct tn_graph *g = tn_graph_new(&one);
    struct tn_value *v = tn_graph_rotary(g, DIMS("posn", "head_dim"), 1000002, 8, &r);
    float *table = malloc(8 * 1000002 * sizeof *table);
    struct tn_local l;

    (void)_i;
    tn_value_local(v, &one, g->arena, &l);
    tn_rotary_fill(v, &l, table);
    for (int i = 0; i < 4; i++) {
        ck_assert(table[i] == 1 && table[4 + i] == 0);
        trial_near(table[8 * 5 + i], cos(5 * plain[i]), 1e-7, "cosine");
        trial_near(table[8 * 5 + 4 + i], sin(5 * plain[i]), 1e-7, "sine");
    }
    trial_near(table[8 * 1000001], cos(1000001.0), 1e-6, "cosine of a million");
    trial_near(table[8 * 1000001 + 4], sin(1000001.0), 1e-6, "sine of a million");
    free(table);
    tn_graph_free(g);
}
END_TEST

/* --- a block: B 2, T 3, C 8, four heads of two, two key heads, 20 inside */

static const struct tn_model_config small = {.arch = "llama", .n_layer = 1, .n_head = 4, .n_kv_head = 2, .n_embd = 8, .vocab_size = 11,
                                             .block_size = 3, .n_inner = 20, .norm_eps = 1e-5, .init_std = 0.02,
                                             .rotary = {.theta = 10000}};
static const struct tn_model_use training = {.batch = 2, .seq = 3, .micro = 1, .train = 1, .loss = 1};

static double flops_of(const struct trial *t, uint32_t phase, const char *op)
{
    double sum = 0;

    for (const struct tn_node *n = tn_graph_first(t->g); n; n = tn_node_next(n))
        if (n->phase == phase && !strcmp(n->op->name, op) && !strcmp(n->unit, "block0"))
            sum += tn_node_flops(n, &t->g->mesh);
    return sum;
}

static struct trial built(int kernels, int tied)
{
    struct tn_model_config c = small;
    struct trial t = trial_begin(kernels);

    c.tie_embeddings = tied;
    TRIAL_OK(tn_model_build(t.g, &c, &training));
    trial_open(&t);
    return t;
}

START_TEST(a_block)
{
    /* q and o, k and v, three of the MLP */
    const double products = 2.0 * 2 * 3 * (2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 20);
    const int64_t block = 2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 20 + 2 * 8;

    for (int tied = 0; tied < 2; tied++) {
        struct trial t = built(_i, tied);
        int64_t parameters = 0;

        for (const struct tn_value *p = t.g->params; p; p = p->next)
            parameters += tn_value_count(p);
        ck_assert_int_eq(parameters, block + 8 + (2 - tied) * 11 * 8);
        trial_near(flops_of(&t, TN_FORWARD, "einsum"), products, 0, "forward");
        trial_near(flops_of(&t, TN_BACKWARD, "einsum"), 2 * products, 0, "backward");
        trial_near(flops_of(&t, TN_FORWARD, "rope"), 3 * 2 * 3 * (8 + 4), 0, "rope");
        trial_close(&t);
    }
}
END_TEST

/* Views of what files have: names, shapes, initial deviations. */
START_TEST(parameters)
{
    static const struct {
        const char *name;
        int64_t shape[2];
        double std;
    } want[] = {
        {"model.embed_tokens.weight", {11, 8}, 0.02},
        {"model.layers.0.input_layernorm.weight", {8, 0}, 0},
        {"model.layers.0.self_attn.q_proj.weight", {8, 8}, 0.02},
        {"model.layers.0.self_attn.k_proj.weight", {4, 8}, 0.02},
        {"model.layers.0.self_attn.v_proj.weight", {4, 8}, 0.02},
        {"model.layers.0.self_attn.o_proj.weight", {8, 8}, 0.02 / M_SQRT2},
        {"model.layers.0.post_attention_layernorm.weight", {8, 0}, 0},
        {"model.layers.0.mlp.gate_proj.weight", {20, 8}, 0.02},
        {"model.layers.0.mlp.up_proj.weight", {20, 8}, 0.02},
        {"model.layers.0.mlp.down_proj.weight", {8, 20}, 0.02 / M_SQRT2},
        {"model.norm.weight", {8, 0}, 0},
        {"lm_head.weight", {11, 8}, 0.02},
    };
    struct trial t = built(_i, 0);
    const struct tn_value *p = t.g->params;

    for (size_t i = 0; i < sizeof want / sizeof *want; i++, p = p->next) {
        ck_assert_ptr_nonnull(p);
        ck_assert_str_eq(p->param->name, want[i].name);
        ck_assert_uint_eq(p->param->spec.file_rank, want[i].shape[1] ? 2 : 1);
        for (uint32_t d = 0; d < p->param->spec.file_rank; d++)
            ck_assert_int_eq(p->param->spec.file_shape[d], want[i].shape[d]);
        ck_assert_uint_eq(p->param->spec.init, want[i].std > 0 ? TN_INIT_NORMAL : TN_INIT_ONE);
        trial_near(p->param->spec.std, want[i].std, 1e-15, "deviation");
    }
    ck_assert_ptr_null(p);
    trial_close(&t);
}
END_TEST

START_TEST(no_model)
{
    struct tn_model_config c = small;

    (void)_i;
    ck_assert_int_eq(tn_model_check(&c), TN_OK);
    c.n_kv_head = 3;
    ck_assert_int_eq(tn_model_check(&c), TN_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "model.n_kv_head = 3 does not divide model.n_head = 4"));
    c.n_kv_head = 4, c.n_embd = 12;
    ck_assert_int_eq(tn_model_check(&c), TN_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "model.n_embd / model.n_head = 3, the width of a head, is odd"));
    c.arch = "mamba", c.n_embd = 8;
    ck_assert_int_eq(tn_model_check(&c), TN_ERR_CONFIG);
    ck_assert_int_eq(tn_model_inner("llama", 4096), 11008);
    ck_assert_int_eq(tn_model_inner("llama", 96), 256);
    ck_assert_int_eq(tn_model_inner("llama", 97), 512);
    ck_assert_int_eq(tn_model_inner("gpt2", 97), 388);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {turns, a_table, a_block, parameters, no_model};

    return trial_main("llama", test, sizeof test / sizeof *test);
}
