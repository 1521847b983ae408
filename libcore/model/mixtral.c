/* mixtral.c - mixtures of experts (Jiang et al. 2024), in the names of Hugging Face's library: llama's blocks, whose MLP
 * is a sum over experts that a router chooses for each token.
 *
 *   logits = router(y)                               over n_expert experts
 *   gates  = softmax over the top_k largest          0 elsewhere; no token is dropped
 *   mlp(y) = Σ gates[e]·w2[e](silu(w1[e](y)) · w3[e](y))
 *
 * With model.aux_loss = α training adds, for each block and each sequence of T tokens, α·T·E·Σ_e f(e)·P(e): f is the share of
 * the visits that go to e, P the mean of softmax(logits) over all experts. It is least where both are even (Fedus et al.
 * 2021; here for each sequence, so that no cut of a batch changes it). T tokens, since the loss is a sum until it is divided by the
 * targets that count.
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

/* x reduced to these dims. */
static struct tn_value *over(struct tn_graph *g, const char *op, struct tn_value *x, uint32_t n, const char *const *rest)
{
    const struct tn_attr out = {"out", TN_ATTR_NAMES, n, {.names = rest}};

    return tn_add(g, op, TN_IN(x), &out, 1);
}

static void balance(struct llama *m, struct tn_value *logits, struct tn_value *choice)
{
    const char *const *row = DIMS("batch", "seq"), *const *expert = DIMS("batch", "expert");
    double weight = m->c->aux_loss * (double)m->c->n_expert / (double)(m->c->top_k * m->use->seq);
    struct tn_graph *g = m->g;
    struct tn_value *share, *mean, *all;

    if (weight == 0 || !m->use->train)
        return;
    tn_set_role(g, "balance");
    share = tn_expr(g, "exp(a - b)", TN_IN(logits, over(g, "rowmax", logits, 2, row)));
    share = tn_expr(g, "a/b", TN_IN(share, over(g, "sum", share, 2, row)));
    mean = over(g, "sum", share, 2, expert);
    tn_set_role(g, "visits");
    share = over(g, "sum", tn_expr(g, "select(a, 1, 0)", TN_IN(choice)), 2, expert);
    tn_set_role(g, "balance");
    all = tn_add(g, "expr", TN_IN(mean, share), TN_WITH(TN_TEXT("f", "a*b*weight"), {"weight", TN_ATTR_FLOAT, 1, {.f = weight}}));
    all = over(g, "sum", all, 0, NULL);
    m->extra = m->extra ? tn_expr(g, "a + b", TN_IN(m->extra, all)) : all;
}

static struct tn_value *mixture(struct llama *m, struct tn_value *y, const char *name)
{
    const struct tn_model_config *c = m->c;
    struct tn_graph *g = m->g;
    struct tn_value *w = model_matrix(g, tn_text(g->arena, "%s.block_sparse_moe.gate.weight", name), 2, DIMS("expert", "embed"),
                                      SIZES(c->n_expert, c->n_embd), 1, c->init_std);
    struct tn_value *logits = model_product(g, "router", y, w, 1), *gate, *place, *x, *z;
    struct tn_node *route, *arrange;

    tn_set_role(g, "route");
    gate = tn_add(g, "route", TN_IN(logits), TN_WITH(TN_INT("k", c->top_k)));
    route = gate ? tn_producer(gate) : NULL;
    if (route)
        balance(m, logits, tn_output(route, 1));
    tn_set_role(g, "route");
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
