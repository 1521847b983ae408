/* ops_loss.c - cross-entropy, and the output head fused with its statistics.
 *
 * head gives the log-sum-exp of a row's logits and the logit of its target without ever holding the row, so a
 * kernel may go through the vocabulary in pieces. With the vocabulary cut, lse is that of the own part: a value
 * per rank, which lse_open and a maximum make whole (pass.h: as_max, lse_open). */
#include "graph/opkit.h"

/* --- ce */

static void ce_shape(struct tn_node *n)
{
    tn_node_output(n, n->in[1]->rank, n->in[1]->dim, n->in[1]->size, TN_F32);
}

static const char *ce_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    const struct tn_value *x = n->op->shape == ce_shape ? n->in[0] : n->in[1];

    return tn_layout_named(n, axis, (const char *const[]){x->dim[x->rank - 1], NULL}, TN_LINEAR_NONE, TN_P, out);
}

static void ce_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "ce_bwd", TN_IN(dy[0], n->in[0], n->in[1]), TN_NONE);
}

static void ce_bwd_shape(struct tn_node *n)
{
    op_like(n, 1);
}

/* log Σ exp(x - max) + max - x[i], 0 where i < 0; sums close where they arise (graph->close_axis). */
static void ce_decompose(struct tn_node *n, struct tn_value **out)
{
    struct tn_graph *g = n->graph;
    struct tn_value *x = n->in[0], *i = n->in[1], *max, *sum, *picked;
    struct tn_attr rows = OP_DIMS_OF(i);

    max = tn_add(g, "rowmax", TN_IN(x), TN_WITH(rows));
    sum = op_with(g, "expr", TN_IN(x, max), TN_WITH(TN_TEXT("f", "exp(a - b)")), TN_F32);
    sum = tn_add(g, "sum", TN_IN(sum), TN_WITH(rows));
    picked = tn_add(g, "pick", TN_IN(x, i), TN_NONE);
    out[0] = tn_expr(g, "select(ge(d, 0), log(a) + b - c, 0)", TN_IN(sum, max, picked, i));
}

/* --- head */

static void head_shape(struct tn_node *n)
{
    for (int i = 0; i < 2; i++)
        tn_node_output(n, n->in[2]->rank, n->in[2]->dim, n->in[2]->size, TN_F32);
}

static void head_bwd_shape(struct tn_node *n)
{
    const struct tn_value *w = n->in[1];

    op_like(n, 0);
    tn_node_output(n, w->rank, w->dim, w->size, TN_F32);
}

/* x, w, i, dlse, dz -> lse, z, dx, dw: head and head_bwd in one, which only plans have (plan/both.c). */
static void head_train_shape(struct tn_node *n)
{
    head_shape(n);
    head_bwd_shape(n);
}

static const char *head_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout x = n->in[0]->layout[axis], w = n->in[1]->layout[axis], i = n->in[2]->layout[axis];
    const struct tn_layout_info *l = tn_layout_get(n->graph, w);
    int back = n->op->shape == head_bwd_shape, vocab = l->kind == TN_LAYOUT_SHARD && l->dim == n->in[1]->dim[0];

    if (vocab && (x != TN_R || i != TN_R))
        return "a cut vocabulary needs whole rows";
    if (!vocab && w != TN_R)
        return "the head needs its weight whole, or cut by vocabulary";
    if (!vocab && (x != i || (x != TN_R && tn_layout_get(n->graph, x)->kind != TN_LAYOUT_SHARD)))
        return "rows and targets must be cut alike";
    if (back)
        out[0] = vocab ? TN_P : x, out[1] = vocab ? w : x == TN_R ? TN_R : TN_P;
    else
        out[0] = vocab ? TN_V : x, out[1] = vocab ? TN_P : x;
    return NULL;
}

static const char *head_train_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout w = n->in[1]->layout[axis], x = n->in[0]->layout[axis];

    if (w != TN_R)
        return "head_train needs its weight whole";
    if (x != n->in[2]->layout[axis] || (x != TN_R && tn_layout_get(n->graph, x)->kind != TN_LAYOUT_SHARD))
        return "rows and targets must be cut alike";
    out[0] = out[1] = out[2] = x, out[3] = x == TN_R ? TN_R : TN_P;
    return NULL;
}

static void head_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_graph *g = n->graph;
    struct tn_value *d[2], *dh;

    for (int i = 0; i < 2; i++)
        d[i] = dy[i] ? dy[i] : tn_expr(g, "select(0, a, 0)", TN_IN(n->out[i]));
    dh = tn_add(g, "head_bwd", TN_IN(n->in[0], n->in[1], n->in[2], n->out[0], d[0], d[1]), TN_NONE);
    for (uint32_t i = 0; dh && i < 2; i++)
        dx[i] = dh->producer->out[i];
}

