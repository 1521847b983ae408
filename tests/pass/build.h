/* build.h - for tests: the GPT-2 graph in a layout that is given as words, "tp=2 sp=1 pp=2 dp=2 zero=3".
 *
 * Sizes of axes make the mesh; an axis of more than one rank gets its strategy of strategies.h. Other words
 * are options: sp, zero, zigzag, ring, bucket, prefetch, sync_every, schedule, virtual, stages; or of the model and the update: layers, vocab,
 * micro, dropout, untied, clip, batch, seq. Passes run in the order of their axes' words. With ep the ranks of ep share what zero shards, or,
 * where the model has experts (experts=4), those. */
#ifndef TESTS_PASS_BUILD_H
#define TESTS_PASS_BUILD_H
#include <check.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include "base/status.h"
#include "graph/internal.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/pass.h"
#include "strategies.h"


static double word_value(const char *text, const char *key, double otherwise)
{
    size_t n = strlen(key);

    for (const char *at = text; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (!strncmp(at, key, n) && at[n] == '=')
            return atof(at + n + 1);
    }
    return otherwise;
}

static double word_option(void *ctx, const char *key)
{
    return word_value(ctx, key, !strcmp(key, "ring") || !strcmp(key, "prefetch") ? 1 : !strcmp(key, "bucket") ? 0.008 : 0);
}

static const char *word_option_text(void *ctx, const char *key)
{
    static char text[64];
    size_t n = strlen(key);

    for (const char *at = ctx; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (!strncmp(at, key, n) && at[n] == '=') {
            snprintf(text, sizeof text, "%.*s", (int)strcspn(at + n + 1, " "), at + n + 1);
            return text;
        }
    }
    return NULL;
}

static struct tn_mesh mesh_of(const char *words)
{
    struct tn_mesh m = tn_mesh_single();

    for (int a = 0; a < TN_AXES; a++)
        m.size[a] = (int64_t)word_value(words, tn_axis_name[a], 1);
    return m;
}

static uint32_t passes_of(const char *words, struct tn_pass_entry *entry)
{
    int zero = word_value(words, "zero", 0) > 0, experts = word_value(words, "experts", 0) > 0;
    const struct {
        const char *axis, *name;
    } known[] = {
        {"tp", "tp"},
        {"cp", "cp"},
        {"pp", "pp"},
        {"dp", zero && (experts || word_value(words, "ep", 1) == 1) ? "shard" : "ddp"},
        {"ep", experts ? "ep" : "shard"},
    };
    uint32_t n = 0;

    for (const char *at = words; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        for (int i = 0; i < 5; i++)
            if (!strncmp(at, known[i].axis, 2) && at[2] == '=' && atoi(at + 3) > 1)
                entry[n++] = (struct tn_pass_entry){known[i].name, known[i].axis, shipped(known[i].name), word_option, (void *)words,
                                                    word_option_text, i == 4 && !experts};
    }
    if (experts && word_value(words, "ep", 1) > 1)           /* a part of dp */
        entry[n++] = (struct tn_pass_entry){known[3].name, "ep", shipped(known[3].name), word_option, (void *)words, word_option_text, 0};
    return n;
}

static const struct tn_option adamw_option[] = {{"beta1", "0.9", "", 0, 1},
                                                {"beta2", "0.95", "", 0, 1},
                                                {"eps", "1e-8", "", 0, 1},
                                                {"weight_decay", "0.1", "", 0, 1}};
static const double adamw_value[] = {0.9, 0.95, 1e-8, 0.1};
static const struct tn_slot adamw_slots[] = {{"m", TN_F32, 0}, {"v", TN_F32, 0}, {NULL, 0, 0}};

static struct tn_finish adamw_finish(const char *words)
{
    return (struct tn_finish){
        .option = adamw_option, .value = adamw_value, .n_option = 4, .slots = adamw_slots,
        .update = "m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g^2; "
                  "w = w - lr*(m/(1-beta1^t)/(sqrt(v/(1-beta2^t)) + eps) + weight_decay*w)",
        .clip = word_value(words, "clip", 1)};
}

static struct tn_graph *model_of(const char *words)
{
    struct tn_mesh mesh = mesh_of(words);
    struct tn_graph *g = tn_graph_new(&mesh);
    int experts = (int)word_value(words, "experts", 0), llama = experts || word_value(words, "llama", 0) != 0;
    const struct tn_model_config c = {.arch = experts ? "mixtral" : llama ? "llama" : "gpt2",
                                      .n_layer = (int64_t)word_value(words, "layers", 2),
                                      .n_head = 4,
                                      .n_embd = 16,
                                      .vocab_size = (int64_t)word_value(words, "vocab", 65),
                                      .block_size = 16,
                                      .n_inner = llama ? 24 : 64,
                                      .n_kv_head = (int64_t)word_value(words, "keys", 2),
                                      .rotary = {.theta = 10000},
                                      .n_expert = experts,
                                      .top_k = experts ? 2 : 0,
                                      .dropout = word_value(words, "dropout", 0),
                                      .norm_eps = 1e-5,
                                      .init_std = 0.02,
                                      .bias = 1,
                                      .tie_embeddings = word_value(words, "untied", 0) == 0,
                                      .gelu = "erf"};
    const struct tn_model_use use = {.batch = (int64_t)word_value(words, "batch", 4),
                                     .seq = (int64_t)word_value(words, "seq", 16),
                                     .micro = (int64_t)word_value(words, "micro", 2),
                                     .train = 1,
                                     .loss = 1,
                                     .logits = 0};

    ck_assert_msg(tn_model_build(g, &c, &use) == TN_OK, "%s: %s", words, tn_error_text());
    return g;
}

/* All steps; after: NULL or called after each. The status is the pipeline's. */
static tn_status run_steps(struct tn_graph *g, const char *words,
                           void (*after)(void *ctx, const char *step, struct tn_graph *g), void *ctx)
{
    struct tn_pass_entry entry[8];
    struct tn_finish finish = adamw_finish(words);
    struct tn_pipeline p = {.pass = entry,
                            .n_pass = passes_of(words, entry),
                            .finish = &finish,
                            .after = after,
                            .after_ctx = ctx};

    return tn_pipeline_run(&p, g);
}

/* The finished graph of a layout; owned by the caller. */
static inline struct tn_graph *finished(const char *words)
{
    struct tn_graph *g = model_of(words);

    ck_assert_msg(run_steps(g, words, NULL, NULL) == TN_OK, "%s: %s", words, tn_error_text());
    return g;
}

/* Nodes of an operation, in a phase and a unit (0 and NULL: any). */
static inline uint32_t count_nodes(struct tn_graph *g, const char *op, uint32_t phase, const char *unit)
{
    uint32_t n = 0;

    for (struct tn_node *i = tn_graph_first(g); i; i = tn_node_next(i))
        n += (!op || !strcmp(i->op->name, op)) && (!phase || i->phase == phase) &&
             (!unit || !strcmp(i->unit, unit));
    return n;
}
#endif
