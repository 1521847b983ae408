/* llama.c - LLaMA (Touvron et al. 2023; grouped queries and stretched positions as in versions 2 to 3.2), in the names
 * of Hugging Face's library: rotary positions, norms by the root of the mean square, a gated MLP, no biases, a head of its own
 * or the token embedding.
 *
 *   h  = embed_tokens[tokens]
 *   h += o(attention(rope(q(y)), rope(k(y)), v(y)))          y = input_layernorm(h), in each block
 *   h += down(silu(gate(y)) · up(y))                         y = post_attention_layernorm(h)
 *   loss = cross_entropy(norm(h)·headᵀ, targets)
 *
 * rep query heads share a key head: q has the dims [heads, rep, head_dim], k and v [heads, head_dim], heads being key heads;
 * where each query head has its own there is no rep. Weights are [out, in] in files, and those of the
 * projections are views of that. Initial weights: normal(init_std), the two projections into the residual stream
 * /√(2·layers), norms 1. The MLP is a function of the model's (model_own.h): mixtures of experts differ in it alone. */
#include <math.h>
#include "model/model_own.h"

static struct tn_value *norm(struct llama *m, struct tn_value *h, const char *name)
{
    struct tn_value *w = model_vector(m->g, tn_text(m->g->arena, "%s.weight", name), 1, DIMS("embed"), &m->c->n_embd, TN_INIT_ONE);

    tn_set_role(m->g, "norm");
    return tn_add(m->g, "rmsnorm", TN_IN(h, w), TN_WITH({"eps", TN_ATTR_FLOAT, 1, {.f = m->c->norm_eps}}));
}

static struct tn_value *turned(struct llama *m, struct tn_value *x)
{
    tn_set_role(m->g, "rope");
    return tn_add(m->g, "rope", TN_IN(x, m->positions, m->rotary), TN_WITH(TN_INT("sign", 1)));
}

/* The first half of a block; y is normed. name: "model.layers.3.self_attn". */
static struct tn_value *attention(struct llama *m, struct tn_value *y, const char *name)
{
    const struct tn_model_config *c = m->c;
    struct tn_graph *g = m->g;
    int64_t C = c->n_embd, K = c->n_kv_head, R = c->n_head / K, D = C / c->n_head;
    uint32_t grouped = R > 1, heads = 2 + grouped;          /* dims of q's heads */
    const char *const *head = grouped ? DIMS("heads", "rep", "head_dim", "embed") : DIMS("heads", "head_dim", "embed");
    const int64_t *size = grouped ? SIZES(K, R, D, C) : SIZES(K, D, C);
    const char *const *back = grouped ? DIMS("embed", "heads", "rep", "head_dim") : DIMS("embed", "heads", "head_dim");
    const int64_t *back_size = grouped ? SIZES(C, K, R, D) : SIZES(C, K, D);
    struct tn_value *q, *k, *v, *o;
#define PROJECTION(part) tn_text(g->arena, "%s." part "_proj.weight", name)

    q = model_product(g, "attn_qkv", y, model_matrix(g, PROJECTION("q"), heads + 1, head, size, heads, c->init_std), heads);
    k = model_product(g, "attn_qkv", y, model_matrix(g, PROJECTION("k"), 3, DIMS("heads", "head_dim", "embed"), SIZES(K, D, C), 2, c->init_std), 2);
    v = model_product(g, "attn_qkv", y, model_matrix(g, PROJECTION("v"), 3, DIMS("heads", "head_dim", "embed"), SIZES(K, D, C), 2, c->init_std), 2);
    q = turned(m, q);
    k = turned(m, k);
    o = model_attention(g, m->use, q, k, v, m->positions, TN_WITH({"scale", TN_ATTR_FLOAT, 1, {.f = 1 / sqrt((double)D)}}));
    return model_product(g, "attn_out", o, model_matrix(g, PROJECTION("o"), heads + 1, back, back_size, 1, model_narrow(c)), 1);
}

