/* precision.c - compute and activations in bf16 or fp16, weights of record and sums in fp32.
 *
 * The model writes its graph in fp32 and knows nothing of this. Here the forward is written anew, operation
 * by operation, by one table: which inputs must be low. The results follow from the dtype rules of the op
 * table: products of low operands and what is made from them element by element are low; statistics,
 * log-sum-exps, losses and sums are fp32 always. Autodiff then differentiates what it finds: the gradient of
 * a value has its dtype, that of a parameter is fp32, and so are accumulators, norm, moments and updates,
 * which this pass never sees.
 *
 * It comes before the strategies, so that what they gather, cut and move is the cast. A parameter is cast
 * once an update, in the prologue, for all its users; over the stages of a pipeline once for each unit, since
 * a unit lives on one stage. Norms and biases are read as they are, in fp32: there are few of them, and the
 * kernels compute in fp32 anyway. */
#include "graph/op.h"
#include "pass/pass.h"

#define BIT(i) (1u << (i))

struct rule {
    const char *op, *role; /* role NULL: any */
    uint32_t low;          /* inputs that must be low */
    uint32_t whole;        /* the result is fp32 */
};

/* The first that fits holds. Operations that are not here take what comes. */
static const struct rule rules[] = {
    {"einsum", "lm_head", BIT(0) | BIT(1), 1}, /* logits are a result, for whoever reads them */
    {"einsum", "router", BIT(0) | BIT(1), 1},  /* who is the k-th largest is decided in fp32 */
    {"einsum", NULL, BIT(0) | BIT(1), 0},
    {"grouped", NULL, BIT(0) | BIT(1), 0},
    {"embed", NULL, BIT(0), 0},
    {"store", NULL, BIT(1), 0},
    {"attention", NULL, BIT(0) | BIT(1) | BIT(2), 0},
    {"head", NULL, BIT(0) | BIT(1), 0},
};

struct precision {
    struct tn_graph *g;
    uint32_t dtype;
    struct tn_value **now; /* by value id: what takes its place; NULL: nothing */
    uint32_t n_value;
};

static const struct rule *rule_of(const struct tn_node *n)
{
    static const struct rule none;

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].op, n->op->name) && (!rules[i].role || !strcmp(rules[i].role, n->role)))
            return &rules[i];
    return &none;
}

static struct tn_value *latest(const struct precision *p, struct tn_value *v)
{
    return v->id < p->n_value && p->now[v->id] ? p->now[v->id] : v;
}

static int reduces(const struct tn_node *n)
{
    return !strcmp(n->op->name, "sum") || !strcmp(n->op->name, "rowmax") || !strcmp(n->op->name, "sumsq");
}

/* An expression that is only summed is not rounded first. */
static int is_summed(const struct tn_node *n)
{
    int all = n->op == tn_op_find("expr");

    for (uint32_t o = 0; o < n->n_out && all; o++)
        for (uint32_t u = 0; u < n->out[o]->n_user; u++)
            all &= reduces(n->out[o]->user[u]);
    return all;
}

static struct tn_value *cast_of(const struct precision *p, const struct tn_value *v, const char *unit)
{
    for (uint32_t i = 0; i < v->n_user; i++) {
        struct tn_node *n = v->user[i];

        if (!strcmp(n->op->name, "cast") && tn_node_int(n, "to", 0) == p->dtype &&
            (!unit || !strcmp(n->unit, unit)))
            return n->out[0];
    }
    return NULL;
}

/* v in the low dtype, for node n. */
static struct tn_value *lowered(struct precision *p, struct tn_value *v, struct tn_node *n)
{
    int staged = p->g->mesh.size[tn_axis_find("pp")] > 1;
    struct tn_value *cast;

    if (!v || v->dtype != TN_F32)
        return v;
    cast = cast_of(p, v, v->kind == TN_VALUE_PARAM && !staged ? NULL : n->unit);
    if (cast)
        return cast;
    if (v->kind == TN_VALUE_PARAM)
        tn_at_end(p->g, TN_PROLOGUE, n->unit);
    else
        tn_before(p->g, n);
    tn_set_role(p->g, "cast");
    return tn_add(p->g, "cast", TN_IN(v), TN_WITH(TN_INT("to", p->dtype)));
}

/* n with these inputs and, if whole, a result in fp32; what it makes takes the place of what n makes. */
static void write_anew(struct precision *p, struct tn_node *n, struct tn_value *const *in, int whole)
{
    struct tn_attr *attr = tn_alloc(p->g->arena, (n->n_attr + 1) * sizeof *attr);
    struct tn_value *first;

    for (uint32_t i = 0; i < n->n_attr; i++)
        attr[i] = n->attr[i];
    if (whole)
        attr[n->n_attr] = (struct tn_attr)TN_INT("to", TN_F32);
    tn_before(p->g, n);
    first = tn_add(p->g, n->op->name, in, n->n_in, attr, n->n_attr + (whole != 0));
    for (uint32_t o = 0; first && o < n->n_out; o++)
        p->now[n->out[o]->id] = first->producer->out[o];
}

static void lower(struct precision *p, struct tn_node *n)
{
    const struct rule *rule = rule_of(n);
    struct tn_value *in[TN_MAX_IN];
    int changed = 0, low = 0;

    for (uint32_t i = 0; i < n->n_in; i++) {
        in[i] = latest(p, n->in[i]);
        if (rule->low & BIT(i))
            in[i] = lowered(p, in[i], n);
        changed |= in[i] != n->in[i];
        low |= in[i] && in[i]->dtype == p->dtype;
    }
    if (changed)
        write_anew(p, n, in, low && (rule->whole || is_summed(n)));
}

static void remove_old(struct precision *p)
{
    for (struct tn_node *n = p->g->last[TN_FORWARD], *before; n; n = before) {
        before = n->prev;
        if (n->n_out && n->out[0]->id < p->n_value && p->now[n->out[0]->id])
            tn_remove(n);
    }
}

tn_status tn_graph_precision(struct tn_graph *g, uint32_t dtype)
{
    struct precision p = {.g = g,
                          .dtype = dtype,
                          .n_value = g->n_value,
                          .now = tn_alloc(g->arena, (g->n_value + 1) * sizeof *p.now)};

    for (struct tn_value *v = g->caches; v; v = v->next)
        v->dtype = dtype;                        /* of what is stored there */
    if (dtype == TN_F16)
        tn_graph_symbol(g, TN_LOSS_SCALE);
    for (struct tn_node *n = g->first[TN_FORWARD]; n && !g->status; n = n->next)
        if (n->n_out && n->out[0]->id < p.n_value)
            lower(&p, n);
    for (uint32_t i = 0; i < g->n_output && !g->status; i++)
        tn_graph_output(g, g->output[i].name, latest(&p, g->output[i].value));
    remove_old(&p);
    return tn_graph_status(g);
}