static void head_decompose(struct tn_node *n, struct tn_value **out)
{
    struct tn_graph *g = n->graph;
    struct tn_value *x = n->in[0], *w = n->in[1], *i = n->in[2], *logits, *max, *sum;
    struct tn_attr rows = OP_DIMS_OF(i), all = OP_DIMS_OF(i);
    const char *dim[TN_MAX_RANK + 1];

    for (uint32_t d = 0; d < i->rank; d++)
        dim[d] = i->dim[d];
    dim[i->rank] = w->dim[0];
    all.as.names = dim;
    all.count = i->rank + 1;
    logits = op_with(g, "einsum", TN_IN(x, w), TN_WITH(all), TN_F32);
    max = tn_add(g, "rowmax", TN_IN(logits), TN_WITH(rows));
    sum = tn_add(g, "sum", TN_IN(tn_expr(g, "exp(a - b)", TN_IN(logits, max))), TN_WITH(rows));
    out[0] = tn_expr(g, "log(a) + b", TN_IN(sum, max));
    out[1] = tn_add(g, "pick", TN_IN(logits, i), TN_NONE);
}

static double head_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    struct tn_local w;

    tn_value_local(n->in[1], m, n->graph->arena, &w);
    return (n->op->shape == head_shape ? 2 : 6) * op_local_count(n->in[0], m) * (double)w.size[0];
}

/* --- a cut vocabulary: the value per rank as a maximum, and exp(lse - max), which adds up */

static const char *as_max_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    out[0] = n->in[0]->layout[axis] == TN_V ? TN_PMAX : n->in[0]->layout[axis];
    return NULL;
}

static const char *lse_open_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    int back = n->n_in == 3;

    if (n->in[back]->layout[axis] != TN_V)
        return tn_layout_named(n, axis, NULL, TN_LINEAR_NONE, TN_P, out);
    for (uint32_t i = 0; i < n->n_in; i++)
        if (i != (uint32_t)back && n->in[i]->layout[axis] != TN_R)
            return "it needs the maximum over all ranks";
    out[0] = back ? TN_V : TN_P;
    return NULL;
}

static void lse_open_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "lse_open_bwd", TN_IN(dy[0], n->in[0], n->in[1]), TN_NONE);
}

/* The kernels see expressions; to the layouts they are more than that. */
static void expression(struct tn_node *n, const char *text, uint32_t like)
{
    static const struct tn_expr_name names[] = {{"a", TN_EXPR_INPUT, 0, 0}, {"b", TN_EXPR_INPUT, 1, 0}, {"c", TN_EXPR_INPUT, 2, 0}};

    n->expr = tn_expr_parse(n->graph->arena, text, names, n->n_in, NULL, 0);
    if (op_sizes_agree(n))
        op_like(n, like);
}

static void lse_open_shape(struct tn_node *n)
{
    expression(n, "exp(a - b)", 0);
}

static void lse_open_bwd_shape(struct tn_node *n)
{
    expression(n, "a*exp(b - c)", 0);
}

const struct tn_op tn_ops_loss[] = {
    {.name = "ce", .n_in_min = 2, .n_in_max = 2, .least = {1}, .shape = ce_shape, .layout = ce_layout, .grad = ce_grad, .decompose = ce_decompose,
     .back = (const char *const[]){"ce_bwd", NULL}},
    {.name = "ce_bwd", .n_in_min = 3, .n_in_max = 3, .least = {0, 1}, .shape = ce_bwd_shape, .layout = ce_layout},
    {.name = "head", .n_in_min = 3, .n_in_max = 3, .least = {1, 1}, .shape = head_shape, .layout = head_layout, .grad = head_grad,
     .decompose = head_decompose, .flops = head_flops, .back = (const char *const[]){"head_bwd", NULL}, .both = "head_train"},
    {.name = "head_bwd", .n_in_min = 6, .n_in_max = 6, .least = {1, 1}, .shape = head_bwd_shape, .layout = head_layout, .flops = head_flops},
    {.name = "head_train", .n_in_min = 5, .n_in_max = 5, .least = {1, 1}, .shape = head_train_shape, .layout = head_train_layout, .flops = head_flops},
    {.name = "as_max", .flags = TN_OP_VIEW, .n_in_min = 1, .n_in_max = 1, .shape = op_shape_like0, .layout = as_max_layout},
    {.name = "lse_open", .flags = TN_OP_NEST | TN_OP_INPLACE, .n_in_min = 2, .n_in_max = 2, .as = "expr", .shape = lse_open_shape,
     .layout = lse_open_layout, .grad = lse_open_grad},
    {.name = "lse_open_bwd", .flags = TN_OP_NEST | TN_OP_INPLACE, .n_in_min = 3, .n_in_max = 3, .as = "expr", .shape = lse_open_bwd_shape,
     .layout = lse_open_layout},
};
const uint32_t tn_n_ops_loss = OP_COUNT(tn_ops_loss);
