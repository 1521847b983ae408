/* ops_nest.c - operations that work by dim name: contraction, sums, broadcasts and element-wise programs.
 *
 * One layout rule serves them all. expr carries its program in the node: linearity (may a partial sum enter?)
 * and derivatives follow from it, so there is no hand-made table of either. */
#include "graph/opkit.h"

/* --- einsum, sum, rowmax, expand */

static const struct tn_expr *expr_compile(struct tn_node *n);

/* With the attribute f it has an epilogue: an expression over the contraction (a) and further inputs. */
static void einsum_shape(struct tn_node *n)
{
    uint32_t results = 1;

    if (!op_sizes_agree(n))
        return;
    if (tn_node_attr(n, "f")) {
        n->expr = expr_compile(n);
        results = n->expr ? n->expr->program.n_result : 0;
    } else if (n->n_in > 2)
        tn_graph_fail(n->graph, TN_ERR, "einsum of %u inputs without an epilogue", n->n_in);
    for (uint32_t r = 0; r < results && !n->graph->status; r++)
        op_shape_out_as(n, op_to(n, n->in[0]->dtype == n->in[1]->dtype ? n->in[0]->dtype : TN_F32));
}

static const char *einsum_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    const char *why = tn_layout_named(n, axis, NULL, TN_LINEAR_ONE, TN_P, out);

    return why || !n->expr || out[0] != TN_P ? why : "an epilogue needs the whole sum";
}

static const char *layout_linear_one(const struct tn_node *n, int axis, tn_layout *out)
{
    return tn_layout_named(n, axis, NULL, TN_LINEAR_ONE, TN_P, out);
}

static const char *layout_plain(const struct tn_node *n, int axis, tn_layout *out)
{
    return tn_layout_named(n, axis, NULL, TN_LINEAR_NONE, TN_P, out);
}

static const char *layout_maximum(const struct tn_node *n, int axis, tn_layout *out)
{
    return tn_layout_named(n, axis, NULL, TN_LINEAR_NONE, TN_PMAX, out);
}

static void einsum_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_graph *g = n->graph;

    if (n->expr) {
        tn_graph_fail(g, TN_ERR, "an einsum with an epilogue has no gradient: fusion comes after autodiff");
        return;
    }
    for (uint32_t i = 0; i < 2; i++)
        dx[i] = op_with(g, "einsum", TN_IN(dy[0], n->in[1 - i]), TN_WITH(OP_DIMS_OF(n->in[i])), op_grad_dtype(n->in[i]));
}

static double einsum_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    return 2 * op_local_volume(n, m);
}

static double volume_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    return op_local_volume(n, m);
}

static void sum_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "expand", TN_IN(op_as(dy[0], op_grad_dtype(n->in[0])), n->in[0]), TN_NONE);
}

static void expand_shape(struct tn_node *n)
{
    if (op_sizes_agree(n))
        tn_node_output(n, n->in[1]->rank, n->in[1]->dim, n->in[1]->size, n->in[0]->dtype);
}

/* The second input only gives the shape: where it is partial or per rank, the result is what the first is. */
static const char *expand_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout x = n->in[0]->layout[axis], like = n->in[1]->layout[axis];
    int shaped = like == TN_F || like >= TN_LAYOUT_FIRST;

    if (x == TN_R) {
        out[0] = shaped ? like : TN_R;
        return NULL;
    }
    if (x == TN_P && !shaped) {
        out[0] = TN_P;
        return NULL;
    }
    return tn_layout_named(n, axis, NULL, TN_LINEAR_NONE, TN_P, out);
}

static void expand_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "sum", TN_IN(dy[0]), TN_WITH(OP_DIMS_OF(n->in[0])));
    dx[0] = op_as(dx[0], op_grad_dtype(n->in[0]));
}

/* --- expr */

static const char *const letter[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
                                     "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x"};

/* The names that the text of a node may use: inputs, symbols, and its numeric attributes as constants. */
static uint32_t expr_names(struct tn_node *n, struct tn_expr_name *names, uint32_t room)
{
    const struct tn_attr *in = tn_node_attr(n, "in"), *uniform = tn_node_attr(n, "uniform");
    uint32_t epilogue = n->op->shape == einsum_shape, k = 0;        /* two inputs are one there, the contraction */
    uint32_t n_input = n->n_in - epilogue;

    for (uint32_t i = 0; i < n_input && k < room; i++)
        names[k++] = (struct tn_expr_name){in && i < in->count ? in->as.names[i] : letter[i], TN_EXPR_INPUT, i, 0};
    for (uint32_t i = 0; uniform && i < uniform->count && k < room; i++)
        names[k++] = (struct tn_expr_name){uniform->as.names[i], TN_EXPR_UNIFORM, tn_graph_symbol(n->graph, uniform->as.names[i]), 0};
    for (uint32_t i = 0; i < n->n_attr && k < room; i++)
        if (n->attr[i].type == TN_ATTR_FLOAT)
            names[k++] = (struct tn_expr_name){n->attr[i].key, TN_EXPR_VALUE, 0, n->attr[i].as.f};
    return k;
}

