/* ops_collective.c - changes of layout along one mesh axis, and their adjoints.
 *
 * A collective takes its input from layout `from` to layout `to` on `axis` and leaves the other axes alone. The
 * adjoint converts the gradient to dual(from): dual(S) = S, dual(F) = F, dual(V) = V, dual(P) = R, and dual(R) is R
 * or, while nobody needs the sum, P. So no operation "identity forward, all-reduce backward" is needed. */
#include "graph/opkit.h"

static int own_axis(const struct tn_node *n)
{
    return tn_axis_find(tn_node_text(n, "axis"));
}

static void like_all(struct tn_node *n)
{
    if (own_axis(n) < 0)
        tn_graph_fail(n->graph, TN_ERR, "%s (role %s, unit %s): \"%s\" is no axis", n->op->name, n->role, n->unit, tn_node_text(n, "axis"));
    for (uint32_t i = 0; i < n->n_in; i++)
        op_like(n, i);
}

/* A flat chunk is cut last: while it is there on an inner axis, an outer one cannot change between whole and
 * flat, and no axis can change the shape that was flattened. */
static const char *flat_problem(const struct tn_node *n, const struct tn_value *v, int axis)
{
    const struct tn_layout_info *from = tn_layout_get(n->graph, (tn_layout)tn_node_int(n, "from", 0));
    const struct tn_layout_info *to = tn_layout_get(n->graph, (tn_layout)tn_node_int(n, "to", 0));

    if (v->layout[axis] != TN_F)
        return NULL;
    if (from->kind == TN_LAYOUT_SHARD || to->kind == TN_LAYOUT_SHARD)
        return "a flat chunk must be gathered first";
    return axis > own_axis(n) && (from->kind == TN_F || to->kind == TN_F) ? "flat chunks of inner axes must be gathered first" : NULL;
}

static const char *collective_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout from = (tn_layout)tn_node_int(n, "from", 0), to = (tn_layout)tn_node_int(n, "to", 0);

    if (!tn_layout_get(n->graph, from)->kind || !tn_layout_get(n->graph, to)->kind)
        return "from and to must be layouts";
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct tn_value *v = n->in[i];
        const char *why = axis == own_axis(n) ? NULL : flat_problem(n, v, axis);

        if (why)
            return why;
        if (axis == own_axis(n) && v->layout[axis] != from)
            return tn_text(n->graph->arena, "it takes %s, not %s", tn_layout_text(n->graph, from), tn_layout_text(n->graph, v->layout[axis]));
        out[i] = axis == own_axis(n) ? to : v->layout[axis];
    }
    return NULL;
}

/* A maximum only stabilises: it has no gradient. What went together comes back together. */
static void collective_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    tn_layout from = (tn_layout)tn_node_int(n, "from", 0);
    struct tn_value *d[TN_MAX_OUT], *back[TN_MAX_OUT];
    uint32_t m = 0;

    if (from == TN_PMAX)
        return;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (dy[i])
            d[m++] = dy[i];
    graph_convert_all(d, m, tn_node_text(n, "axis"), from == TN_P ? TN_R : from, back);
    for (uint32_t i = n->n_in; i-- > 0;)
        if (dy[i])
            dx[i] = back[--m];
}

static const char *ring_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout l = n->in[0]->layout[axis];
    const struct tn_layout_info *i = tn_layout_get(n->graph, l);
    int64_t size = n->graph->mesh.size[axis], shift = tn_node_int(n, "shift", 1) % size;

    out[0] = l;
    if (axis != own_axis(n))
        return NULL;
    if (i->kind != TN_LAYOUT_SHARD)
        return "only a cut value can go round a ring";
    out[0] = tn_layout_shard(n->graph, i->dim, i->pattern, (int32_t)(((i->rot + shift) % size + size) % size));
    return NULL;
}

static void ring_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "ring", TN_IN(dy[0]), TN_WITH(TN_TEXT("axis", tn_node_text(n, "axis")), TN_INT("shift", -tn_node_int(n, "shift", 1))));
}

/* --- rows by expert: as many as there are. Inputs: rows, counts of the rank's own, counts of what is here afterwards */

static void exchange_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[0], *a = n->in[1], *b = n->in[2];

    if (own_axis(n) < 0 || a->dtype != TN_I32 || b->dtype != TN_I32 || a->rank != 2 || b->rank != 2 || a->size[1] != b->size[1])
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "exchange (role %s, unit %s) of %%%u %s takes an axis and two counts of its rows", n->role, n->unit, x->id, x->name);
    op_like(n, 0);
}

/* Which of the two counts is that of the rows of experts: the one that is cut along them. */
static const char *exchange_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout from = (tn_layout)tn_node_int(n, "from", 0), to = (tn_layout)tn_node_int(n, "to", 0);
    tn_layout l[2] = {n->in[1]->layout[axis], n->in[2]->layout[axis]};

    out[0] = n->in[0]->layout[axis];
    if (axis != own_axis(n))
        return out[0] == TN_F ? "a flat chunk must be gathered first" : NULL;
    if (out[0] != from)
        return tn_text(n->graph->arena, "it takes %s, not %s", tn_layout_text(n->graph, from), tn_layout_text(n->graph, out[0]));
    out[0] = to;
    return (l[0] == from && l[1] == TN_V) || (l[0] == TN_V && l[1] == to) ? NULL : "its counts are not those of the rows before and after";
}

static void exchange_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = graph_convert_rows(dy[0], n->in[2], n->in[1], tn_node_text(n, "axis"), (tn_layout)tn_node_int(n, "from", 0));
}

static double no_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    (void)n, (void)m;
    return 0;
}

#define CONVERSION(NAME, FLAGS) \
    {.name = NAME, .flags = TN_OP_COLLECTIVE | FLAGS, .n_in_min = 1, .n_in_max = TN_MAX_OUT, .shape = like_all, \
     .layout = collective_layout, .grad = collective_grad, .flops = no_flops}

const struct tn_op tn_ops_collective[] = {
    CONVERSION("all_reduce", TN_OP_INPLACE),
    CONVERSION("all_gather", 0),
    CONVERSION("reduce_scatter", 0),
    CONVERSION("all_to_all", 0),
    CONVERSION("slice", 0),
    CONVERSION("once", 0),
    CONVERSION("move", 0),
    {.name = "ring", .flags = TN_OP_COLLECTIVE, .n_in_min = 1, .n_in_max = 1, .shape = like_all, .layout = ring_layout,
     .grad = ring_grad, .flops = no_flops},
    {.name = "exchange", .flags = TN_OP_COLLECTIVE, .n_in_min = 3, .n_in_max = 3, .least = {1, 2, 2}, .shape = exchange_shape,
     .layout = exchange_layout, .grad = exchange_grad, .flops = no_flops},
};
const uint32_t tn_n_ops_collective = OP_COUNT(tn_ops_collective);
