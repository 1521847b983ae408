/* convert.c - the one place that turns a change of layout into a collective.
 *
 *   P -> R all_reduce      P -> S, F reduce_scatter      S, F -> R all_gather      R -> S, F slice
 *   S -> S all_to_all      R -> P once                   stage -> stage move       V -> Pmax as_max
 *   S -> S of a ring neighbour ring                      stage -> P once
 *   S -> S, packed rows of experts exchange
 *
 * What one stage holds is a partial sum over the pipeline to which the others add nothing: `once` says so, and gives
 * zeros where the stage is not. So a value of one stage becomes whole by once and all_reduce, and values of several
 * stages are added before they are reduced.
 *
 * An equal change of the same value in the same unit and phase is made once and used again, so that the q, k
 * and v projections share one gather, and a unit of a sharded model gathers each weight once. */
#include "graph/internal.h"
#include "graph/op.h"

static const char *collective(const struct tn_layout_info *from, const struct tn_layout_info *to)
{
    enum { WHOLE, SUM, CUT, MAXIMUM, STAGE, OTHER };
    static const uint8_t group[] = {[0] = OTHER, [TN_R] = WHOLE, [TN_P] = SUM, [TN_PMAX] = MAXIMUM, [TN_F] = CUT,
                                    [TN_V] = OTHER, [TN_LAYOUT_SHARD] = CUT, [TN_LAYOUT_STAGE] = STAGE};
    static const char *const op[6][6] = {
        [WHOLE] = {[CUT] = "slice", [SUM] = "once"},
        [SUM] = {[WHOLE] = "all_reduce", [CUT] = "reduce_scatter"},
        [CUT] = {[WHOLE] = "all_gather", [CUT] = "all_to_all"},
        [MAXIMUM] = {[WHOLE] = "all_reduce"},
        [STAGE] = {[STAGE] = "move", [SUM] = "once"},
    };
    int same_cut = from->kind == TN_LAYOUT_SHARD && to->kind == from->kind && from->dim == to->dim && from->pattern == to->pattern;

    if ((from->kind == TN_F && to->kind != TN_R) || (to->kind == TN_F && from->kind == TN_LAYOUT_SHARD))
        return NULL;
    return same_cut ? "ring" : op[group[from->kind]][group[to->kind]];
}

static int cursor_is_after(struct tn_graph *g, struct tn_node *n)
{
    if (n->phase != g->phase)
        return n->phase < g->phase;
    if (!g->cursor)
        return 1;
    return n == g->cursor ? g->cursor_after != 0 : tn_node_before(n, g->cursor);
}

static struct tn_value *made_before(struct tn_value *v, const char *op, const char *axis, tn_layout to)
{
    struct tn_graph *g = v->graph;

    for (uint32_t i = 0; i < v->n_user; i++) {
        struct tn_node *n = v->user[i];

        if (!strcmp(n->op->name, op) && n->unit == g->unit && n->phase == g->phase && n->n_in == 1
            && (g->when_last || !tn_node_last(n)) && tn_node_int(n, "to", 0) == (int64_t)to && !strcmp(tn_node_text(n, "axis"), axis) && cursor_is_after(g, n))
            return n->out[0];
    }
    return NULL;
}

/* Why the layout of v is not known: the first node that does not fit. */
static struct tn_value *unknown(struct tn_value *v, const char *axis)
{
    tn_graph_verify(v->graph);
    tn_graph_fail(v->graph, TN_ERR_LAYOUT, "%%%u %s: its layout on %s is not known", v->id, v->name, axis);
    return NULL;
}

struct tn_value *graph_convert(struct tn_value *v, const char *axis, tn_layout to)
{
    struct tn_graph *g = v->graph;
    tn_layout from = graph_layout_on(v, axis);
    const struct tn_layout_info *f, *t;
    struct tn_value *made;
    const char *op;

    if (g->status || from == to || g->mesh.size[tn_axis_find(axis)] == 1)
        return g->status ? NULL : v;
    if (!from)
        return unknown(v, axis);
    f = tn_layout_get(g, from), t = tn_layout_get(g, to);
    if (from == TN_R && t->kind == TN_LAYOUT_STAGE)
        return v;
    if (f->kind == TN_LAYOUT_STAGE && to == TN_R)
        return tn_convert(graph_convert(v, axis, TN_P), axis, TN_R);
    op = collective(f, t);
    if (!op || (t->kind == TN_LAYOUT_SHARD && tn_value_find_dim(v, t->dim) < 0)) {
        tn_graph_fail(g, TN_ERR_LAYOUT, "no collective takes %%%u %s from %s to %s on axis %s", v->id, v->name,
                      tn_layout_text(g, from), tn_layout_text(g, to), axis);
        return NULL;
    }
    if (!strcmp(op, "ring"))
        return graph_add(g, op, &v, 1, TN_WITH(TN_TEXT("axis", axis), TN_INT("shift", t->rot - f->rot)));
    made = made_before(v, op, axis, to);
    if (made)
        return made;
    return graph_add(g, op, &v, 1, TN_WITH(TN_TEXT("axis", axis), TN_INT("from", from), TN_INT("to", to)));
}