static const struct tn_expr *expr_compile(struct tn_node *n)
{
    const struct tn_attr *results = tn_node_attr(n, "results");
    struct tn_expr_name names[64];
    uint32_t n_name = expr_names(n, names, sizeof names / sizeof *names);
    const struct tn_expr *e = tn_expr_parse(n->graph->arena, tn_node_text(n, "f"), names, n_name,
                                            results ? results->as.names : NULL, results ? results->count : 0);

    if (!e)
        tn_graph_fail(n->graph, TN_ERR, "expression \"%.200s\" (role %s, unit %s): %s", tn_node_text(n, "f"), n->role, n->unit, tn_error_text());
    return e;
}

/* The dtype of the inputs with the most dims, so that a bias or a statistic in fp32 leaves an activation what it is;
 * fp32 where those differ, or are whole numbers. */
static uint32_t expr_dtype(const struct tn_node *n)
{
    uint32_t dtype = 0, rank = 0;

    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct tn_value *v = n->in[i];

        if (v->dtype == TN_I32 || v->rank < rank)
            continue;
        dtype = !dtype || v->rank > rank || v->dtype == dtype ? v->dtype : TN_F32;
        rank = v->rank;
    }
    return dtype ? dtype : TN_F32;
}

static void expr_shape(struct tn_node *n)
{
    const struct tn_attr *out = tn_node_attr(n, "out");
    const struct tn_value *widest = n->in[0];
    uint32_t dtype = op_to(n, expr_dtype(n));

    n->expr = expr_compile(n);
    if (!n->expr || !op_sizes_agree(n))
        return;
    for (uint32_t i = 1; i < n->n_in; i++)
        if (n->in[i]->rank > widest->rank)
            widest = n->in[i];
    for (uint32_t r = 0; r < n->expr->program.n_result && !n->graph->status; r++) {
        if (out)
            op_shape_out_as(n, dtype);
        else
            tn_node_output(n, widest->rank, widest->dim, widest->size, dtype);
    }
    for (uint32_t i = 0; i < n->n_in && n->n_out; i++)
        for (uint32_t d = 0; d < n->in[i]->rank; d++)
            if (tn_value_find_dim(n->out[0], n->in[i]->dim[d]) < 0)
                tn_graph_fail(n->graph, TN_ERR_SHAPE, "expression \"%.200s\": its result lacks dim %s of input %u", tn_node_text(n, "f"),
                              n->in[i]->dim[d], i);
}

/* A partial sum may enter where the program is linear in all partial inputs together. */
static const char *expr_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    uint32_t partial = 0;

    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->layout[axis] == TN_P)
            partial |= 1u << i;
    if (!partial)
        return tn_layout_named(n, axis, NULL, TN_LINEAR_NONE, TN_P, out);
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->layout[axis] != TN_P && n->in[i]->layout[axis] != TN_R)
            return "a partial sum meets a cut tensor";
    if (!tn_expr_linear(n->expr, partial))
        return "a partial sum enters an expression that is not linear in it";
    for (uint32_t o = 0; o < n->n_out; o++)
        out[o] = TN_P;
    return NULL;
}

/* dy * df/dx over the inputs that it reads; summed over the dims that x lacks, then not rounded before. */
static struct tn_value *expr_grad_input(struct tn_node *n, uint32_t result, uint32_t input, struct tn_value *dy)
{
    struct tn_graph *g = n->graph;
    const struct tn_expr *e;
    struct tn_value *in[TN_MAX_IN + 1], *d;
    uint32_t map[TN_MAX_IN + 1] = {0}, n_in = 0, reads, dtype = op_grad_dtype(n->in[input]);
    int sums = n->out[result]->rank != n->in[input]->rank;
    struct tn_attr attr[2];

