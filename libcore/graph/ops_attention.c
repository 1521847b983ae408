/* ops_attention.c - attention with positions as values.
 *
 * q [batch, seq, heads, head_dim], k and v the same with as many positions (then the dim is seq, too) or others (keys). The mask is kpos <= qpos, so cuts of the
 * sequence need no special case: queries may be cut along it where keys are whole. With the attribute ring = AXIS keys may be
 * cut too: what one rank computes is then a part, and the context-parallel pass merges the parts by their log-sum-exp. */
#include "graph/opkit.h"

static void attention_shape(struct tn_node *n)
{
    const struct tn_value *q = n->in[0];

    if (!op_sizes_agree(n))
        return;
    op_like(n, 0);
    tn_node_output(n, q->rank - 1, q->dim, q->size, TN_F32);
}

static void attn_bwd_shape(struct tn_node *n)
{
    for (uint32_t i = 0; i < 3; i++)
        op_like(n, i);
}

/* Some queries, all keys: dk and dv are sums over the ranks. */
static const char *cut_queries(const struct tn_node *n, int axis, tn_layout *out)
{
    tn_layout q = n->in[0]->layout[axis];

    for (uint32_t i = 1; i < n->n_in; i++)
        if (n->in[i]->layout[axis] != (i == 1 || i == 2 || i == 4 ? TN_R : q))
            return "with the queries cut along the sequence, their positions and gradients must be cut alike and the keys be whole";
    out[0] = q, out[1] = out[2] = n->n_out == 3 ? TN_P : q;
    return NULL;
}

static const char *attention_layout(const struct tn_node *n, int axis, tn_layout *out)
{
    struct tn_graph *g = n->graph;
    tn_layout q = n->in[0]->layout[axis], k = n->in[1]->layout[axis];
    const struct tn_layout_info *lq = tn_layout_get(g, q), *lk = tn_layout_get(g, k);
    int back = n->n_out == 3;

    if (!strcmp(tn_node_text(n, "ring"), tn_axis_name[axis])) {
        if (lq->kind != TN_LAYOUT_SHARD || lk->kind != TN_LAYOUT_SHARD || lq->dim != n->in[0]->dim[1] || lk->dim != n->in[1]->dim[1])
            return "ring attention needs the sequence cut";
        if (k != n->in[2]->layout[axis] || k != n->in[4]->layout[axis] || q != n->in[3]->layout[axis])
            return "keys, values and their positions come from different ranks";
        out[0] = q, out[1] = back ? k : q, out[2] = k;
        return NULL;
    }
    if (lq->kind == TN_LAYOUT_SHARD && !strcmp(lq->dim, "rep") && k == TN_R) {   /* more ranks than key heads */
        out[0] = q, out[1] = out[2] = back ? TN_P : q;
        return NULL;
    }
    if (lq->kind == TN_LAYOUT_SHARD && !strcmp(lq->dim, "seq") && k == TN_R)
        return cut_queries(n, axis, out);
    if (q != TN_R && (lq->kind != TN_LAYOUT_SHARD || (strcmp(lq->dim, "batch") && strcmp(lq->dim, "heads"))))
        return "attention needs whole sequences";
    for (uint32_t i = 1; i < n->n_in; i++)
        if (n->in[i]->layout[axis] != (i == 3 || i == 4 ? TN_R : q))
            return i == 3 || i == 4 ? "positions must be whole here" : "its inputs are cut differently";
    for (uint32_t o = 0; o < n->n_out; o++)
        out[o] = q;
    return NULL;
}

/* ds = p·(dp − Σ_D do·o + dlse), so a gradient of the log-sum-exp rides along in delta. */
static void attention_grad(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx)
{
    struct tn_graph *g = n->graph;
    struct tn_value *o = n->out[0], *lse = n->out[1], *delta, *dq, *d;
    struct tn_attr rows = {"out", TN_ATTR_NAMES, lse->rank, {.names = lse->dim}};

    d = dy[0] ? dy[0] : tn_expr(g, "select(0, a, 0)", TN_IN(o));
    delta = op_with(g, "expr", TN_IN(d, o), TN_WITH(TN_TEXT("f", "a*b")), TN_F32);
    delta = tn_add(g, "sum", TN_IN(delta), TN_WITH(rows));
    if (dy[1])
        delta = tn_expr(g, "a - b", TN_IN(delta, dy[1]));
    dq = tn_add(g, "attn_bwd", TN_IN(n->in[0], n->in[1], n->in[2], n->in[3], n->in[4], lse, delta, d), n->attr, n->n_attr);
    for (uint32_t i = 0; dq && i < 3; i++)
        dx[i] = dq->producer->out[i];
}

