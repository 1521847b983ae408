/* autodiff.c - the backward of a graph, as more graph.
 *
 * Forward nodes are visited in reverse; each op's rule adds nodes that take the gradient of its outputs to that of its
 * inputs. When all contributions to a value's gradient are in, those of equal layout are added first and what is
 * still partial is closed with one all_reduce. A partial sum is kept where somebody will reduce it better: at
 * parameters (a strategy owns that reduction), at what comes from parameters and constants alone, and at what an
 * all_gather on the same axis made (its adjoint, a reduce_scatter, wants the partial sum).
 *
 * A collective stands where its input is complete, before what else its unit has to compute: the gradient of an
 * activation is on its way while that of the weight is computed.
 *
 * The loss is a sum over tokens; the seed is 1 over the number of valid tokens of the whole update, so gradients of
 * micro-batches and ranks simply add up and nothing is scaled anywhere else. Where gradients in fp16 would vanish the
 * seed is multiplied by the symbol loss_scale; finish takes it out again. */
#include "graph/internal.h"
#include "graph/op.h"
#include <stdlib.h>

struct contributions {
    struct tn_value **value;
    uint32_t n;
};

struct tape {
    struct tn_graph *g;
    struct contributions *of;                    /* by id of the value; values made before autodiff only */
    uint8_t *constant;                           /* made from parameters and constants alone */
    uint32_t n_value;
};

static void contribute(struct tape *t, struct tn_value *v, struct tn_value *d)
{
    struct contributions *c = &t->of[v->id];

    c->value = graph_grow(c->value, (c->n + 1) * sizeof *c->value);
    c->value[c->n++] = d;
}

static void mark_constants(struct tape *t)
{
    for (struct tn_value *v = t->g->params; v; v = v->next)
        t->constant[v->id] = 1;
    for (struct tn_value *v = t->g->positions; v; v = v->next)
        t->constant[v->id] = 1;
    for (struct tn_node *n = tn_graph_first(t->g); n; n = tn_node_next(n)) {
        uint8_t all = 1;

        for (uint32_t i = 0; i < n->n_in; i++)
            all &= t->constant[n->in[i]->id];
        for (uint32_t o = 0; o < n->n_out; o++)
            t->constant[n->out[o]->id] = all;
    }
}

static int keeps_partial(const struct tape *t, const struct tn_value *v, int axis)
{
    const struct tn_node *p = v->producer;

    return t->constant[v->id] || (p && !strcmp(p->op->name, "all_gather") && !strcmp(tn_node_text(p, "axis"), tn_axis_name[axis]));
}

/* Adds those of equal layout; returns how many are left. */
static uint32_t add_alike(struct tn_graph *g, struct tn_value **sum, uint32_t n)
{
    uint32_t left = 0;

    tn_graph_settle(g);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;

        while (k < left && memcmp(sum[k]->layout, sum[i]->layout, sizeof sum[k]->layout))
            k++;
        if (k == left)
            sum[left++] = sum[i];
        else
            sum[k] = tn_expr(g, "a + b", TN_IN(sum[k], sum[i]));
        if (!sum[k])
            return 0;
        tn_graph_settle(g);
    }
    return left;
}

/* Of the makers of some values, all in the backward, the last in program order; NULL if there is none. */
static struct tn_node *latest(struct tn_value *const *v, uint32_t n)
{
    struct tn_node *last = NULL;

    for (uint32_t i = 0; i < n; i++) {
        struct tn_node *p = v[i] ? v[i]->producer : NULL;

        if (p && p->phase == TN_BACKWARD && (!last || tn_node_before(last, p)))
            last = p;
    }
    return last;
}

/* New nodes of this unit and role go right after what made these values, if the unit did, else to the end. */
static void stand_after(struct tn_graph *g, struct tn_value *const *v, uint32_t n, const char *unit, const char *role)
{
    struct tn_node *last = latest(v, n);

    if (last && last->unit == unit)
        tn_after(g, last);
    else
        tn_at_end(g, TN_BACKWARD, unit);
    tn_set_role(g, role);
}

/* Will some of the contributions be summed over an axis? */
static int needs_closing(const struct tape *t, const struct tn_value *v, const struct contributions *c)
{
    tn_graph_settle(t->g);
    for (int a = 0; a < TN_AXES; a++)
        for (uint32_t i = 0; i < c->n && !keeps_partial(t, v, a); i++)
            if (c->value[i]->layout[a] == TN_P)
                return 1;
    return 0;
}

static void close_axis(struct tape *t, const struct tn_value *v, int axis, struct tn_value **sum, uint32_t n)
{
    int mixed = 0;

    for (uint32_t i = 1; i < n; i++)
        mixed |= sum[i]->layout[axis] != sum[0]->layout[axis];
    for (uint32_t i = 0; i < n; i++)
        if (sum[i]->layout[axis] == TN_P && (mixed || !keeps_partial(t, v, axis))) {
            sum[i] = graph_convert(sum[i], tn_axis_name[axis], TN_R);
            if (!sum[i])
                return;
        }
}