    tn_error_clear();
    e = tn_expr_grad(g->arena, n->expr, result, input);
    if (!e) {
        if (tn_error_status())
            tn_graph_fail(g, TN_ERR, "gradient of \"%s\": %s", tn_node_text(n, "f"), tn_error_text());
        return NULL;
    }
    reads = tn_expr_reads(e);
    for (uint32_t i = 0; i <= n->n_in; i++)
        if (reads & 1u << i || i == n->n_in) {
            map[i] = n_in;
            in[n_in++] = i == n->n_in ? dy : n->in[i];
        }
    e = tn_expr_renumber(g->arena, e, map, n_in);
    if (!e)
        return NULL;
    attr[0] = (struct tn_attr)TN_TEXT("f", e->program.text);
    attr[1] = OP_DIMS_OF(n->out[0]);
    d = n_in == 1 && !strcmp(e->program.text, "a") ? dy : op_with(g, "expr", in, n_in, attr, 2, sums ? TN_F32 : dtype);
    if (d && sums)
        d = tn_add(g, "sum", TN_IN(d), TN_WITH(OP_DIMS_OF(n->in[input])));
    return op_as(d, dtype);
}

static void expr_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        for (uint32_t r = 0; r < n->n_out; r++) {
            struct tn_value *d = dy[r] && n->in[i]->dtype != TN_I32 ? expr_grad_input(n, r, i, dy[r]) : NULL;

            if (d)
                dx[i] = dx[i] ? tn_expr(n->graph, "a + b", TN_IN(dx[i], d)) : d;
        }
}

/* Operations of an element; inputs, constants and what the host computes once are none. */
static double expr_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    const struct tn_program *p = &n->expr->program;
    uint32_t operations = 0;

    for (uint32_t i = 0; i < p->n_instr; i++)
        operations += p->instr[i].op > TN_E_UNIFORM;
    return op_local_count(n->out[0], m) * operations;
}

/* --- copies of a kind */

static void cast_shape(struct tn_node *n)
{
    tn_node_output(n, n->in[0]->rank, n->in[0]->dim, n->in[0]->size, op_to(n, TN_F32));
}

static void cast_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = op_as(dy[0], op_grad_dtype(n->in[0]));
}

static void same_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    (void)n;
    dx[0] = dy[0];
}

static void dropout_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    dx[0] = tn_add(n->graph, "dropout", TN_IN(dy[0]), n->attr, n->n_attr);
}

static void sumsq_shape(struct tn_node *n)
{
    tn_node_output(n, 0, NULL, NULL, TN_F32);
}

static double no_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    (void)n, (void)m;
    return 0;
}

const struct tn_op tn_ops_nest[] = {
    {.name = "einsum", .flags = TN_OP_NEST, .n_in_min = 2, .n_in_max = TN_MAX_IN - 1, .shape = einsum_shape,
     .layout = einsum_layout, .grad = einsum_grad, .flops = einsum_flops},
    {.name = "sum", .flags = TN_OP_NEST, .n_in_min = 1, .n_in_max = 1, .shape = op_shape_out,
     .layout = layout_linear_one, .grad = sum_grad, .flops = volume_flops},
    {.name = "rowmax", .flags = TN_OP_NEST, .n_in_min = 1, .n_in_max = 1, .shape = op_shape_out,
     .layout = layout_maximum, .flops = volume_flops},
    {.name = "expand", .flags = TN_OP_NEST, .n_in_min = 2, .n_in_max = 2, .unread = 2, .shape = expand_shape,
     .layout = expand_layout, .grad = expand_grad, .flops = no_flops},
    {.name = "expr", .flags = TN_OP_NEST | TN_OP_INPLACE, .n_in_min = 1, .n_in_max = TN_MAX_IN - 1, .shape = expr_shape,
     .layout = expr_layout, .grad = expr_grad, .flops = expr_flops},
    {.name = "copy", .flags = TN_OP_NEST, .n_in_min = 1, .n_in_max = 1, .shape = op_shape_like0,
     .layout = layout_linear_one, .grad = same_grad, .flops = no_flops},
    {.name = "cast", .flags = TN_OP_NEST, .n_in_min = 1, .n_in_max = 1, .shape = cast_shape,
     .layout = layout_linear_one, .grad = cast_grad, .flops = no_flops},
    {.name = "accum", .flags = TN_OP_NEST | TN_OP_ACCUM, .n_in_min = 1, .n_in_max = 1,
     .shape = op_shape_like0, .layout = layout_linear_one},
    {.name = "dropout", .flags = TN_OP_NEST | TN_OP_INPLACE | TN_OP_RANDOM, .n_in_min = 1, .n_in_max = 1,
     .shape = op_shape_like0, .layout = layout_plain, .grad = dropout_grad},
    {.name = "sumsq", .flags = TN_OP_NEST, .n_in_min = 1, .n_in_max = 1, .shape = sumsq_shape,
     .layout = layout_plain, .flops = einsum_flops},
};
const uint32_t tn_n_ops_nest = OP_COUNT(tn_ops_nest);
