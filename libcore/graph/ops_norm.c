/* ops_norm.c - layer norm, the norm by the root of the mean square, and their gradients. The bias' gradient is a plain sum. */
#include "graph/opkit.h"

static void layernorm_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[0];

    if (!op_sizes_agree(n))
        return;
    op_like(n, 0);
    for (int i = 0; i < 2; i++)
        tn_node_output(n, x->rank - 1, x->dim, x->size, TN_F32);
}

static const char *norm_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout x = n->in[0]->layout[axis];
    const struct tn_layout_info *l = tn_layout_get(n->graph, x);

    if (x != TN_R && l->kind != TN_LAYOUT_SHARD)
        return "norm needs whole rows";
    if (l->kind == TN_LAYOUT_SHARD && l->dim == n->in[0]->dim[n->in[0]->rank - 1])
        return "norm needs whole rows";
    for (uint32_t i = 1; i < n->n_in; i++)
        if (n->in[i]->layout[axis] != TN_R)
            return "norm needs whole weights";
    for (uint32_t o = 0; o < n->n_out; o++)
        out[o] = x;
    return NULL;
}

static void layernorm_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_graph *g = n->graph;
    struct tn_value *x = n->in[0], *w = n->in[1], *mean = n->out[1], *rstd = n->out[2];

    if (!dy[0] || dy[1] || dy[2]) {
        tn_graph_fail(g, TN_ERR, "layernorm (role %s, unit %s): mean and rstd have no gradient, and the loss depends on them", n->role, n->unit);
        return;
    }
    dx[0] = tn_add(g, "ln_dx", TN_IN(dy[0], x, w, mean, rstd), TN_NONE);
    dx[1] = tn_add(g, "ln_dw", TN_IN(dy[0], x, mean, rstd), TN_NONE);
    if (n->n_in > 2)
        dx[2] = tn_add(g, "sum", TN_IN(dy[0]), TN_WITH(OP_DIMS_OF(n->in[2])));
}

/* y = (x - mean)·rstd·w + b from sums and expressions, for kernels that lack the whole. */
static void layernorm_decompose(struct tn_node *n, struct tn_value **out)
{
    struct tn_graph *g = n->graph;
    struct tn_value *x = n->in[0], *mean, *centred, *var, *rstd;
    double width = (double)x->size[x->rank - 1];
    struct tn_attr rows = {"out", TN_ATTR_NAMES, x->rank - 1, {.names = x->dim}};

    mean = tn_add(g, "sum", TN_IN(x), TN_WITH(rows));
    mean = tn_add(g, "expr", TN_IN(mean), TN_WITH(TN_TEXT("f", "a/n"), {"n", TN_ATTR_FLOAT, 1, {.f = width}}));
    centred = op_with(g, "expr", TN_IN(x, mean), TN_WITH(TN_TEXT("f", "a - b")), TN_F32);
    var = tn_add(g, "sum", TN_IN(tn_expr(g, "a*a", TN_IN(centred))), TN_WITH(rows));
    rstd = tn_add(g, "expr", TN_IN(var), TN_WITH(TN_TEXT("f", "1/sqrt(a/n + eps)"), {"n", TN_ATTR_FLOAT, 1, {.f = width}},
                                                 {"eps", TN_ATTR_FLOAT, 1, {.f = tn_node_float(n, "eps", 1e-5)}}));
    out[0] = n->n_in > 2 ? op_with(g, "expr", TN_IN(centred, rstd, n->in[1], n->in[2]), TN_WITH(TN_TEXT("f", "a*b*c + d")), x->dtype)
                         : op_with(g, "expr", TN_IN(centred, rstd, n->in[1]), TN_WITH(TN_TEXT("f", "a*b*c")), x->dtype);
    out[1] = mean;
    out[2] = rstd;
}

static const char *whole_rows(const struct tn_node *n, int axis, tn_layout *out)
{
    const struct tn_value *x = n->in[1];

    return tn_layout_named(n, axis, (const char *const[]){x->dim[x->rank - 1], NULL}, TN_LINEAR_NONE, TN_P, out);
}

