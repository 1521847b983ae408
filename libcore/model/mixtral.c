/* mixtral.c - mixtures of experts (Jiang et al. 2024), in the names of Hugging Face's library: llama's blocks, whose MLP
 * is a sum over experts that a router chooses for each token.
 *
 *   logits = router(y)                               over n_expert experts
 *   gates  = softmax over the top_k largest          0 elsewhere; no token is dropped
 *   mlp(y) = Σ gates[e]·w2[e](silu(w1[e](y)) · w3[e](y))
 *
 * The weights of all experts are one parameter [expert, ...], in files one tensor for each expert: that is what the * in
 * their names says. Rows are packed by expert in between: docs/experts.md. */
#include "model/model_own.h"

static struct tn_value *weights(struct llama *m, const char *name, const char *a, int64_t a_size, const char *b, int64_t b_size, double std)
{
    const char *const dim[] = {"expert", a, b};
    const int64_t size[] = {m->c->n_expert, a_size, b_size};
    const struct tn_param_spec spec = {.dim = dim, .size = size, .rank = 3, .file_rank = 2, .file_shape = {a_size, b_size},
                                       .init = TN_INIT_NORMAL, .std = std};

    return tn_graph_param(m->g, name, &spec);
}

static struct tn_value *product(struct llama *m, const char *role, struct tn_value *x, struct tn_value *w, struct tn_value *count)
{
    tn_set_role(m->g, role);
    return tn_add(m->g, "grouped", TN_IN(x, w, count), TN_NONE);
}

static struct tn_value *experts(struct llama *m, struct tn_value *x, struct tn_value *count, const char *name)
{
    const struct tn_model_config *c = m->c;
    int64_t C = c->n_embd, I = c->n_inner;
    struct tn_value *gate, *up;
#define EXPERTS(part) tn_text(m->g->arena, "%s.block_sparse_moe.experts.*." part ".weight", name)

    gate = product(m, "mlp_fc", x, weights(m, EXPERTS("w1"), "mlp", I, "embed", C, c->init_std), count);
    up = product(m, "mlp_fc", x, weights(m, EXPERTS("w3"), "mlp", I, "embed", C, c->init_std), count);
    tn_set_role(m->g, "swiglu");
    x = tn_expr(m->g, "silu(a)*b", TN_IN(gate, up));
    return product(m, "expert_out", x, weights(m, EXPERTS("w2"), "embed", C, "mlp", I, model_narrow(c)), count);
}

static struct tn_value *mixture(struct llama *m, struct tn_value *y, const char *name)
{
    const struct tn_model_config *c = m->c;
    struct tn_graph *g = m->g;
    struct tn_value *w = model_matrix(g, tn_text(g->arena, "%s.block_sparse_moe.gate.weight", name), 2, DIMS("expert", "embed"),
                                      SIZES(c->n_expert, c->n_embd), 1, c->init_std);
    struct tn_value *gate = model_product(g, "router", y, w, 1), *place, *x, *z;
    struct tn_node *route, *arrange;

    tn_set_role(g, "route");
    gate = tn_add(g, "route", TN_IN(gate), TN_WITH(TN_INT("k", c->top_k)));
    route = gate ? tn_producer(gate) : NULL;
    place = route ? tn_add(g, "arrange", TN_IN(tn_output(route, 1)), TN_NONE) : NULL;
    arrange = place ? tn_producer(place) : NULL;
    if (!arrange)
        return NULL;
    tn_set_role(g, "mlp_in");
    x = tn_add(g, "dispatch", TN_IN(y, place), TN_WITH(TN_INT("k", c->top_k)));
    z = experts(m, x, tn_output(arrange, 1), name);
    tn_set_role(g, "mlp_out");
    return tn_add(g, "combine", TN_IN(z, place, gate), TN_NONE);
}

void model_mixtral(struct tn_graph *g, const struct tn_model_config *c, const struct tn_model_use *use)
{
    struct llama m = {.g = g, .c = c, .use = use, .mlp = mixture};

    llama_build(&m);
}