struct tn_value *llama_mlp(struct llama *m, struct tn_value *y, const char *name)
{
    const struct tn_model_config *c = m->c;
    struct tn_graph *g = m->g;
    int64_t C = c->n_embd, I = c->n_inner;
    struct tn_value *gate, *up;
#define MLP(part) tn_text(g->arena, "%s.mlp." part "_proj.weight", name)

    gate = model_product(g, "mlp_fc", y, model_matrix(g, MLP("gate"), 2, DIMS("mlp", "embed"), SIZES(I, C), 1, c->init_std), 1);
    up = model_product(g, "mlp_fc", y, model_matrix(g, MLP("up"), 2, DIMS("mlp", "embed"), SIZES(I, C), 1, c->init_std), 1);
    tn_set_role(g, "swiglu");
    y = tn_expr(g, "silu(a)*b", TN_IN(gate, up));
    return model_product(g, "mlp_out", y, model_matrix(g, MLP("down"), 2, DIMS("embed", "mlp"), SIZES(C, I), 1, model_narrow(c)), 1);
}

static struct tn_value *add_residual(struct llama *m, struct tn_value *h, struct tn_value *branch)
{
    tn_set_role(m->g, "residual");
    return tn_expr(m->g, "a + b", TN_IN(h, branch));
}

static struct tn_value *block(struct llama *m, struct tn_value *h, int64_t layer)
{
    struct tn_arena *arena = m->g->arena;
    const char *name = tn_text(arena, "model.layers.%lld", (long long)layer);
    struct tn_value *y;

    tn_at_end(m->g, TN_FORWARD, tn_text(arena, "block%lld", (long long)layer));
    y = norm(m, h, tn_text(arena, "%s.input_layernorm", name));
    h = add_residual(m, h, attention(m, y, tn_text(arena, "%s.self_attn", name)));
    y = norm(m, h, tn_text(arena, "%s.post_attention_layernorm", name));
    return add_residual(m, h, m->mlp(m, y, name));
}

static struct tn_value *embedding(struct llama *m, struct tn_value **table)
{
    const struct tn_model_config *c = m->c;
    struct tn_value *tokens;

    tn_at_end(m->g, TN_FORWARD, "embed");
    tokens = model_tokens(m->g, m->use);
    m->positions = model_positions(m->g, m->use);
    m->rotary = tn_graph_rotary(m->g, DIMS("posn", "head_dim"), model_reach(m->use), c->n_embd / c->n_head, &c->rotary);
    *table = model_matrix(m->g, "model.embed_tokens.weight", 2, DIMS("vocab", "embed"), SIZES(c->vocab_size, c->n_embd), 1, c->init_std);
    tn_set_role(m->g, "tok_embed");
    return tn_add(m->g, "embed", TN_IN(*table, tokens), TN_NONE);
}

void llama_build(struct llama *m)
{
    const struct tn_model_config *c = m->c;
    struct tn_value *head, *h = embedding(m, &head);

    for (int64_t layer = 0; layer < c->n_layer; layer++)
        h = block(m, h, layer);
    tn_at_end(m->g, TN_FORWARD, "head");
    h = norm(m, h, "model.norm");
    if (!c->tie_embeddings)
        head = model_matrix(m->g, "lm_head.weight", 2, DIMS("vocab", "embed"), SIZES(c->vocab_size, c->n_embd), 1, c->init_std);
    model_head(m->g, h, head, m->use);
    if (m->extra && m->use->loss) {
        tn_at_end(m->g, TN_FORWARD, "head");
        tn_set_role(m->g, "balance");
        tn_graph_output(m->g, "loss", tn_expr(m->g, "a + b", TN_IN(tn_graph_find_output(m->g, "loss"), m->extra)));
    }
}

void model_llama(struct tn_graph *g, const struct tn_model_config *c, const struct tn_model_use *use)
{
    struct llama m = {.g = g, .c = c, .use = use, .mlp = llama_mlp};

    llama_build(&m);
}