static void ln_dx_shape(struct tn_node *n)
{
    op_like(n, 1);
}

static void ln_dw_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[1];

    tn_node_output(n, 1, &x->dim[x->rank - 1], &x->size[x->rank - 1], TN_F32);
}

/* --- by the root of the mean square: y = x·rstd·w */

static void rmsnorm_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[0];

    if (!op_sizes_agree(n))
        return;
    op_like(n, 0);
    tn_node_output(n, x->rank - 1, x->dim, x->size, TN_F32);
}

static void rmsnorm_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_graph *g = n->graph;
    struct tn_value *x = n->in[0], *rstd = n->out[1];

    if (!dy[0] || dy[1]) {
        tn_graph_fail(g, TN_ERR, "rmsnorm (role %s, unit %s): rstd has no gradient, and the loss depends on it", n->role, n->unit);
        return;
    }
    dx[0] = tn_add(g, "rms_dx", TN_IN(dy[0], x, n->in[1], rstd), TN_NONE);
    dx[1] = tn_add(g, "rms_dw", TN_IN(dy[0], x, rstd), TN_NONE);
}

static void rmsnorm_decompose(struct tn_node *n, struct tn_value **out)
{
    struct tn_graph *g = n->graph;
    struct tn_value *x = n->in[0], *square, *rstd;
    struct tn_attr rows = {"out", TN_ATTR_NAMES, x->rank - 1, {.names = x->dim}};

    square = tn_add(g, "sum", TN_IN(op_with(g, "expr", TN_IN(x), TN_WITH(TN_TEXT("f", "a*a")), TN_F32)), TN_WITH(rows));
    rstd = tn_add(g, "expr", TN_IN(square), TN_WITH(TN_TEXT("f", "1/sqrt(a/n + eps)"), {"n", TN_ATTR_FLOAT, 1, {.f = (double)x->size[x->rank - 1]}},
                                                   {"eps", TN_ATTR_FLOAT, 1, {.f = tn_node_float(n, "eps", 1e-5)}}));
    out[0] = op_with(g, "expr", TN_IN(x, rstd, n->in[1]), TN_WITH(TN_TEXT("f", "a*b*c")), x->dtype);
    out[1] = rstd;
}

static double norm_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    return 8 * op_local_count(n->in[0], m);
}

const struct tn_op tn_ops_norm[] = {
    {.name = "layernorm", .n_in_min = 2, .n_in_max = 3, .least = {1}, .shape = layernorm_shape, .layout = norm_layout,
     .grad = layernorm_grad, .decompose = layernorm_decompose, .flops = norm_flops,
     .back = (const char *const[]){"ln_dx", "ln_dw", NULL}},
    {.name = "ln_dx", .n_in_min = 5, .n_in_max = 5, .least = {1, 1}, .shape = ln_dx_shape, .layout = whole_rows, .flops = norm_flops},
    {.name = "ln_dw", .n_in_min = 4, .n_in_max = 4, .least = {1, 1}, .shape = ln_dw_shape, .layout = whole_rows, .flops = norm_flops},
    {.name = "rmsnorm", .n_in_min = 2, .n_in_max = 2, .least = {1, 1}, .shape = rmsnorm_shape, .layout = norm_layout,
     .grad = rmsnorm_grad, .decompose = rmsnorm_decompose, .flops = norm_flops,
     .back = (const char *const[]){"rms_dx", "rms_dw", NULL}},
    {.name = "rms_dx", .n_in_min = 4, .n_in_max = 4, .least = {1, 1}, .shape = ln_dx_shape, .layout = whole_rows, .flops = norm_flops},
    {.name = "rms_dw", .n_in_min = 3, .n_in_max = 3, .least = {1, 1}, .shape = ln_dw_shape, .layout = whole_rows, .flops = norm_flops},
};
const uint32_t tn_n_ops_norm = OP_COUNT(tn_ops_norm);