/* The gradient of v, all contributions in; NULL if it has none. */
static struct tn_value *resolve(struct tape *t, struct tn_value *v)
{
    struct contributions *c = &t->of[v->id];
    struct tn_graph *g = t->g;
    struct tn_value *sum;
    const char *unit;
    uint32_t n;

    if (!c->n || g->status)
        return NULL;
    unit = v->producer ? v->producer->unit : c->value[0]->producer ? c->value[0]->producer->unit : "";
    stand_after(g, c->value, needs_closing(t, v, c) ? c->n : 0, unit, "grad");
    n = add_alike(g, c->value, c->n);
    for (int a = 0; a < TN_AXES && !g->status; a++)
        if (g->mesh.size[a] > 1)
            close_axis(t, v, a, c->value, n);
    sum = g->status ? NULL : c->value[0];
    for (uint32_t i = 1; i < n && !g->status; i++)
        sum = tn_expr(g, "a + b", TN_IN(sum, c->value[i]));
    free(c->value);
    *c = (struct contributions){0};
    return sum;
}

static void backward(struct tape *t, struct tn_node *n)
{
    struct tn_value *dy[TN_MAX_OUT] = {0}, *dx[TN_MAX_IN] = {0};
    int any = 0;

    for (uint32_t o = 0; o < n->n_out; o++) {
        dy[o] = resolve(t, n->out[o]);
        any |= dy[o] != NULL;
    }
    if (!any || !n->op->grad || t->g->status)
        return;
    stand_after(t->g, dy, n->op->flags & TN_OP_COLLECTIVE ? n->n_out : 0, n->unit, n->role);
    n->op->grad(n, dy, dx);
    for (uint32_t i = 0; i < n->n_in && !t->g->status; i++)
        if (dx[i])
            contribute(t, n->in[i], dx[i]);
}

/* v summed over the micro-batches, right where it is made. */
static struct tn_value *accumulate(struct tn_graph *g, struct tn_value *v, const char *role)
{
    tn_after(g, v->producer);
    tn_set_role(g, role);
    return tn_add(g, "accum", TN_IN(v), TN_NONE);
}

/* Autodiff's seed: 1 / valid tokens of the whole update, on every rank. */
static struct tn_value *make_seed(struct tn_graph *g, struct tn_value *count)
{
    tn_after(g, count->producer);
    tn_set_role(g, "count");
    for (int a = 0; a < TN_AXES && !g->status; a++)
        if (graph_layout_on(count, tn_axis_name[a]) != TN_R && tn_layout_get(g, count->layout[a])->kind != TN_LAYOUT_STAGE)
            count = graph_convert(count, tn_axis_name[a], TN_R);
    tn_graph_output(g, "count", count);
    return tn_expr(g, "select(a, 1/a, 0)", TN_IN(count));
}

static void seed_loss(struct tape *t, struct tn_value *loss, struct tn_value *seed)
{
    struct tn_graph *g = t->g;
    struct tn_value *scaled;

    tn_at_end(g, TN_BACKWARD, loss->producer->unit);
    tn_set_role(g, "loss");
    scaled = tn_expr(g, "a*b", TN_IN(loss, seed));
    if (scaled)
        tn_graph_output(g, "loss", accumulate(g, scaled, "loss"));
    if (tn_graph_has_symbol(g, TN_LOSS_SCALE)) {
        tn_after(g, seed->producer);
        tn_set_role(g, "loss_scale");
        seed = tn_add(g, "expr", TN_IN(seed), TN_WITH(TN_TEXT("f", "a*loss_scale"), TN_NAMES("uniform", TN_LOSS_SCALE)));
    }
    if (seed)
        contribute(t, loss, seed);
}

static tn_status take_gradients(struct tape *t)
{
    struct tn_graph *g = t->g;

    for (struct tn_value *v = g->params; v && !g->status; v = v->next) {
        struct tn_value *d = resolve(t, v);

        if (d && d->producer)
            v->param->grad = accumulate(g, d, "grad_accum");
        else if (!g->status)
            tn_graph_fail(g, TN_ERR, "parameter %s has no gradient: the loss does not depend on it", v->name);
    }
    return g->status;
}