/* --- packed rows, from those of some tokens to those of some experts and back */

struct tn_value *graph_convert_rows(struct tn_value *v, struct tn_value *before, struct tn_value *after, const char *axis, tn_layout to)
{
    struct tn_graph *g = v->graph;
    tn_layout from = graph_layout_on(v, axis);
    const struct tn_layout_info *f, *t;

    if (g->status || from == to || g->mesh.size[tn_axis_find(axis)] == 1)
        return g->status ? NULL : v;
    if (!from)
        return unknown(v, axis);
    f = tn_layout_get(g, from), t = tn_layout_get(g, to);
    if (f->kind == TN_LAYOUT_SHARD && t->kind == f->kind && (f->dim == v->dim[0]) != (t->dim == v->dim[0])
        && (tn_value_find_dim(v, f->dim) < 0) != (tn_value_find_dim(v, t->dim) < 0))
        return graph_add(g, "exchange", TN_IN(v, before, after), TN_WITH(TN_TEXT("axis", axis), TN_INT("from", from), TN_INT("to", to)));
    tn_graph_fail(g, TN_ERR_LAYOUT, "rows of %%%u %s cannot go from %s to %s on axis %s: one is a cut along %s, the other one along the experts",
                  v->id, v->name, tn_layout_text(g, from), tn_layout_text(g, to), axis, v->rank ? v->dim[0] : "rows");
    return NULL;
}

/* --- several values at once */

/* The collective that takes v there, if it may take others along; NULL: it must go alone. */
static const char *shared_collective(struct tn_value *v, const char *axis, tn_layout to)
{
    struct tn_graph *g = v->graph;
    tn_layout from = graph_layout_on(v, axis);
    const struct tn_layout_info *f = tn_layout_get(g, from), *t = tn_layout_get(g, to);
    const char *op;

    if (g->status || !from || from == to || g->mesh.size[tn_axis_find(axis)] == 1 || f->kind == TN_LAYOUT_STAGE || t->kind == TN_LAYOUT_STAGE)
        return NULL;
    op = collective(f, t);
    return op && strcmp(op, "ring") && (t->kind != TN_LAYOUT_SHARD || tn_value_find_dim(v, t->dim) >= 0) ? op : NULL;
}

/* One node runs on one stage and goes from one layout. */
static int go_together(struct tn_value *a, struct tn_value *b, int axis)
{
    int alike = a->layout[axis] == b->layout[axis];

    for (int x = 0; x < TN_AXES; x++)
        if (a->layout[x] != b->layout[x])
            alike &= tn_layout_get(a->graph, a->layout[x])->kind != TN_LAYOUT_STAGE && tn_layout_get(b->graph, b->layout[x])->kind != TN_LAYOUT_STAGE;
    return alike;
}

/* v[first] and those after it that may go with it and are not done yet: their numbers. */
static uint32_t choose(struct tn_value *const *v, uint32_t n, uint32_t first, int axis, struct tn_value *const *out, uint32_t *chosen)
{
    uint32_t k = 0;

    for (uint32_t i = first; i < n && k < TN_MAX_OUT; i++)
        if (!out[i] && go_together(v[first], v[i], axis))
            chosen[k++] = i;
    return k;
}

static void convert_chosen(struct tn_value *const *v, const uint32_t *chosen, uint32_t n, const char *op, const char *axis, tn_layout to,
                           struct tn_value **out)
{
    struct tn_graph *g = v[chosen[0]]->graph;
    struct tn_value *in[TN_MAX_OUT], *made;

    for (uint32_t i = 0; i < n; i++)
        in[i] = v[chosen[i]];
    made = graph_add(g, op, in, n, TN_WITH(TN_TEXT("axis", axis), TN_INT("from", graph_layout_on(in[0], axis)), TN_INT("to", to)));
    for (uint32_t i = 0; i < n && made; i++)
        out[chosen[i]] = made->producer->out[i];
}

void graph_convert_all(struct tn_value *const *v, uint32_t n, const char *axis, tn_layout to, struct tn_value **out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = NULL;
    for (uint32_t i = 0; i < n && !v[0]->graph->status; i++) {
        const char *op = out[i] ? NULL : shared_collective(v[i], axis, to);
        uint32_t chosen[TN_MAX_OUT], k = op ? choose(v, n, i, tn_axis_find(axis), out, chosen) : 0;

        if (k > 1)
            convert_chosen(v, chosen, k, op, axis, to, out);
        else if (!out[i])
            out[i] = graph_convert(v[i], axis, to);
    }
}
