/* experts_dense.c - mixtures of experts without packed kernels: each expert computes each row, and gates choose.
 *
 * The packed operations only make sense together, so they go together: from a dispatch on, every value gets a dense
 * counterpart that has the dim of the experts in the place of `choice`, up to the combine that sums over it. This is
 * before autodiff, which then differentiates base operations.
 *
 *   x  = dispatch(y, place)      y itself; or, where rows go to other ranks, y where a gate is, 0 elsewhere
 *   exchange                     the conversion of the same layouts: the dim is there now
 *   grouped(x, w, count)         einsum
 *   expr, cast                   the same
 *   combine(z, place, gate)      the sum of gate z, where there is a gate
 */
#include "graph/internal.h"
#include "graph/op.h"

static const char *const packed[] = {"arrange", "dispatch", "combine", "gate_bwd", "grouped", "grouped_dw", NULL};

struct dense {
    struct tn_graph *g;
    struct tn_value **of;                        /* by value id: the counterpart; NULL: it is not packed */
    uint32_t n_value;
    const char *expert;                          /* the dim, of the dispatch in hand */
};

static struct tn_value *counterpart(const struct dense *d, struct tn_value *v)
{
    return v->id < d->n_value && d->of[v->id] ? d->of[v->id] : v;
}

/* The choices that a place, or a count, was made from. */
static struct tn_value *gate_of(struct tn_graph *g, const struct tn_value *place)
{
    const struct tn_node *arrange = place->producer, *route = arrange ? arrange->in[0]->producer : NULL;

    if (route && !strcmp(route->op->name, "route"))
        return route->out[0];
    tn_graph_fail(g, TN_ERR, "%%%u %s: the rows of experts come from no route, so there is no dense form", place->id, place->name);
    return NULL;
}

/* Dims of v, that of the experts, or nothing, in the place of choice. */
static struct tn_attr dims_of(const struct dense *d, const struct tn_value *v, const char *expert)
{
    const char **dim = tn_alloc(d->g->arena, (v->rank + 2) * sizeof *dim);
    struct tn_attr a = {"out", TN_ATTR_NAMES, 0, {.names = dim}};

    for (uint32_t i = 0; i < v->rank; i++)
        if (strcmp(v->dim[i], "choice"))
            dim[a.count++] = v->dim[i];
        else if (expert)
            dim[a.count++] = expert;
    return a;
}

static struct tn_value *grouped(const struct dense *d, struct tn_node *n)
{
    struct tn_attr attr[2] = {dims_of(d, n->out[0], n->in[1]->dim[0]), TN_INT("to", tn_node_int(n, "to", 0))};

    return tn_add(d->g, "einsum", TN_IN(counterpart(d, n->in[0]), n->in[1]), attr, tn_node_attr(n, "to") ? 2 : 1);
}

static struct tn_value *exchange(const struct dense *d, struct tn_node *n)
{
    struct tn_value *x = counterpart(d, n->in[0]);
    const struct tn_node *from = n->in[0]->producer;

    if (from && !strcmp(from->op->name, "dispatch")) {
        struct tn_attr attr[2] = {TN_TEXT("f", "select(b, a, 0)"), dims_of(d, n->in[0], d->expert)};

        x = tn_add(d->g, "expr", TN_IN(x, gate_of(d->g, from->in[1])), attr, 2);
    }
    return tn_convert(x, tn_node_text(n, "axis"), (tn_layout)tn_node_int(n, "to", 0));
}

static struct tn_value *combine(const struct dense *d, struct tn_node *n)
{
    struct tn_value *z = counterpart(d, n->in[0]), *y;
    struct tn_attr out = dims_of(d, n->out[0], NULL);

    if (n->n_in < 3) {
        tn_graph_fail(d->g, TN_ERR, "node %u combine (unit %s) has no gates, so it has no dense form", n->id, n->unit);
        return NULL;
    }
    y = tn_add(d->g, "sum", TN_IN(tn_expr(d->g, "select(b, a*b, 0)", TN_IN(z, n->in[2]))), &out, 1);
    return y && y->dtype != n->out[0]->dtype ? tn_add(d->g, "cast", TN_IN(y), TN_WITH(TN_INT("to", n->out[0]->dtype))) : y;
}

/* A node that is neither: the same on the counterparts. */
static struct tn_value *again(const struct dense *d, struct tn_node *n)
{
    struct tn_attr *attr = tn_alloc(d->g->arena, (n->n_attr + 1) * sizeof *attr);
    struct tn_value *in[TN_MAX_IN];

    for (uint32_t i = 0; i < n->n_in; i++)
        in[i] = counterpart(d, n->in[i]);
    for (uint32_t i = 0; i < n->n_attr; i++)
        attr[i] = strcmp(n->attr[i].key, "out") ? n->attr[i] : dims_of(d, n->out[0], d->expert);
    return tn_add(d->g, n->op->name, in, n->n_in, attr, n->n_attr);
}

static int reads_packed(const struct dense *d, const struct tn_node *n)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->id < d->n_value && d->of[n->in[i]->id])
            return 1;
    return 0;
}

static void lower(struct dense *d, struct tn_node *n)
{
    const char *op = n->op->name;
    struct tn_value *now;

    if (!strcmp(op, "dispatch")) {
        d->expert = n->in[1]->dim[n->in[1]->rank - 1];
        d->of[n->out[0]->id] = n->in[0];
        return;
    }
    if (!reads_packed(d, n))
        return;
    tn_before(d->g, n);
    now = !strcmp(op, "grouped")    ? grouped(d, n)
          : !strcmp(op, "exchange") ? exchange(d, n)
          : !strcmp(op, "combine")  ? combine(d, n)
                                    : again(d, n);
    if (!strcmp(op, "combine") && now)
        graph_replace(n->out[0], now);
    else
        d->of[n->out[0]->id] = now;
}

static int claims_all(int (*claims)(void *ctx, const char *op), void *ctx)
{
    for (const char *const *op = packed; *op; op++)
        if (!claims(ctx, *op))
            return 0;
    return 1;
}

int graph_experts_dense(struct tn_graph *g, int (*claims)(void *ctx, const char *op), void *ctx)
{
    struct dense d = {.g = g, .n_value = g->n_value};

    if (claims_all(claims, ctx))
        return 1;
    d.of = tn_alloc(g->arena, (d.n_value + 1) * sizeof *d.of);
    for (struct tn_node *n = tn_graph_first(g), *next; n && !g->status; n = next) {
        next = tn_node_next(n);
        if (n->n_out && n->out[0]->id < d.n_value)
            lower(&d, n);
    }
    tn_graph_sweep(g);
    return !g->status;
}
