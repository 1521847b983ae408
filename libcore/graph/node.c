/* node.c - nodes: made at the cursor, kept in order, one list for each phase.
 *
 * Orders are numbers that are made anew when something was put between two nodes. Who makes a node queues it for
 * layout.c. */
#include "graph/internal.h"
#include "graph/op.h"

/* --- order */

static void renumber(struct tn_graph *g)
{
    uint32_t order = 0;

    for (struct tn_node *n = tn_graph_first(g); n; n = tn_node_next(n))
        n->order = order++;
    g->order_stale = 0;
}

int tn_node_before(const struct tn_node *a, const struct tn_node *b)
{
    if (a->phase != b->phase)
        return a->phase < b->phase;
    if (a->graph->order_stale)
        renumber(a->graph);
    return a->order < b->order;
}

struct tn_node *tn_graph_first(const struct tn_graph *g)
{
    for (uint32_t p = 1; p < TN_PHASES; p++)
        if (g->first[p])
            return g->first[p];
    return NULL;
}

struct tn_node *tn_node_next(const struct tn_node *n)
{
    struct tn_node *next = n->next;

    for (uint32_t p = n->phase + 1; !next && p < TN_PHASES; p++)
        next = n->graph->first[p];
    return next;
}

void graph_unlink(const struct tn_node *n)
{
    *(n->prev ? &n->prev->next : &n->graph->first[n->phase]) = n->next;
    *(n->next ? &n->next->prev : &n->graph->last[n->phase]) = n->prev;
}

void graph_link(struct tn_graph *g, struct tn_node *n)
{
    struct tn_node *before = NULL, *after = NULL;            /* neighbours */

    if (g->cursor) {
        before = g->cursor_after ? g->cursor : g->cursor->prev;
        after = g->cursor_after ? g->cursor->next : g->cursor;
    } else
        before = g->last[n->phase];
    n->prev = before;
    n->next = after;
    *(before ? &before->next : &g->first[n->phase]) = n;
    *(after ? &after->prev : &g->last[n->phase]) = n;
    if (g->cursor && g->cursor_after)
        g->cursor = n;
    if (after)
        g->order_stale = 1;
    else
        n->order = before ? before->order + 1 : 0;
    if (!after && n->phase + 1 < TN_PHASES)
        g->order_stale |= tn_node_next(n) != NULL;
}

/* --- nodes */

static struct tn_attr attr_copy(struct tn_graph *g, const struct tn_attr *a)
{
    struct tn_attr c = *a;

    c.key = tn_graph_name(g, a->key);
    if (a->type == TN_ATTR_TEXT)
        c.as.s = tn_graph_name(g, a->as.s);
    if (a->type == TN_ATTR_NAMES) {
        const char **names = tn_alloc(g->arena, (a->count + 1) * sizeof *names);

        for (uint32_t i = 0; i < a->count; i++)
            names[i] = tn_graph_name(g, a->as.names[i]);
        c.as.names = names;
    }
    return c;
}

static const char *arguments_problem(const struct tn_graph *g, const struct tn_op *op, struct tn_value *const *in, uint32_t n_in)
{
    if (n_in < op->n_in_min || n_in > op->n_in_max)
        return "wrong number of inputs";
    for (uint32_t i = 0; i < n_in; i++) {
        if (!in[i])
            return "an input is nothing (NULL)";
        if (in[i]->graph != g)
            return "an input is of another graph";
        if (i < sizeof op->least && in[i]->rank < op->least[i])
            return "an input has too few dims";
    }
    return NULL;
}

