/* ops_experts.c - mixtures of experts, with the rows of each expert packed. docs/experts.md has the whole picture.
 *
 * Packed values have the dims of their rows, then `choice`, the visits of a row, then a width. What the names of dims
 * cannot say, the order of the rows, is each rank's own: `count` says it, per rank (V) where rows are cut. A packed value
 * that is cut along a dim it lacks has the rows of those experts that are here, and room for all. */
#include "graph/opkit.h"

static const char *const choice_dim = "choice";

static const struct tn_layout_info *cut_of(const struct tn_node *n, tn_layout l)
{
    const struct tn_layout_info *i = tn_layout_get(n->graph, l);

    return i->kind == TN_LAYOUT_SHARD ? i : NULL;
}

static const char *last_dim(const struct tn_value *v)
{
    return v->dim[v->rank - 1];
}

/* Have a and b the same first n dims? */
static int rows_agree(struct tn_node *n, const struct tn_value *a, const struct tn_value *b, uint32_t dims)
{
    int same = a->rank >= dims && b->rank >= dims;

    for (uint32_t d = 0; d < dims && same; d++)
        same = a->dim[d] == b->dim[d] && a->size[d] == b->size[d];
    if (!same)
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "%s (role %s, unit %s): %%%u %s and %%%u %s have other rows", n->op->name, n->role, n->unit,
                      a->id, a->name, b->id, b->name);
    return same;
}

/* The general rule, over the first inputs alone. */
static const char *named(const struct tn_node *n, uint32_t n_in, int axis, const char *const *forbid, tn_layout *out)
{
    struct tn_node some = *n;

    some.n_in = n_in;
    return tn_layout_named(&some, axis, forbid, TN_LINEAR_ONE, TN_P, out);
}

/* --- who visits whom */

static void route_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[0];
    int64_t k = tn_node_int(n, "k", 0);

    if (k < 1 || k > x->size[x->rank - 1]) {
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "route: k is %lld, of %lld %ss", (long long)k, (long long)x->size[x->rank - 1], last_dim(x));
        return;
    }
    tn_node_output(n, x->rank, x->dim, x->size, TN_F32);
    tn_node_output(n, x->rank, x->dim, x->size, TN_I32);
}

static const char *route_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    return tn_layout_named(n, axis, (const char *const[]){last_dim(n->in[0]), NULL}, TN_LINEAR_NONE, TN_P, out);
}

/* dx = gate (dgate - sum of dgate gate): that of a softmax, 0 where nothing was chosen. */
static void route_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_value *x = n->in[0], *gate = n->out[0], *sum;
    struct tn_attr rows = {"out", TN_ATTR_NAMES, x->rank - 1, {.names = x->dim}};

    sum = tn_add(n->graph, "sum", TN_IN(tn_expr(n->graph, "a*b", TN_IN(dy[0], gate))), &rows, 1);
    dx[0] = op_as(tn_expr(n->graph, "b*(a - c)", TN_IN(dy[0], gate, sum)), x->dtype);
}

/* k times the largest of those that are left, of equal ones the first. */
static void route_decompose(struct tn_node *n, struct tn_value **out)
{
    struct tn_graph *g = n->graph;
    struct tn_value *x = n->in[0], *left = x, *number, *chosen = NULL, *top = NULL;
    struct tn_attr rows = {"out", TN_ATTR_NAMES, x->rank - 1, {.names = x->dim}};

    number = tn_graph_positions(g, last_dim(x), x->size[x->rank - 1]);
    for (int64_t k = tn_node_int(n, "k", 0); k-- > 0;) {
        struct tn_value *most = tn_add(g, "rowmax", TN_IN(left), &rows, 1), *place, *first;

        place = tn_expr(g, "select(ge(a, b), -c, -1e9)", TN_IN(left, most, number));
        first = tn_add(g, "rowmax", TN_IN(place), &rows, 1);
        place = tn_expr(g, "ge(a, b)", TN_IN(place, first));
        top = top ? top : most;
        chosen = chosen ? tn_expr(g, "max(a, b)", TN_IN(chosen, place)) : place;
        left = tn_expr(g, "select(a, -3e38, b)", TN_IN(place, left));
    }
    left = tn_expr(g, "select(a, exp(b - c), 0)", TN_IN(chosen, x, top));
    out[0] = tn_expr(g, "a/b", TN_IN(left, tn_add(g, "sum", TN_IN(left), &rows, 1)));
    out[1] = chosen;
}

static void arrange_shape(struct tn_node *n)
{
    const struct tn_value *c = n->in[0];
    const char *const dim[] = {"block", last_dim(c)};

    if (c->dtype != TN_I32)
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "arrange: choices are whole numbers, %%%u %s are not", c->id, c->name);
    op_like(n, 0);
    tn_node_output(n, 2, dim, (const int64_t[]){tn_node_int(n, "blocks", 1), c->size[c->rank - 1]}, TN_I32);
}

