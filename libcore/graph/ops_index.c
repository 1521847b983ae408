/* ops_index.c - rows and entries by number, and cutting a small whole dim apart.
 *
 * embed and pick look at a table whose rows or entries may be cut over ranks: what is not here counts as zero, so
 * the result is partial and one all-reduce makes it whole. */
#include "graph/opkit.h"

static void embed_shape(struct tn_node *n)
{
    const struct tn_value *w = n->in[0], *i = n->in[1];
    const char *dim[2 * TN_MAX_RANK];
    int64_t size[2 * TN_MAX_RANK];
    uint32_t k = 0;

    for (uint32_t d = 0; d < i->rank; d++, k++)
        dim[k] = i->dim[d], size[k] = i->size[d];
    for (uint32_t d = 1; d < w->rank; d++, k++)
        dim[k] = w->dim[d], size[k] = w->size[d];
    tn_node_output(n, k, dim, size, w->dtype);
}

static int is_cut(const struct tn_node *n, tn_layout l)
{
    return tn_layout_get(n->graph, l)->kind == TN_LAYOUT_SHARD;
}

/* Is l a cut of this dim of v? */
static int cuts(const struct tn_value *v, tn_layout l, uint32_t d)
{
    const struct tn_layout_info *i = tn_layout_get(v->graph, l);

    return i->kind == TN_LAYOUT_SHARD && i->dim == v->dim[d];
}

static const char *embed_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout w = n->in[0]->layout[axis], i = n->in[1]->layout[axis];

    if (cuts(n->in[0], w, 0)) {
        out[0] = TN_P;
        return i == TN_R ? NULL : "a table cut by rows needs whole indices";
    }
    out[0] = i;
    return w != TN_R ? "it needs the table whole, or cut by rows" : i == TN_R || is_cut(n, i) ? NULL : "indices must be whole or cut";
}

static void embed_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "embed_bwd", TN_IN(dy[0], n->in[1], n->in[0]), TN_NONE);
}

static void pick_bwd_shape(struct tn_node *n)
{
    op_like(n, 2);
}

/* A sum over all places: fp32, whatever the table is. */
static void embed_bwd_shape(struct tn_node *n)
{
    const struct tn_value *w = n->in[2];

    tn_node_output(n, w->rank, w->dim, w->size, TN_F32);
}

static const char *embed_bwd_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout dy = n->in[0]->layout[axis], i = n->in[1]->layout[axis], w = n->in[2]->layout[axis];

    if (cuts(n->in[2], w, 0)) {
        out[0] = w;
        return dy == TN_R && i == TN_R ? NULL : "a table cut by rows needs whole gradients and indices";
    }
    out[0] = dy == TN_R ? TN_R : TN_P;
    if (is_cut(n, i) && dy != i)
        return "gradients and indices are cut differently";
    if (is_cut(n, dy) && dy != i)
        return "gradients are cut, indices are not";
    return dy == TN_F || dy == TN_V || dy == TN_PMAX ? "gradients must be whole, cut or partial sums" : NULL;
}

static const char *pick_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    const struct tn_value *x = n->in[0];

    if (cuts(x, x->layout[axis], x->rank - 1)) {
        out[0] = TN_P;
        return n->in[1]->layout[axis] == TN_R ? NULL : "a cut row needs whole indices";
    }
    return tn_layout_named(n, axis, NULL, TN_LINEAR_NONE, TN_P, out);
}

static void pick_shape(struct tn_node *n)
{
    tn_node_output(n, n->in[1]->rank, n->in[1]->dim, n->in[1]->size, n->in[0]->dtype);
}

static void pick_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "pick_bwd", TN_IN(dy[0], n->in[1], n->in[0]), TN_NONE);
}

static const char *pick_bwd_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    const struct tn_value *x = n->in[2];
    tn_layout l = x->layout[axis];

    if (cuts(x, l, x->rank - 1)) {
        out[0] = l;
        return n->in[0]->layout[axis] == TN_R && n->in[1]->layout[axis] == TN_R ? NULL : "a cut row needs whole gradients and indices";
    }
    return tn_layout_named(n, axis, NULL, TN_LINEAR_NONE, TN_P, out);
}

/* --- split and stack along a dim that is whole */

static uint32_t without(const struct tn_value *v, const char *drop, const char **dim, int64_t *size)
{
    uint32_t k = 0;

    for (uint32_t d = 0; d < v->rank; d++)
        if (strcmp(v->dim[d], drop))
            dim[k] = v->dim[d], size[k++] = v->size[d];
    return k;
}

static void split_shape(struct tn_node *n)
{
    const char *dim[TN_MAX_RANK], *drop = tn_node_text(n, "dim");
    int64_t size[TN_MAX_RANK], parts = tn_value_dim(n->in[0], drop);
    uint32_t rank = without(n->in[0], drop, dim, size);

    if (parts < 1)
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "split: %%%u %s has no dim %s", n->in[0]->id, n->in[0]->name, drop);
    for (int64_t i = 0; i < parts && !n->graph->status; i++)
        tn_node_output(n, rank, dim, size, n->in[0]->dtype);
}