static struct tn_value *as_keys(struct tn_value *v)
{
    if (v && tn_value_find_dim(v, "keys") >= 0)
        return v;
    return v ? tn_add(v->graph, "rename", TN_IN(v), TN_WITH(TN_TEXT("dim", "seq"), TN_TEXT("now", "keys"))) : NULL;
}

/* The scores as a whole: [batch, heads, (rep,) seq, keys], with the mask of dropout counted like the fused one's. Scores
 * and softmax are fp32, the weights meet the values in the values' dtype. What is masked is far below any score but
 * finite, so that a search for numbers that are not finds none here. */
static void attention_decompose(struct tn_node *n, struct tn_value **out)
{
    struct tn_graph *g = n->graph;
    struct tn_value *q = n->in[0], *k = as_keys(n->in[1]), *v = as_keys(n->in[2]), *kpos = as_keys(n->in[4]), *s, *max, *e, *sum, *p;
    const char *dim[TN_MAX_RANK + 1];
    uint32_t heads = q->rank - 3;
    const char *ring = tn_node_text(n, "ring");
    struct tn_attr all = {"out", TN_ATTR_NAMES, heads + 3, {.names = dim}}, rows = {"out", TN_ATTR_NAMES, heads + 2, {.names = dim}};

    if (*ring) {
        tn_graph_fail(g, TN_ERR_CONFIG, "parallel.%s: a ring needs kernels for attention and attn_bwd, which no kernel plugin here "
                      "has; parallel.ring = no gathers the keys and needs neither", ring);
        return;
    }
    dim[0] = "batch";
    for (uint32_t d = 0; d < heads; d++)
        dim[1 + d] = q->dim[2 + d];
    dim[heads + 1] = "seq", dim[heads + 2] = "keys";
    s = op_with(g, "einsum", TN_IN(q, k), &all, 1, TN_F32);
    s = tn_add(g, "expr", TN_IN(s, n->in[3], kpos), TN_WITH(TN_TEXT("f", "select(ge(b, c), a*scale, -3e38)"),
                                                          {"scale", TN_ATTR_FLOAT, 1, {.f = tn_node_float(n, "scale", 1)}}));
    max = tn_expr(g, "select(ge(a, -1e38), a, 0)", TN_IN(tn_add(g, "rowmax", TN_IN(s), &rows, 1)));
    e = tn_expr(g, "exp(a - b)", TN_IN(s, max));
    sum = tn_add(g, "sum", TN_IN(e), &rows, 1);
    p = op_as(tn_expr(g, "select(b, a/b, 0)", TN_IN(e, sum)), q->dtype);
    if (tn_node_float(n, "dropout", 0) > 0)
        p = tn_add(g, "dropout", TN_IN(p), TN_WITH({"p", TN_ATTR_FLOAT, 1, {.f = tn_node_float(n, "dropout", 0)}}, TN_INT("key", tn_node_int(n, "key", 0))));
    out[0] = tn_add(g, "einsum", TN_IN(p, v), TN_WITH(OP_DIMS_OF(q)));
    out[1] = tn_add(g, "expr", TN_IN(sum, max), TN_WITH(TN_TEXT("f", "log(a) + b"), OP_DIMS_OF(n->out[1])));
}

/* Half of the scores are masked. Two contractions forward, five backward. */
static double attention_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    struct tn_local k;

    tn_value_local(n->in[1], m, n->graph->arena, &k);
    return (n->n_out == 3 ? 5 : 2) * op_local_count(n->in[0], m) * (double)k.size[1];
}

const struct tn_op tn_ops_attention[] = {
    {.name = "attention", .flags = TN_OP_RANDOM, .n_in_min = 5, .n_in_max = 5, .least = {4, 4, 4, 1, 1}, .shape = attention_shape,
     .layout = attention_layout, .grad = attention_grad, .decompose = attention_decompose, .flops = attention_flops,
     .back = (const char *const[]){"attn_bwd", NULL}},
    {.name = "attn_bwd", .flags = TN_OP_RANDOM, .n_in_min = 8, .n_in_max = 8, .least = {4, 4, 4, 1, 1}, .shape = attn_bwd_shape,
     .layout = attention_layout, .flops = attention_flops},
};
const uint32_t tn_n_ops_attention = OP_COUNT(tn_ops_attention);