static const char *arrange_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    const struct tn_value *c = n->in[0];
    const struct tn_layout_info *cut = cut_of(n, c->layout[axis]);

    out[0] = out[1] = c->layout[axis];
    if (cut && cut->dim != last_dim(c))
        out[1] = TN_V;
    return cut || c->layout[axis] == TN_R ? NULL : "choices must be whole or cut";
}

/* --- rows to slots and back */

static void dispatch_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[0];
    const char *dim[TN_MAX_RANK + 1];
    int64_t size[TN_MAX_RANK + 1];
    uint32_t rows = x->rank - 1;

    if (!rows_agree(n, x, n->in[1], rows) || (n->n_in > 2 && !rows_agree(n, n->in[1], n->in[2], rows + 1)))
        return;
    memcpy(dim, x->dim, rows * sizeof *dim), memcpy(size, x->size, rows * sizeof *size);
    dim[rows] = choice_dim, size[rows] = tn_node_int(n, "k", 1);
    dim[rows + 1] = last_dim(x), size[rows + 1] = x->size[rows];
    tn_node_output(n, rows + 2, dim, size, x->dtype);
}

static void combine_shape(struct tn_node *n)
{
    const struct tn_value *z = n->in[0];
    const char *dim[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];
    uint32_t rows = z->rank - 2;

    if (!rows_agree(n, z, n->in[1], rows) || (n->n_in > 2 && !rows_agree(n, n->in[1], n->in[2], rows + 1)))
        return;
    memcpy(dim, z->dim, rows * sizeof *dim), memcpy(size, z->size, rows * sizeof *size);
    dim[rows] = last_dim(z), size[rows] = z->size[rows + 1];
    tn_node_output(n, rows + 1, dim, size, z->dtype);
}

static void gate_bwd_shape(struct tn_node *n)
{
    const struct tn_value *place = n->in[2];

    if (rows_agree(n, n->in[0], n->in[1], n->in[0]->rank - 1) && rows_agree(n, n->in[0], place, n->in[0]->rank - 1))
        tn_node_output(n, place->rank, place->dim, place->size, TN_F32);
}

/* Slots are numbers within what a rank holds: rows are cut, experts and visits are not. */
static const char *rows_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    const struct tn_value *place = n->in[!strcmp(n->op->name, "gate_bwd") ? 2 : 1];

    return tn_layout_named(n, axis, (const char *const[]){last_dim(place), choice_dim, NULL}, TN_LINEAR_ONE, TN_P, out);
}

static void dispatch_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    if (n->n_in > 2)
        tn_graph_fail(n->graph, TN_ERR, "dispatch with gates is a gradient, and has none");
    dx[0] = tn_add(n->graph, "combine", TN_IN(dy[0], n->in[1]), TN_NONE);
}

static void combine_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    const struct tn_attr k = TN_INT("k", tn_value_dim(n->in[0], choice_dim));
    struct tn_value *const in[] = {dy[0], n->in[1], n->n_in > 2 ? n->in[2] : NULL};

    dx[0] = tn_add(n->graph, "dispatch", in, n->n_in, &k, 1);
    if (n->n_in > 2)
        dx[2] = tn_add(n->graph, "gate_bwd", TN_IN(dy[0], n->in[0], n->in[1]), TN_NONE);
}

/* Visits that a rank has on average, times the width of a row: rows of experts that may all come do not all come. */
static double visits(const struct tn_value *x, const struct tn_mesh *m)
{
    double count = op_local_count(x, m);

    for (int a = 0; a < TN_AXES; a++) {
        const struct tn_layout_info *l = tn_layout_get(x->graph, x->layout[a]);

        if (m->size[a] > 1 && l->kind == TN_LAYOUT_SHARD && tn_value_find_dim(x, l->dim) < 0)
            count /= (double)m->size[a];
    }
    return count;
}

static double no_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    (void)n, (void)m;
    return 0;
}

static double combine_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    return 2 * visits(n->in[!strcmp(n->op->name, "gate_bwd")], m);
}

/* --- products of packed rows */

/* Which dim of the weights [expert, a, b] the rows have; 0: none. */
static uint32_t shared_dim(const struct tn_value *x, const struct tn_value *w)
{
    return w->rank != 3 ? 0 : w->dim[1] == last_dim(x) ? 1 : w->dim[2] == last_dim(x) ? 2 : 0;
}

static int count_fits(struct tn_node *n, const struct tn_value *count, const struct tn_value *w)
{
    int fits = count->dtype == TN_I32 && count->rank == 2 && w->rank == 3 && count->dim[1] == w->dim[0] && count->size[1] == w->size[0];

    if (!fits)
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "%s (role %s, unit %s): %%%u does not count the rows of the weights' first dim", n->op->name,
                      n->role, n->unit, count->id);
    return fits;
}

