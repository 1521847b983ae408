/* op.c - finding an operation by name, and small parts that several rows of the table share. */
#include "graph/opkit.h"

static const struct {
    const struct tn_op *op;
    const uint32_t *n;
} group[] = {
    {tn_ops_nest, &tn_n_ops_nest}, {tn_ops_index, &tn_n_ops_index},         {tn_ops_norm, &tn_n_ops_norm},
    {tn_ops_rope, &tn_n_ops_rope}, {tn_ops_loss, &tn_n_ops_loss},           {tn_ops_attention, &tn_n_ops_attention},
    {tn_ops_update, &tn_n_ops_update}, {tn_ops_collective, &tn_n_ops_collective},
    {tn_ops_experts, &tn_n_ops_experts},
};

const struct tn_op *tn_op_find(const char *name)
{
    for (size_t g = 0; g < sizeof group / sizeof *group; g++)
        for (uint32_t i = 0; i < *group[g].n; i++)
            if (!strcmp(group[g].op[i].name, name))
                return &group[g].op[i];
    return NULL;
}

const struct tn_op *tn_op_at(uint32_t i)
{
    for (size_t g = 0; g < sizeof group / sizeof *group; i -= *group[g].n, g++)
        if (i < *group[g].n)
            return &group[g].op[i];
    return NULL;
}

void op_like(struct tn_node *n, uint32_t input)
{
    const struct tn_value *v = n->in[input];

    tn_node_output(n, v->rank, v->dim, v->size, v->dtype);
}

void op_shape_like0(struct tn_node *n)
{
    op_like(n, 0);
}

int64_t op_dim(const struct tn_node *n, const char *dim)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        int64_t size = tn_value_dim(n->in[i], dim);

        if (size)
            return size;
    }
    return 0;
}

/* One output with the dims of attribute out; sizes from the inputs. */
void op_shape_out_as(struct tn_node *n, uint32_t dtype)
{
    const struct tn_attr *out = tn_node_attr(n, "out");
    int64_t size[TN_MAX_RANK];

    if (!out || out->type != TN_ATTR_NAMES || out->count > TN_MAX_RANK) {
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "%s needs the attribute out, the dims of its result", n->op->name);
        return;
    }
    for (uint32_t d = 0; d < out->count; d++) {
        size[d] = op_dim(n, out->as.names[d]);
        if (!size[d]) {
            tn_graph_fail(n->graph, TN_ERR_SHAPE, "%s: no input has dim %s", n->op->name, out->as.names[d]);
            return;
        }
    }
    tn_node_output(n, out->count, out->as.names, size, dtype);
}

void op_shape_out(struct tn_node *n)
{
    op_shape_out_as(n, op_to(n, TN_F32));
}

/* --- dtypes */

uint32_t op_to(const struct tn_node *n, uint32_t otherwise)
{
    return (uint32_t)tn_node_int(n, "to", otherwise);
}

int op_is_low(uint32_t dtype)
{
    return dtype == TN_BF16 || dtype == TN_F16;
}

struct tn_value *op_as(struct tn_value *v, uint32_t dtype)
{
    return !v || v->dtype == dtype ? v : tn_add(v->graph, "cast", TN_IN(v), TN_WITH(TN_INT("to", dtype)));
}

/* tn_add of einsum or expr with a result of this dtype; the attribute to is there only where one of the inputs is low:
 * else the result is fp32 anyway. */
struct tn_value *op_with(struct tn_graph *g, const char *op, struct tn_value *const *in, size_t n_in,
                         const struct tn_attr *attr, size_t n_attr, uint32_t to)
{
    struct tn_attr all[8];
    int low = op_is_low(to);

    for (size_t i = 0; i < n_in; i++)
        low |= in[i] && op_is_low(in[i]->dtype);
    if (!low || n_attr >= sizeof all / sizeof *all)
        return tn_add(g, op, in, n_in, attr, n_attr);
    for (size_t i = 0; i < n_attr; i++)
        all[i] = attr[i];
    all[n_attr] = (struct tn_attr)TN_INT("to", to);
    return tn_add(g, op, in, n_in, all, n_attr + 1);
}

static int is_constant(const struct tn_value *v)
{
    const struct tn_node *n = v->producer;

    if (!n)
        return v->kind == TN_VALUE_PARAM || v->kind == TN_VALUE_POSITIONS;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!is_constant(n->in[i]))
            return 0;
    return n->n_in > 0;
}

/* The gradient of a value has its dtype, but for what is made of parameters alone, such as a cast or gathered weight:
 * there it is a sum over all tokens, and goes to the accumulators as it comes. */
uint32_t op_grad_dtype(const struct tn_value *v)
{
    return op_is_low(v->dtype) && is_constant(v) ? TN_F32 : v->dtype;
}

/* Do all inputs give the same size to each dim that they share? */
int op_sizes_agree(struct tn_node *n)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        for (uint32_t d = 0; d < n->in[i]->rank; d++)
            if (op_dim(n, n->in[i]->dim[d]) != n->in[i]->size[d]) {
                tn_graph_fail(n->graph, TN_ERR_SHAPE, "%s (role %s, unit %s): dim %s is %lld in %%%u %s, %lld in another input",
                              n->op->name, n->role, n->unit, n->in[i]->dim[d], (long long)n->in[i]->size[d], n->in[i]->id,
                              n->in[i]->name, (long long)op_dim(n, n->in[i]->dim[d]));
                return 0;
            }
    return 1;
}

double op_local_count(const struct tn_value *v, const struct tn_mesh *m)
{
    struct tn_local l;

    tn_value_local(v, m, v->graph->arena, &l);
    return (double)l.count;
}

/* Product of the local sizes of all dims that any operand has. */
double op_local_volume(const struct tn_node *n, const struct tn_mesh *m)
{
    const char *seen[4 * TN_MAX_RANK];
    uint32_t n_seen = 0;
    double volume = 1;

    for (uint32_t i = 0; i < n->n_in; i++) {
        struct tn_local l;

        tn_value_local(n->in[i], m, n->graph->arena, &l);
        for (uint32_t d = 0; d < n->in[i]->rank; d++) {
            uint32_t k = 0;

            while (k < n_seen && seen[k] != n->in[i]->dim[d])
                k++;
            if (k < n_seen || n_seen == sizeof seen / sizeof *seen)
                continue;
            seen[n_seen++] = n->in[i]->dim[d];
            volume *= (double)l.size[d];
        }
    }
    return volume;
}
