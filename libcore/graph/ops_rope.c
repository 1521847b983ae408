/* ops_rope.c - rotary positions, and cutting a dim into halves.
 *
 * rope turns the pairs (x[i], x[i + D/2]) of each head by the angles of their position. Positions are a value and the
 * angles a table by position, so a cut of the sequence, zig-zag or not, is nothing special. Turning is linear in
 * x, and its adjoint is to turn back. Where the kernels lack it, halves are views, and what is left is
 * element-wise. */
#include "graph/opkit.h"

static void rope_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[0], *pos = n->in[1], *table = n->in[2];
    uint32_t last = x->rank - 1;

    if (!op_sizes_agree(n))
        return;
    if (table->rank != 2 || table->dim[1] != x->dim[last] || x->size[last] % 2 || pos->rank != 1 || tn_value_find_dim(x, pos->dim[0]) < 0)
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "rope (role %s, unit %s): it takes x with an even last dim, positions along one of x's dims "
                      "and angles [positions, that last dim]", n->role, n->unit);
    op_like(n, 0);
}

static const char *rope_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    const struct tn_value *table = n->in[2];

    return tn_layout_named(n, axis, (const char *const[]){table->dim[0], table->dim[1], NULL}, TN_LINEAR_ONE, TN_P, out);
}

static void rope_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "rope", TN_IN(dy[0], n->in[1], n->in[2]), TN_WITH(TN_INT("sign", -tn_node_int(n, "sign", 1))));
}

/* a, b: the halves of x; c, d: cosines and sines. */
static void rope_decompose(struct tn_node *n, struct tn_value **out)
{
    struct tn_graph *g = n->graph;
    struct tn_value *x = n->in[0], *y;
    struct tn_attr dim = TN_TEXT("dim", x->dim[x->rank - 1]), now = TN_TEXT("now", "half");
    struct tn_node *part, *angle;

    angle = tn_producer(tn_add(g, "halve", TN_IN(tn_add(g, "embed", TN_IN(n->in[2], n->in[1]), TN_NONE)), TN_WITH(dim, now)));
    part = tn_producer(tn_add(g, "halve", TN_IN(x), TN_WITH(dim, now)));
    if (!angle || !part)
        return;
    y = op_with(g, "expr", TN_IN(part->out[0], part->out[1], angle->out[0], angle->out[1]),
                TN_WITH(TN_TEXT("f", tn_node_int(n, "sign", 1) > 0 ? "y = a*c - b*d; z = b*c + a*d" : "y = a*c + b*d; z = b*c - a*d"),
                        TN_NAMES("results", "y", "z")), x->dtype);
    if (y)
        out[0] = tn_add(g, "join", TN_IN(y->producer->out[0], y->producer->out[1]),
                        TN_WITH(TN_TEXT("dim", "half"), TN_TEXT("now", x->dim[x->rank - 1])));
}

static double rope_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    return 3 * op_local_count(n->in[0], m);
}

/* --- halves of a dim, under another name, and the way back */

/* dim, of size times/over of what it was, is called now. */
static void output_scaled(struct tn_node *n, int64_t times, int64_t over)
{
    const struct tn_value *x = n->in[0];
    int at = tn_value_find_dim(x, tn_node_text(n, "dim"));
    const char *dim[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];

    if (at < 0 || x->size[at] % over) {
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "%s: %%%u %s has no dim %s%s", n->op->name, x->id, x->name, tn_node_text(n, "dim"),
                      at < 0 ? "" : " of an even size");
        return;
    }
    for (uint32_t d = 0; d < x->rank; d++) {
        dim[d] = d == (uint32_t)at ? tn_node_text(n, "now") : x->dim[d];
        size[d] = d == (uint32_t)at ? x->size[d] * times / over : x->size[d];
    }
    tn_node_output(n, x->rank, dim, size, x->dtype);
}

static void halve_shape(struct tn_node *n)
{
    for (int i = 0; i < 2; i++)
        output_scaled(n, 1, 2);
}

static void join_shape(struct tn_node *n)
{
    if (!graph_same_shape(n->in[0], n->in[1])) {
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "join (role %s, unit %s): %%%u and %%%u differ in shape", n->role, n->unit, n->in[0]->id, n->in[1]->id);
        return;
    }
    output_scaled(n, 2, 1);
}

static const char *halves_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    return tn_layout_named(n, axis, (const char *const[]){tn_node_text(n, "dim"), NULL}, TN_LINEAR_ALL, TN_P, out);
}

/* The half that has no gradient stands for zeros. */
static void halve_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_value *part[2];

    for (int i = 0; i < 2; i++) {
        part[i] = dy[i] ? dy[i] : tn_add(n->graph, "expr", TN_IN(n->out[i]), TN_WITH(TN_TEXT("f", "select(0, a, 0)")));
        part[i] = op_as(part[i], op_grad_dtype(n->in[0]));
    }
    dx[0] = tn_add(n->graph, "join", part, 2, TN_WITH(TN_TEXT("dim", tn_node_text(n, "now")), TN_TEXT("now", tn_node_text(n, "dim"))));
}

static void join_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_value *first = tn_add(n->graph, "halve", TN_IN(dy[0]), TN_WITH(TN_TEXT("dim", tn_node_text(n, "now")), TN_TEXT("now", tn_node_text(n, "dim"))));

    for (int i = 0; first && i < 2; i++)
        dx[i] = first->producer->out[i];
}

static double no_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    (void)n, (void)m;
    return 0;
}

const struct tn_op tn_ops_rope[] = {
    {.name = "rope", .n_in_min = 3, .n_in_max = 3, .least = {2, 1, 2}, .shape = rope_shape, .layout = rope_layout, .grad = rope_grad,
     .decompose = rope_decompose, .flops = rope_flops},
    {.name = "halve", .flags = TN_OP_VIEW, .n_in_min = 1, .n_in_max = 1, .least = {1}, .shape = halve_shape, .layout = halves_layout,
     .grad = halve_grad, .flops = no_flops},
    {.name = "join", .flags = TN_OP_STACK, .n_in_min = 2, .n_in_max = 2, .least = {1, 1}, .shape = join_shape, .layout = halves_layout,
     .grad = join_grad, .flops = no_flops},
};
const uint32_t tn_n_ops_rope = OP_COUNT(tn_ops_rope);