tn_status tn_graph_autodiff(struct tn_graph *g)
{
    struct tn_value *loss = tn_graph_find_output(g, "loss"), *count = tn_graph_find_output(g, "count"), *seed;
    struct tape t = {.g = g, .n_value = g->n_value};

    if (g->status)
        return tn_graph_status(g);
    if (!loss || !count || !loss->producer || !count->producer)
        return tn_error(TN_ERR, "the model gives no output named %s", loss ? "count" : "loss");
    t.of = graph_grow(NULL, t.n_value * sizeof *t.of);
    t.constant = graph_grow(NULL, t.n_value);
    memset(t.of, 0, t.n_value * sizeof *t.of);
    memset(t.constant, 0, t.n_value);
    mark_constants(&t);
    seed = make_seed(g, count);
    if (seed)
        seed_loss(&t, loss, seed);
    for (struct tn_node *n = g->last[TN_FORWARD]; n && !g->status; n = n->prev)
        backward(&t, n);
    for (struct tn_node *n = g->last[TN_PROLOGUE]; n && !g->status; n = n->prev)
        if (n->n_out && n->out[0]->id < t.n_value)           /* casts of weights; not the seed */
            backward(&t, n);
    take_gradients(&t);
    for (uint32_t i = 0; i < t.n_value; i++)
        free(t.of[i].value);
    free(t.of);
    free(t.constant);
    tn_graph_sweep(g);
    return tn_graph_status(g);
}

/* --- dead nodes and decompositions */

static int is_root(const struct tn_graph *g, const struct tn_value *v)
{
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->output[i].value == v)
            return 1;
    return 0;
}

void tn_graph_sweep(struct tn_graph *g)
{
    uint8_t *root = graph_grow(NULL, g->n_value + 1);

    memset(root, 0, g->n_value + 1);
    for (struct tn_value *v = g->params; v; v = v->next)
        if (v->param->grad)
            root[v->param->grad->id] = 1;
    for (uint32_t p = TN_PHASES; p-- > 1;)
        for (struct tn_node *n = g->last[p], *before; n && !g->status; n = before) {
            int live = (n->op->flags & (TN_OP_EFFECT | TN_OP_STORE)) != 0;

            before = n->prev;
            for (uint32_t o = 0; o < n->n_out; o++)
                live |= n->out[o]->n_user || root[n->out[o]->id] || is_root(g, n->out[o]);
            if (!live)
                graph_remove(n);
        }
    free(root);
}

void graph_decompose(struct tn_node *n, const char *axis)
{
    struct tn_graph *g = n->graph;
    struct tn_value *out[TN_MAX_OUT] = {0};

    if (g->status)
        return;
    if (!n->op->decompose || n->removed) {
        tn_graph_fail(g, TN_ERR, "node %u %s %s", n->id, n->op->name, n->removed ? "was removed" : "has no decomposition");
        return;
    }
    tn_before(g, n);
    g->close_axis = axis;
    n->op->decompose(n, out);
    g->close_axis = NULL;
    for (uint32_t o = 0; o < n->n_out && !g->status; o++)
        if (out[o])
            graph_replace(n->out[o], out[o]);
    graph_remove(n);
}

static int claimed(const struct tn_op *op, int (*claims)(void *ctx, const char *op), void *ctx)
{
    for (const char *const *b = op->back; b && *b; b++)
        if (!claims(ctx, *b))
            return 0;
    return claims(ctx, op->name);
}

/* The axis on which some output is a value per rank, NULL if there is none. */
static const char *per_rank(const struct tn_node *n)
{
    tn_graph_settle(n->graph);
    for (uint32_t o = 0; o < n->n_out; o++)
        for (int a = 0; a < TN_AXES; a++)
            if (n->out[o]->layout[a] == TN_V)
                return tn_axis_name[a];
    return NULL;
}

/* Conversions on axis whose input is already what they would make it. */
static void drop_idle(struct tn_graph *g, const char *axis)
{
    for (struct tn_node *n = tn_graph_first(g), *next; n && !g->status; n = next) {
        next = tn_node_next(n);
        if (n->op->flags & TN_OP_COLLECTIVE && n->n_in == 1 && !strcmp(tn_node_text(n, "axis"), axis)
            && tn_node_int(n, "to", 0) == (int64_t)graph_layout_on(n->in[0], axis)) {
            graph_replace(n->out[0], n->in[0]);
            graph_remove(n);
        }
    }
}

/* A value per rank (the log-sum-exp of a part of the vocabulary) has no base operations. Its sums are closed where they
 * arise instead, and what would have made it whole has nothing left to do. */
static void lower(struct tn_node *n)
{
    const char *axis = per_rank(n);

    graph_decompose(n, axis);
    if (axis)
        drop_idle(n->graph, axis);
}

tn_status tn_graph_lower(struct tn_graph *g, int (*claims)(void *ctx, const char *op), void *ctx)
{
    if (!graph_experts_dense(g, claims, ctx))
        return tn_graph_status(g);
    for (struct tn_node *n = tn_graph_first(g), *next; n && !g->status; n = next) {
        next = tn_node_next(n);
        if (n->op->decompose && !claimed(n->op, claims, ctx))
            lower(n);
    }
    return tn_graph_status(g);
}