struct tn_node *graph_add_node(struct tn_graph *g, const char *name, struct tn_value *const *in, uint32_t n_in,
                               const struct tn_attr *attr, uint32_t n_attr)
{
    const struct tn_op *op = tn_op_find(name);
    const char *problem;
    struct tn_node *n;

    if (g->status)
        return NULL;
    problem = op ? arguments_problem(g, op, in, n_in) : "there is no such operation";
    if (problem) {
        tn_graph_fail(g, TN_ERR, "%s (role %s, unit %s): %s", name, g->role, g->unit, problem);
        return NULL;
    }
    n = tn_alloc(g->arena, sizeof *n);
    *n = (struct tn_node){.graph = g, .op = op, .id = ++g->n_node, .phase = g->phase, .role = g->role, .unit = g->unit,
                          .n_in = n_in, .n_attr = n_attr};
    n->in = tn_alloc(g->arena, (n_in + 1) * sizeof *n->in);
    n->out = tn_alloc(g->arena, TN_MAX_OUT * sizeof *n->out);
    n->attr = tn_alloc(g->arena, (n_attr + 2) * sizeof *n->attr);
    for (uint32_t i = 0; i < n_in; i++)
        n->in[i] = in[i];
    for (uint32_t i = 0; i < n_attr; i++)
        n->attr[i] = attr_copy(g, &attr[i]);
    if (g->when_last && !tn_node_attr(n, "when"))
        n->attr[n->n_attr++] = attr_copy(g, &(struct tn_attr)TN_TEXT("when", "last"));
    op->shape(n);
    if (g->status)
        return NULL;
    for (uint32_t i = 0; i < n_in; i++)
        graph_user_add(in[i], n);
    graph_link(g, n);
    g->newest = n;
    tn_graph_queue(n);
    return n;
}

struct tn_value *graph_add(struct tn_graph *g, const char *name, struct tn_value *const *in, uint32_t n_in,
                           const struct tn_attr *attr, uint32_t n_attr)
{
    struct tn_node *n = graph_add_node(g, name, in, n_in, attr, n_attr);
    const char *axis = g->close_axis;
    struct tn_value *v;

    if (!n || !n->n_out)
        return NULL;
    v = n->out[0];
    if (axis && graph_layout_on(v, axis) != TN_R && (graph_layout_on(v, axis) == TN_P || graph_layout_on(v, axis) == TN_PMAX))
        return graph_convert(v, axis, TN_R);
    return v;
}

struct tn_value *tn_node_output(struct tn_node *n, uint32_t rank, const char *const *dim, const int64_t *size, uint32_t dtype)
{
    struct tn_graph *g = n->graph;
    struct tn_value *v;

    if (g->status || !graph_sizes_fit(g, n->op->name, rank, dim, size))
        return NULL;
    if (n->n_out == TN_MAX_OUT) {
        tn_graph_fail(g, TN_ERR_SHAPE, "%s: more than %d outputs", n->op->name, TN_MAX_OUT);
        return NULL;
    }
    v = graph_value_new(g, n->op->name, TN_VALUE_TMP, dtype, rank, dim, size);
    v->producer = n;
    v->output = n->n_out;
    n->out[n->n_out++] = v;
    return v;
}

const struct tn_attr *tn_node_attr(const struct tn_node *n, const char *key)
{
    for (uint32_t i = 0; i < n->n_attr; i++)
        if (!strcmp(n->attr[i].key, key))
            return &n->attr[i];
    return NULL;
}

const char *tn_node_text(const struct tn_node *n, const char *key)
{
    const struct tn_attr *a = tn_node_attr(n, key);

    return a && a->type == TN_ATTR_TEXT ? a->as.s : "";
}

int tn_node_last(const struct tn_node *n)
{
    return !strcmp(tn_node_text(n, "when"), "last");
}

double tn_node_float(const struct tn_node *n, const char *key, double otherwise)
{
    const struct tn_attr *a = tn_node_attr(n, key);

    return !a ? otherwise : a->type == TN_ATTR_INT ? (double)a->as.i : a->type == TN_ATTR_FLOAT ? a->as.f : otherwise;
}

int64_t tn_node_int(const struct tn_node *n, const char *key, int64_t otherwise)
{
    const struct tn_attr *a = tn_node_attr(n, key);

    return a && a->type == TN_ATTR_INT ? a->as.i : otherwise;
}

double tn_node_flops(const struct tn_node *n, const struct tn_mesh *m)
{
    struct tn_arena *arena;
    struct tn_local l = {0};

    if (n->op->flops || !n->n_out)
        return n->op->flops ? n->op->flops(n, m) : 0;
    arena = tn_arena_new();
    tn_value_local(n->out[0], m, arena, &l);
    tn_arena_free(arena);
    return (double)l.count;
}
