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

const struct tn_op tn_ops_update[] = {
    {.name = "assign", .flags = TN_OP_EFFECT, .n_in_min = 2, .n_in_max = 2, .shape = assign_shape, .layout = assign_layout},
};
const uint32_t tn_n_ops_update = OP_COUNT(tn_ops_update);