static const char *split_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    return tn_layout_named(n, axis, (const char *const[]){tn_node_text(n, "dim"), NULL}, TN_LINEAR_ALL, TN_P, out);
}

/* The parts that have no gradient stand for zeros. */
static void split_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_value *part[TN_MAX_OUT];
    struct tn_value *x = n->in[0];
    int at = tn_value_find_dim(x, tn_node_text(n, "dim"));

    for (uint32_t i = 0; i < n->n_out; i++) {
        part[i] = dy[i] ? dy[i] : tn_add(n->graph, "expr", TN_IN(n->out[i]), TN_WITH(TN_TEXT("f", "select(0, a, 0)")));
        part[i] = op_as(part[i], op_grad_dtype(x));
    }
    dx[0] = tn_add(n->graph, "stack", part, n->n_out, TN_WITH(TN_TEXT("dim", tn_node_text(n, "dim")), TN_INT("at", at)));
}

static void stack_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[0];
    const char *dim[TN_MAX_RANK + 1];
    int64_t size[TN_MAX_RANK + 1], at = tn_node_int(n, "at", 0);
    uint32_t k = 0;

    if (at < 0 || at > x->rank) {
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "stack: place %lld among %u dims", (long long)at, x->rank);
        return;
    }
    for (uint32_t d = 0; d <= x->rank; d++) {
        if (d == (uint32_t)at)
            dim[k] = tn_node_text(n, "dim"), size[k++] = n->n_in;
        if (d < x->rank)
            dim[k] = x->dim[d], size[k++] = x->size[d];
    }
    for (uint32_t i = 1; i < n->n_in; i++)
        if (!graph_same_shape(x, n->in[i]))
            tn_graph_fail(n->graph, TN_ERR_SHAPE, "stack (role %s, unit %s): %%%u and %%%u differ in shape", n->role, n->unit, x->id, n->in[i]->id);
    tn_node_output(n, k, dim, size, x->dtype);
}

static const char *stack_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    return tn_layout_named(n, axis, NULL, TN_LINEAR_ALL, TN_P, out);
}

static void stack_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_value *first = tn_add(n->graph, "split", TN_IN(dy[0]), TN_WITH(TN_TEXT("dim", tn_node_text(n, "dim"))));

    for (uint32_t i = 0; first && i < n->n_in; i++)
        dx[i] = first->producer->out[i];
}

/* --- another name for a dim, so that keys can meet queries */

static void rename_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[0];
    const char *dim[TN_MAX_RANK];
    int at = tn_value_find_dim(x, tn_node_text(n, "dim"));

    if (at < 0) {
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "rename: %%%u %s has no dim %s", x->id, x->name, tn_node_text(n, "dim"));
        return;
    }
    for (uint32_t d = 0; d < x->rank; d++)
        dim[d] = d == (uint32_t)at ? tn_node_text(n, "now") : x->dim[d];
    tn_node_output(n, x->rank, dim, x->size, x->dtype);
}

static const char *rename_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    const struct tn_layout_info *l = tn_layout_get(n->graph, n->in[0]->layout[axis]);

    out[0] = n->in[0]->layout[axis];
    if (l->kind == TN_LAYOUT_SHARD && !strcmp(l->dim, tn_node_text(n, "dim")))
        out[0] = tn_layout_shard(n->graph, tn_node_text(n, "now"), l->pattern, l->rot);
    return NULL;
}

static void rename_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "rename", TN_IN(dy[0]), TN_WITH(TN_TEXT("dim", tn_node_text(n, "now")), TN_TEXT("now", tn_node_text(n, "dim"))));
}

static double no_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    (void)n, (void)m;
    return 0;
}

const struct tn_op tn_ops_index[] = {
    {.name = "embed", .n_in_min = 2, .n_in_max = 2, .least = {1}, .shape = embed_shape, .layout = embed_layout, .grad = embed_grad, .flops = no_flops},
    {.name = "embed_bwd", .n_in_min = 3, .n_in_max = 3, .least = {0, 0, 1}, .unread = 4, .shape = embed_bwd_shape, .layout = embed_bwd_layout},
    {.name = "pick", .n_in_min = 2, .n_in_max = 2, .least = {1}, .shape = pick_shape, .layout = pick_layout, .grad = pick_grad, .flops = no_flops},
    {.name = "pick_bwd", .n_in_min = 3, .n_in_max = 3, .least = {0, 0, 1}, .unread = 4, .shape = pick_bwd_shape, .layout = pick_bwd_layout},
    {.name = "split", .flags = TN_OP_VIEW, .n_in_min = 1, .n_in_max = 1, .shape = split_shape, .layout = split_layout,
     .grad = split_grad, .flops = no_flops},
    {.name = "stack", .flags = TN_OP_STACK, .n_in_min = 1, .n_in_max = TN_MAX_IN, .shape = stack_shape, .layout = stack_layout,
     .grad = stack_grad, .flops = no_flops},
    {.name = "rename", .flags = TN_OP_VIEW, .n_in_min = 1, .n_in_max = 1, .shape = rename_shape, .layout = rename_layout,
     .grad = rename_grad, .flops = no_flops},
};
const uint32_t tn_n_ops_index = OP_COUNT(tn_ops_index);