static void grouped_shape(struct tn_node *n)
{
    const struct tn_value *x = n->in[0], *w = n->in[1];
    const char *dim[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];
    uint32_t shared = shared_dim(x, w), last = x->rank - 1;

    if (!shared || w->size[shared] != x->size[last]) {
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "grouped (role %s, unit %s): %%%u has no dim %s of %lld among its last two", n->role, n->unit, w->id,
                      last_dim(x), (long long)x->size[last]);
        return;
    }
    if (!count_fits(n, n->in[2], w))
        return;
    memcpy(dim, x->dim, last * sizeof *dim), memcpy(size, x->size, last * sizeof *size);
    dim[last] = w->dim[3 - shared], size[last] = w->size[3 - shared];
    tn_node_output(n, x->rank, dim, size, op_to(n, x->dtype == w->dtype ? x->dtype : TN_F32));
}

static void grouped_dw_shape(struct tn_node *n)
{
    if (!rows_agree(n, n->in[0], n->in[1], n->in[0]->rank - 1))
        return;
    op_shape_out(n);
    if (n->n_out && count_fits(n, n->in[2], n->out[0]) && !shared_dim(n->in[0], n->out[0]) + !shared_dim(n->in[1], n->out[0]))
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "grouped_dw (role %s, unit %s): its result has the experts, then the widths of its inputs", n->role, n->unit);
}

/* Rows of some experts meet the weights of those; else count is that of the rows, and the general rule holds. */
static const char *grouped_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout x = n->in[0]->layout[axis], y = n->in[1]->layout[axis], count = n->in[2]->layout[axis];
    const struct tn_layout_info *cut = cut_of(n, count), *rows = cut_of(n, x);
    const char *expert = n->in[2]->dim[1];

    if (cut && cut->dim == expert) {
        out[0] = count;
        return x == count && y == count ? NULL : "counts of some experts need the rows and the weights of those";
    }
    if ((rows && rows->dim == expert) || (cut_of(n, y) && cut_of(n, y)->dim == expert))
        return "rows and weights of some experts belong together, with the counts of those";
    if ((count == TN_V) != (rows && rows->dim != last_dim(n->in[0])))
        return "rows and their counts are cut differently";
    return count == TN_R || count == TN_V ? named(n, 2, axis, NULL, out) : "counts must be whole, or those of a rank's own rows";
}

static void grouped_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_value *x = n->in[0], *w = n->in[1], *count = n->in[2];
    uint32_t dtype = op_grad_dtype(x);

    dx[0] = op_with(n->graph, "grouped", TN_IN(dy[0], w, count), NULL, 0, dtype);
    dx[1] = op_as(tn_add(n->graph, "grouped_dw", TN_IN(dy[0], x, count), TN_WITH(OP_DIMS_OF(w))), op_grad_dtype(w));
}

static double grouped_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    const struct tn_value *w = n->op->grad ? n->in[1] : n->out[0];
    uint32_t other = 3 - shared_dim(n->in[0], w);
    struct tn_local l;

    tn_value_local(w, m, n->graph->arena, &l);
    return 2 * visits(n->in[0], m) * (double)l.size[other];
}

static const char *const grouped_back[] = {"grouped_dw", NULL};

const struct tn_op tn_ops_experts[] = {
    {.name = "route", .n_in_min = 1, .n_in_max = 1, .least = {1}, .shape = route_shape, .layout = route_layout, .grad = route_grad,
     .decompose = route_decompose},
    {.name = "arrange", .n_in_min = 1, .n_in_max = 1, .least = {1}, .shape = arrange_shape, .layout = arrange_layout, .flops = no_flops},
    {.name = "dispatch", .n_in_min = 2, .n_in_max = 3, .least = {1, 1, 1}, .shape = dispatch_shape, .layout = rows_layout,
     .grad = dispatch_grad, .flops = no_flops},
    {.name = "combine", .n_in_min = 2, .n_in_max = 3, .least = {2, 1, 1}, .shape = combine_shape, .layout = rows_layout,
     .grad = combine_grad, .flops = combine_flops},
    {.name = "gate_bwd", .n_in_min = 3, .n_in_max = 3, .least = {1, 2, 1}, .shape = gate_bwd_shape, .layout = rows_layout,
     .flops = combine_flops},
    {.name = "grouped", .n_in_min = 3, .n_in_max = 3, .least = {1, 3, 2}, .shape = grouped_shape, .layout = grouped_layout,
     .grad = grouped_grad, .flops = grouped_flops, .back = grouped_back},
    {.name = "grouped_dw", .n_in_min = 3, .n_in_max = 3, .least = {1, 1, 2}, .shape = grouped_dw_shape, .layout = grouped_layout,
     .flops = grouped_flops},
};
const uint32_t tn_n_ops_experts = OP_COUNT(tn_ops_experts);
