/* ops_update.c - writing what outlives the step. */
#include "graph/opkit.h"

static void assign_shape(struct tn_node *n)
{
    if (n->in[0]->kind != TN_VALUE_PARAM && n->in[0]->kind != TN_VALUE_STATE && n->in[0] != n->graph->updated)
        tn_graph_fail(n->graph, TN_ERR, "assign: %%%u %s is neither a parameter nor a state", n->in[0]->id, n->in[0]->name);
    op_sizes_agree(n);
}

static const char *assign_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    (void)out;
    return n->in[0]->layout[axis] == n->in[1]->layout[axis] ? NULL : "the new value has another layout than what it replaces";
}

/* store: cache, x, i: as embed's gradient, along the cache's second dim and without a sum. */
static void store_shape(struct tn_node *n)
{
    const struct tn_value *cache = n->in[0], *x = n->in[1], *i = n->in[2];
    int fits = cache->rank == x->rank && i->rank == 1 && i->dtype == TN_I32 && i->dim[0] == x->dim[1] && cache->dim[1] != x->dim[1];

    for (uint32_t d = 0; d < cache->rank && fits; d++)
        fits = d == 1 || (cache->dim[d] == x->dim[d] && cache->size[d] == x->size[d]);
    if (cache->kind != TN_VALUE_CACHE || !fits || i->size[0] != x->size[1] || cache->dtype != x->dtype)
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "store (unit %s): %%%u %s is not written to a cache of its dims and dtype with another second dim, "
                      "at places [%s]", n->unit, x->id, x->name, x->rank > 1 ? x->dim[1] : "");
    op_like(n, 0);
}

static const char *store_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout cache = n->in[0]->layout[axis];
    const struct tn_layout_info *l = tn_layout_get(n->graph, cache);

    *out = cache;
    if (n->in[1]->layout[axis] != cache || n->in[2]->layout[axis] != TN_R)
        return "the cache is cut differently from what is stored, or the places are not whole";
    if (cache != TN_R && (l->kind != TN_LAYOUT_SHARD || l->dim == n->in[0]->dim[1]))
        return "a cache must be whole along the dim that it is written along";
    return NULL;
}

static double store_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    (void)n;
    (void)m;
    return 0;
}

const struct tn_op tn_ops_update[] = {
    {.name = "store", .flags = TN_OP_STORE, .n_in_min = 3, .n_in_max = 3, .least = {2, 2, 1}, .unread = 1, .shape = store_shape,
     .layout = store_layout, .flops = store_flops},
    {.name = "assign", .flags = TN_OP_EFFECT, .n_in_min = 2, .n_in_max = 2, .shape = assign_shape, .layout = assign_layout},
};
const uint32_t tn_n_ops_update = OP_COUNT(tn_ops_update);
