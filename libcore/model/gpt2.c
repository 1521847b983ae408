/* gpt2.c - GPT-2 as published (Radford et al. 2019), in nanoGPT's naming: learned positions, pre-norm blocks, GELU, a
 * head that shares the token embedding.
 *
 *   h  = drop(wte[tokens] + wpe[positions])
 *   h += drop(proj(attention(qkv(ln_1(h)))))        in each block
 *   h += drop(out(gelu(fc(ln_2(h)))))
 *   loss = cross_entropy(ln_f(h)·wteᵀ, targets)
 *
 * Weights are [out, in] in files. The qkv weight has the dims [qkv, heads, head_dim, embed], of which the file's
 * [3C, C] is a view. Initial weights: normal(0.02), the two projections into the residual stream
 * normal(0.02/√(2·layers)), biases 0, norms 1. Dropout: after the embedding, on attention's probabilities, and on both
 * branches. */
#include <math.h>
#include "model/model_own.h"

struct gpt2 {
    struct tn_graph *g;
    const struct tn_model_config *c;
    const struct tn_model_use *use;
    struct tn_value *positions;
    int64_t head_dim;
    uint32_t n_dropout;
};

static struct tn_value *vector(struct gpt2 *m, const char *name, const char *suffix, uint32_t rank, const char *const *dim,
                               const int64_t *size, uint32_t init)
{
    return model_vector(m->g, tn_text(m->g->arena, "%s.%s", name, suffix), rank, dim, size, init);
}

static struct tn_value *matrix(struct gpt2 *m, const char *name, uint32_t rank, const char *const *dim, const int64_t *size, uint32_t rows,
                               double std)
{
    return model_matrix(m->g, tn_text(m->g->arena, "%s.weight", name), rank, dim, size, rows, std);
}

static struct tn_value *norm(struct gpt2 *m, struct tn_value *h, const char *name)
{
    struct tn_value *w, *b = NULL;
    struct tn_attr eps = {"eps", TN_ATTR_FLOAT, 1, {.f = m->c->norm_eps}};

    tn_set_role(m->g, "norm");
    w = vector(m, name, "weight", 1, DIMS("embed"), &m->c->n_embd, TN_INIT_ONE);
    if (m->c->bias)
        b = vector(m, name, "bias", 1, DIMS("embed"), &m->c->n_embd, TN_INIT_ZERO);
    return tn_add(m->g, "layernorm", (struct tn_value *const[]){h, w, b}, m->c->bias ? 3 : 2, &eps, 1);
}

/* y = x·wᵀ + b over out dims. w has the out dims, then those of in. */
static struct tn_value *linear(struct gpt2 *m, struct tn_value *x, const char *name, const char *role, uint32_t n_out, uint32_t rank,
                               const char *const *dim, const int64_t *size, double std)
{
    struct tn_graph *g = m->g;
    struct tn_value *y = model_product(g, role, x, matrix(m, name, rank, dim, size, n_out, std), n_out);

    if (!m->c->bias)
        return y;
    tn_set_role(g, "bias");
    return tn_expr(g, "a + b", TN_IN(y, vector(m, name, "bias", n_out, dim, size, TN_INIT_ZERO)));
}

static int64_t dropout_key(struct gpt2 *m)
{
    return (int64_t)(TN_STREAM_DROPOUT + m->n_dropout++);
}

static struct tn_value *drop(struct gpt2 *m, struct tn_value *x)
{
    int64_t key = dropout_key(m);

    if (!m->use->train || m->c->dropout == 0)
        return x;
    tn_set_role(m->g, "dropout");
    return tn_add(m->g, "dropout", TN_IN(x), TN_WITH({"p", TN_ATTR_FLOAT, 1, {.f = m->c->dropout}}, TN_INT("key", key)));
}

static struct tn_value *add_residual(struct gpt2 *m, struct tn_value *h, struct tn_value *branch)
{
    branch = drop(m, branch);
    tn_set_role(m->g, "residual");
    return tn_expr(m->g, "a + b", TN_IN(h, branch));
}

static struct tn_value *attention(struct gpt2 *m, struct tn_value *qkv)
{
    struct tn_graph *g = m->g;
    double p = m->use->train ? m->c->dropout : 0;
    int64_t key = dropout_key(m);
    struct tn_node *split;

