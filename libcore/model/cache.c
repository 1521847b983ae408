/* cache.c - attention to tokens of earlier steps, for generation.
 *
 * Without a cache a step sees use->seq tokens at the positions 0, 1, 2, ... With one it sees use->seq new tokens at
 * positions that the host gives (input "positions", -1: no token), puts their keys and values into caches of use->cache
 * positions, one of each in every block, and attends to all that is there. Places behind a token's own position are
 * not seen, since attention compares positions: what they hold does not matter, so nothing is ever cleared.
 *
 * A model takes its positions from model_positions and attends through model_attention; it knows nothing more of this. */
#include "model/model_own.h"

struct tn_value *model_positions(struct tn_graph *g, const struct tn_model_use *use)
{
    return use->cache ? tn_graph_input(g, "positions", TN_I32, 1, DIMS("seq"), &use->seq, 0) : tn_graph_positions(g, "seq", use->seq);
}

int64_t model_reach(const struct tn_model_use *use)
{
    return use->cache ? use->cache : use->seq;
}

/* x [batch, seq, heads, head_dim] at its positions; all of them: [batch, keys, heads, head_dim]. */
static struct tn_value *stored(struct tn_graph *g, const struct tn_model_use *use, struct tn_value *x, struct tn_value *positions, const char *name)
{
    const char *dim[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];

    if (!x)
        return NULL;
    for (uint32_t d = 0; d < x->rank; d++)
        dim[d] = x->dim[d], size[d] = x->size[d];
    dim[1] = "keys", size[1] = use->cache;
    tn_set_role(g, "cache");
    return tn_add(g, "store", TN_IN(tn_graph_cache(g, tn_text(g->arena, "%s:%s", g->unit, name), x->dtype, x->rank, dim, size), x, positions),
                  TN_NONE);
}

struct tn_value *model_attention(struct tn_graph *g, const struct tn_model_use *use, struct tn_value *q, struct tn_value *k, struct tn_value *v,
                                 struct tn_value *positions, const struct tn_attr *attr, size_t n_attr)
{
    struct tn_value *keys = positions;

    if (use->cache) {
        k = stored(g, use, k, positions, "keys");
        v = stored(g, use, v, positions, "values");
        keys = tn_graph_positions(g, "keys", use->cache);
    }
    tn_set_role(g, "attention");
    return tn_add(g, "attention", TN_IN(q, k, v, positions, keys), attr, n_attr);
}
