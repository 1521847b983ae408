/* rewrite.c - who uses what, and changing it.
 *
 * Whatever changes the inputs of a node queues it, and nobody sees a layout before the queue is empty (layout.c). */
#include "graph/internal.h"
#include "graph/op.h"

/* --- who uses what */

void graph_user_add(struct tn_value *v, struct tn_node *n)
{
    for (uint32_t i = 0; i < v->n_user; i++)
        if (v->user[i] == n)
            return;
    if (v->n_user == v->user_room) {
        v->user_room = v->user_room ? 2 * v->user_room : 4;
        v->user = graph_grow(v->user, v->user_room * sizeof *v->user);
    }
    v->user[v->n_user++] = n;
}

void graph_user_drop(struct tn_value *v, struct tn_node *n)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == v)
            return;
    for (uint32_t i = 0; i < v->n_user; i++)
        if (v->user[i] == n) {
            v->user[i] = v->user[--v->n_user];
            return;
        }
}

/* --- rewriting */

int graph_same_shape(const struct tn_value *a, const struct tn_value *b)
{
    if (a->rank != b->rank || a->dtype != b->dtype)
        return 0;
    for (uint32_t d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d] || a->size[d] != b->size[d])
            return 0;
    return 1;
}

/* Counts of the rows of experts: those who read them do not care in how many blocks the rows are. */
static int both_count(const struct tn_value *a, const struct tn_value *b)
{
    return a->dtype == TN_I32 && b->dtype == TN_I32 && a->rank == 2 && b->rank == 2 && !strcmp(a->dim[0], "block") && a->dim[0] == b->dim[0]
           && a->dim[1] == b->dim[1] && a->size[1] == b->size[1];
}

/* An expression reads whole numbers as floats, so floats may take their place: choices that were put together from base operations. */
static int read_alike(const struct tn_node *n, const struct tn_value *old, const struct tn_value *now)
{
    struct tn_value whole = *now;

    whole.dtype = TN_I32;
    return !strcmp(n->op->name, "expr") && old->dtype == TN_I32 && now->dtype == TN_F32 && graph_same_shape(old, &whole);
}

void graph_set_input(struct tn_node *n, struct tn_value *old, struct tn_value *now)
{
    uint32_t uses = 0;

    if (old == now || n->graph->status)
        return;
    for (uint32_t i = 0; i < n->n_in; i++)
        uses |= n->in[i] == old;
    if (!uses) {
        tn_graph_fail(n->graph, TN_ERR, "node %u %s (role %s, unit %s) does not use %%%u %s", n->id, n->op->name, n->role, n->unit,
                      old->id, old->name);
        return;
    }
    if (!graph_same_shape(old, now) && !both_count(old, now) && !read_alike(n, old, now)) {
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "node %u %s (role %s, unit %s): %%%u %s cannot take the place of %%%u %s, their shapes differ",
                      n->id, n->op->name, n->role, n->unit, now->id, now->name, old->id, old->name);
        return;
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == old)
            n->in[i] = now;
    graph_user_drop(old, n);
    graph_user_add(now, n);
    tn_graph_queue(n);
}

/* Is n among what v was made from? Nodes older than the user cannot be made from it. */
static int made_from(const struct tn_value *v, const struct tn_node *n)
{
    const struct tn_node *p = v->producer;

    if (!p || p == n)
        return p == n;
    if (p->phase < n->phase || (p->phase == n->phase && tn_node_before(p, n)))
        return 0;
    for (uint32_t i = 0; i < p->n_in; i++)
        if (made_from(p->in[i], n))
            return 1;
    return 0;
}

void graph_replace(struct tn_value *old, struct tn_value *now)
{
    struct tn_graph *g = old->graph;
    uint32_t n = old->n_user;
    struct tn_node **user;

    if (old == now || g->status)
        return;
    user = tn_alloc(g->arena, (n + 1) * sizeof *user);
    if (n)
        memcpy(user, old->user, n * sizeof *user);
    for (uint32_t i = 0; i < n; i++)
        if (!made_from(now, user[i]))
            graph_set_input(user[i], old, now);
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->output[i].value == old)
            g->output[i].value = now;
    for (struct tn_value *p = g->params; p; p = p->next)
        if (p->param->grad == old)
            p->param->grad = now;
}

void graph_move(struct tn_node *n)
{
    struct tn_graph *g = n->graph;

    if (g->status || g->cursor == n)
        return;
    if (n->removed || n->phase != g->phase) {
        tn_graph_fail(g, TN_ERR, "node %u %s (role %s, unit %s) cannot be moved: %s", n->id, n->op->name, n->role, n->unit,
                      n->removed ? "it was removed" : "the place is in another phase");
        return;
    }
    graph_unlink(n);
    graph_link(g, n);
    g->order_stale = 1;
}

/* "an output of the graph", "a gradient" or NULL. */
static const char *is_kept(const struct tn_graph *g, const struct tn_value *v)
{
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->output[i].value == v)
            return "an output of the graph";
    for (const struct tn_value *p = g->params; p; p = p->next)
        if (p->param->grad == v)
            return "a gradient";
    return NULL;
}

void graph_remove(struct tn_node *n)
{
    struct tn_graph *g = n->graph;

    if (g->status || n->removed)
        return;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const struct tn_value *v = n->out[i];

        if (v->n_user)
            tn_graph_fail(g, TN_ERR, "node %u %s (role %s, unit %s) cannot be removed: node %u %s uses its output", n->id, n->op->name,
                          n->role, n->unit, v->user[0]->id, v->user[0]->op->name);
        else if (is_kept(g, v))
            tn_graph_fail(g, TN_ERR, "node %u %s (role %s, unit %s) cannot be removed: %%%u is %s", n->id, n->op->name, n->role, n->unit,
                          v->id, is_kept(g, v));
    }
    if (g->status)
        return;
    n->removed = 1;
    graph_unlink(n);
    if (g->cursor == n) {
        g->cursor = n->prev ? n->prev : n->next;
        g->cursor_after = n->prev != NULL;
    }
    for (uint32_t i = 0; i < n->n_in; i++) {
        struct tn_value *v = n->in[i];

        n->in[i] = NULL;
        graph_user_drop(v, n);
    }
    n->n_in = 0;
}
