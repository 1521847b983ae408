/* model.c - what all models share: the table of architectures, the loss, the outputs. */
#include "model/model_own.h"
#include "base/status.h"

static const struct {
    const char *arch;
    void (*build)(struct tn_graph *g, const struct tn_model_config *c, const struct tn_model_use *use);
} models[] = {
    {"gpt2", model_gpt2},
    {"llama", model_llama},
    {"mixtral", model_mixtral},
};

int tn_model_known(const char *arch)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(models[i].arch, arch))
            return 1;
    return 0;
}

const char *tn_model_names(void)
{
    return "gpt2, llama and mixtral";
}

/* LLaMA's: two thirds of gpt2's, since it has three matrices there and not two. */
int64_t tn_model_inner(const char *arch, int64_t n_embd)
{
    return strcmp(arch, "gpt2") ? (8 * n_embd + 3 * 256 - 1) / (3 * 256) * 256 : 4 * n_embd;
}

/* --- what the keys mean together */

static tn_status check_llama(const struct tn_model_config *c)
{
    if (c->n_head % c->n_kv_head)
        return tn_error(TN_ERR_CONFIG, "model.n_kv_head = %lld does not divide model.n_head = %lld: each key head serves the same number of query heads",
                        (long long)c->n_kv_head, (long long)c->n_head);
    if (c->n_embd / c->n_head % 2)
        return tn_error(TN_ERR_CONFIG, "model.n_embd / model.n_head = %lld, the width of a head, is odd: rotary positions turn pairs, so it must be even",
                        (long long)(c->n_embd / c->n_head));
    if (!strcmp(c->arch, "mixtral") && (c->n_expert < 1 || c->top_k < 1 || c->top_k > c->n_expert))
        return tn_error(TN_ERR_CONFIG, "model.top_k = %lld of model.n_expert = %lld experts: a token can see as many as there are",
                        (long long)c->top_k, (long long)c->n_expert);
    return TN_OK;
}

tn_status tn_model_check(const struct tn_model_config *c)
{
    if (c->n_embd % c->n_head)
        return tn_error(TN_ERR_CONFIG, "model.n_head = %lld does not divide model.n_embd = %lld: each head needs the same width",
                        (long long)c->n_head, (long long)c->n_embd);
    if (!tn_model_known(c->arch))
        return tn_error(TN_ERR_CONFIG, "model.arch = %s is not among the models of this version, %s", c->arch, tn_model_names());
    return strcmp(c->arch, "gpt2") ? check_llama(c) : TN_OK;
}

tn_status tn_model_build(struct tn_graph *g, const struct tn_model_config *c, const struct tn_model_use *use)
{
    tn_status s = tn_model_check(c);

    if (s)
        return s;
    if (use->cache > c->block_size || (use->cache && use->seq > use->cache))
        return tn_error(TN_ERR_CONFIG, "a cache of %lld positions for %lld tokens at once: model.block_size = %lld is the most, and there is to be "
                        "room for what comes", (long long)use->cache, (long long)use->seq, (long long)c->block_size);
    if (use->seq > c->block_size)
        return tn_error(TN_ERR_CONFIG, "train.seq_len = %lld is more than model.block_size = %lld, the positions that the model has",
                        (long long)use->seq, (long long)c->block_size);
    g->n_micro = (uint32_t)use->micro;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(models[i].arch, c->arch))
            models[i].build(g, c, use);
    return tn_graph_status(g);
}

/* How many targets are valid: of this batch, or, for training, of the whole update. */
static struct tn_value *count_targets(struct tn_graph *g, struct tn_value *targets, const struct tn_model_use *use)
{
    static const char *const dims[] = {"accum", "batch", "seq"};
    const struct tn_attr none = {"out", TN_ATTR_NAMES, 0, {.names = NULL}};

    if (use->train) {
        targets = tn_graph_input(g, "targets_all", TN_I32, 3, dims, (const int64_t[]){use->micro, use->batch, use->seq}, 0);
        tn_at_end(g, TN_PROLOGUE, "head");
    }
    tn_set_role(g, "count");
    return tn_add(g, "sum", TN_IN(tn_expr(g, "ge(a, 0)", TN_IN(targets))), &none, 1);
}

void model_head(struct tn_graph *g, struct tn_value *x, struct tn_value *w, const struct tn_model_use *use)
{
    static const char *const dims[] = {"batch", "seq"};
    const struct tn_attr none = {"out", TN_ATTR_NAMES, 0, {.names = NULL}};
    struct tn_value *targets, *lse, *loss;

    tn_at_end(g, TN_FORWARD, "head");
    if (use->logits) {
        tn_set_role(g, "lm_head");
        tn_graph_output(g, "logits", tn_add(g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "batch", "seq", "vocab"))));
    }
    if (!use->loss)
        return;
    targets = tn_graph_input(g, "targets", TN_I32, 2, dims, (const int64_t[]){use->batch, use->seq}, 1);
    tn_set_role(g, "head_ce");
    lse = tn_add(g, "head", TN_IN(x, w, targets), TN_NONE);
    tn_set_role(g, "loss");
    loss = lse ? tn_expr(g, "select(ge(c, 0), a - b, 0)", TN_IN(lse, tn_output(tn_producer(lse), 1), targets)) : NULL;
    tn_graph_output(g, "loss", tn_add(g, "sum", TN_IN(loss), &none, 1));
    tn_graph_output(g, "count", count_targets(g, targets, use));
}