    tn_set_role(g, "split");
    split = tn_producer(tn_add(g, "split", TN_IN(qkv), TN_WITH(TN_TEXT("dim", "qkv"))));
    if (!split)
        return NULL;
    return model_attention(g, m->use, tn_output(split, 0), tn_output(split, 1), tn_output(split, 2), m->positions,
                           TN_WITH({"scale", TN_ATTR_FLOAT, 1, {.f = 1 / sqrt((double)m->head_dim)}}, {"dropout", TN_ATTR_FLOAT, 1, {.f = p}},
                                   TN_INT("key", key), TN_INT("block", m->use->seq)));
}

static struct tn_value *block(struct gpt2 *m, struct tn_value *h, int64_t layer)
{
    const struct tn_model_config *c = m->c;
    int64_t C = c->n_embd, H = c->n_head, D = m->head_dim;
    const char *name = tn_text(m->g->arena, "transformer.h.%lld", (long long)layer);
    double std = c->init_std, narrow = model_narrow(c);
    struct tn_value *y;
#define NAME(part) tn_text(m->g->arena, "%s." part, name)

    tn_at_end(m->g, TN_FORWARD, tn_text(m->g->arena, "block%lld", (long long)layer));
    y = norm(m, h, NAME("ln_1"));
    y = linear(m, y, NAME("attn.c_attn"), "attn_qkv", 3, 4, DIMS("qkv", "heads", "head_dim", "embed"), SIZES(3, H, D, C), std);
    y = attention(m, y);
    y = linear(m, y, NAME("attn.c_proj"), "attn_out", 1, 3, DIMS("embed", "heads", "head_dim"), SIZES(C, H, D), narrow);
    h = add_residual(m, h, y);
    y = norm(m, h, NAME("ln_2"));
    y = linear(m, y, NAME("mlp.c_fc"), "mlp_fc", 1, 2, DIMS("mlp", "embed"), SIZES(c->n_inner, C), std);
    tn_set_role(m->g, "gelu");
    y = tn_expr(m->g, strcmp(c->gelu, "tanh") ? "gelu(a)" : "gelu_tanh(a)", TN_IN(y));
    y = linear(m, y, NAME("mlp.c_proj"), "mlp_out", 1, 2, DIMS("embed", "mlp"), SIZES(C, c->n_inner), narrow);
    return add_residual(m, h, y);
}

static struct tn_value *embedding(struct gpt2 *m, struct tn_value **wte)
{
    const struct tn_model_config *c = m->c;
    struct tn_graph *g = m->g;
    struct tn_value *tokens, *wpe, *token, *position;

    tn_at_end(g, TN_FORWARD, "embed");
    tokens = model_tokens(g, m->use);
    m->positions = model_positions(g, m->use);
    *wte = matrix(m, "transformer.wte", 2, DIMS("vocab", "embed"), SIZES(c->vocab_size, c->n_embd), 1, c->init_std);
    wpe = matrix(m, "transformer.wpe", 2, DIMS("posn", "embed"), SIZES(c->block_size, c->n_embd), 1, c->init_std);
    tn_set_role(g, "tok_embed");
    token = tn_add(g, "embed", TN_IN(*wte, tokens), TN_NONE);
    tn_set_role(g, "pos_embed");
    position = tn_add(g, "embed", TN_IN(wpe, m->positions), TN_NONE);
    tn_set_role(g, "residual");
    return drop(m, tn_expr(g, "a + b", TN_IN(token, position)));
}

void model_gpt2(struct tn_graph *g, const struct tn_model_config *c, const struct tn_model_use *use)
{
    struct gpt2 m = {.g = g, .c = c, .use = use, .head_dim = c->n_embd / c->n_head};
    struct tn_value *wte, *h = embedding(&m, &wte);

    for (int64_t layer = 0; layer < c->n_layer; layer++)
        h = block(&m, h, layer);
    tn_at_end(g, TN_FORWARD, "head");
    h = norm(&m, h, "transformer.ln_f");
    if (!c->tie_embeddings)
        wte = matrix(&m, "lm_head", 2, DIMS("vocab", "embed"), SIZES(c->vocab_size, c->n_embd), 1, c->init_std);
    model_head(g, h, wte, use);
}
