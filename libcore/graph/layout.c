/* layout.c - what a rank holds: interned layouts, inference along the graph, the verifier, local shapes.
 *
 * Sources carry layouts; every other value's follow from the rule of its operation, axis by axis. A change queues
 * the nodes it reaches, and the queue is emptied before anybody reads a layout, so rewriting stays linear.
 * An axis of size 1 has no layouts: everything is replicated there.
 *
 * The stage of a pipeline is a layout too: a node runs where its inputs are, whole values are everywhere. */
#include "graph/internal.h"
#include "graph/op.h"
#include <stdlib.h>

void graph_layouts_init(struct tn_graph *g)
{
    g->layout_room = 32;
    g->layout_info = graph_grow(NULL, g->layout_room * sizeof *g->layout_info);
    for (g->n_layout = 0; g->n_layout < TN_LAYOUT_FIRST; g->n_layout++)
        g->layout_info[g->n_layout] = (struct tn_layout_info){.kind = g->n_layout < TN_LAYOUT_SHARD ? g->n_layout : 0};
}

static tn_layout intern(struct tn_graph *g, struct tn_layout_info x)
{
    for (uint32_t i = TN_LAYOUT_FIRST; i < g->n_layout; i++) {
        const struct tn_layout_info *y = &g->layout_info[i];

        if (y->kind == x.kind && y->dim == x.dim && y->pattern == x.pattern && y->rot == x.rot)
            return i;
    }
    if (g->n_layout == g->layout_room) {
        g->layout_room *= 2;
        g->layout_info = graph_grow(g->layout_info, g->layout_room * sizeof *g->layout_info);
    }
    g->layout_info[g->n_layout] = x;
    return g->n_layout++;
}

tn_layout tn_layout_shard(struct tn_graph *g, const char *dim, const char *pattern, int32_t rot)
{
    return intern(g, (struct tn_layout_info){TN_LAYOUT_SHARD, tn_graph_name(g, dim), tn_graph_name(g, pattern), rot});
}

tn_layout tn_layout_stage(struct tn_graph *g, uint32_t stage)
{
    return intern(g, (struct tn_layout_info){.kind = TN_LAYOUT_STAGE, .rot = (int32_t)stage});
}

const struct tn_layout_info *tn_layout_get(const struct tn_graph *g, tn_layout l)
{
    return &g->layout_info[l < g->n_layout ? l : 0];
}

const char *tn_layout_text(struct tn_graph *g, tn_layout l)
{
    static const char *const plain[] = {"?", "R", "P", "Pmax", "F", "V"};
    const struct tn_layout_info *i = tn_layout_get(g, l);

    if (i->kind < TN_LAYOUT_SHARD)
        return plain[i->kind];
    if (i->kind == TN_LAYOUT_STAGE)
        return tn_text(g->arena, "@%d", i->rot);
    if (i->rot)
        return tn_text(g->arena, "S(%s%s%s rot=%d)", i->dim, *i->pattern ? " " : "", i->pattern, i->rot);
    return tn_text(g->arena, "S(%s%s%s)", i->dim, *i->pattern ? " " : "", i->pattern);
}

/* --- rules */

static int is_dim(const char *const *list, const char *dim)
{
    for (; list && *list; list++)
        if (!strcmp(*list, dim))
            return 1;
    return 0;
}

static const char *named_partial(const struct tn_node *n, int axis, int linear, tn_layout *out)
{
    uint32_t partial = 0, rest = 0;

    for (uint32_t i = 0; i < n->n_in; i++) {
        tn_layout l = n->in[i]->layout[axis];

        partial += l == TN_P;
        rest += l != TN_R && l != TN_P;
        if (l == TN_PMAX || l == TN_V)
            return l == TN_V ? "a value that differs by rank has no meaning here" : "a partial maximum must be closed first";
    }
    if (!(linear == TN_LINEAR_ALL && (partial == n->n_in)) && !(linear && n->n_in == 1) && !(linear == TN_LINEAR_ONE && partial == 1 && !rest))
        return "a partial sum enters an operation that is not linear in it";
    for (uint32_t o = 0; o < n->n_out; o++)
        out[o] = TN_P;
    return NULL;
}

static const char *named_flat(const struct tn_node *n, int axis, tn_layout reduced, tn_layout *out)
{
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->layout[axis] != TN_F && n->in[i]->rank)
            return "a flat chunk meets a whole tensor";
    for (uint32_t o = 0; o < n->n_out; o++)
        out[o] = n->out[o]->rank ? TN_F : reduced;
    return NULL;
}

const char *tn_layout_named(const struct tn_node *n, int axis, const char *const *forbid, int linear, tn_layout reduced, tn_layout *out)
{
    struct tn_graph *g = n->graph;
    tn_layout cut = 0;
    const char *dim;
    int has = 0;                                 /* else the cut is one of packed rows by expert, which stays */

    for (uint32_t i = 0; i < n->n_in; i++) {
        tn_layout l = n->in[i]->layout[axis];

        if (l == TN_P || l == TN_PMAX || l == TN_V)
            return named_partial(n, axis, linear, out);
        if (l >= TN_LAYOUT_FIRST) {
            if (cut && cut != l)
                return "two inputs are cut differently";
            cut = l;
        }
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->layout[axis] == TN_F)
            return cut ? "a flat chunk meets a cut tensor" : named_flat(n, axis, reduced, out);
    for (uint32_t o = 0; o < n->n_out; o++)
        out[o] = TN_R;
    if (!cut)
        return NULL;
    dim = tn_layout_get(g, cut)->dim;
    if (is_dim(forbid, dim))
        return tn_text(g->arena, "it needs dim %s whole", dim);
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i]->layout[axis] == TN_R && tn_value_find_dim(n->in[i], dim) >= 0)
            return tn_text(g->arena, "%%%u has dim %s whole, another input has it cut", n->in[i]->id, dim);
    for (uint32_t i = 0; i < n->n_in; i++)
        has |= tn_value_find_dim(n->in[i], dim) >= 0;
    for (uint32_t o = 0; o < n->n_out; o++) {
        out[o] = !has || tn_value_find_dim(n->out[o], dim) >= 0 ? cut : reduced;
        if (!has && n->out[o]->rank < n->in[0]->rank)
            return tn_text(g->arena, "rows of some %ss cannot be summed up", dim);
    }
    return NULL;
}

/* Everything follows an input that lives on one stage. 1: decided. */
static int stage_rule(const struct tn_node *n, int axis, tn_layout *out, const char **why)
{
    tn_layout stage = 0;

    if (n->op->flags & TN_OP_COLLECTIVE && !strcmp(tn_node_text(n, "axis"), tn_axis_name[axis]))
        return 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        tn_layout l = n->in[i]->layout[axis];

        if (tn_layout_get(n->graph, l)->kind != TN_LAYOUT_STAGE)
            continue;
        if (stage && stage != l)
            *why = "its inputs are on different stages";
        stage = l;
    }
    for (uint32_t o = 0; stage && o < n->n_out; o++)
        out[o] = stage;
    return stage != 0;
}

static const char *infer_axis(const struct tn_node *n, int axis, tn_layout *out)
{
    const char *why = NULL;

    for (uint32_t i = 0; i < n->n_in; i++)
        if (!n->in[i]->layout[axis])
            return "an input's layout is not known, an earlier node does not fit";
    if (stage_rule(n, axis, out, &why))
        return why;
    return n->op->layout(n, axis, out);
}

/* Returns the axis that does not fit, -1 if all do; *changed: some output has another layout now. */
static int infer_node(struct tn_node *n, const char **why, int *changed)
{
    int bad = -1;

    *changed = 0;
    for (int a = 0; a < TN_AXES; a++) {
        tn_layout out[TN_MAX_OUT] = {0};
        const char *problem;

        if (n->graph->mesh.size[a] == 1)
            continue;
        problem = infer_axis(n, a, out);
        if (problem && bad < 0)
            bad = a, *why = problem;
        for (uint32_t o = 0; o < n->n_out; o++) {
            tn_layout l = problem ? 0 : out[o];

            *changed |= n->out[o]->layout[a] != l;
            n->out[o]->layout[a] = l;
        }
    }
    return bad;
}

void tn_graph_queue(struct tn_node *n)
{
    struct tn_graph *g = n->graph;

    if (n->queued || n->removed)
        return;
    if (g->n_queue == g->queue_room) {
        g->queue_room = g->queue_room ? 2 * g->queue_room : 64;
        g->queue = graph_grow(g->queue, g->queue_room * sizeof *g->queue);
    }
    n->queued = 1;
    g->queue[g->n_queue++] = n;
}

void tn_graph_settle(struct tn_graph *g)
{
    while (g->n_queue) {
        struct tn_node *n = g->queue[--g->n_queue];
        const char *why;
        int changed;

        n->queued = 0;
        if (n->removed)
            continue;
        infer_node(n, &why, &changed);
        for (uint32_t o = 0; changed && o < n->n_out; o++)
            for (uint32_t u = 0; u < n->out[o]->n_user; u++)
                tn_graph_queue(n->out[o]->user[u]);
    }
}

tn_layout graph_layout_on(struct tn_value *v, const char *axis)
{
    int a = tn_axis_find(axis);

    if (a < 0) {
        tn_graph_fail(v->graph, TN_ERR, "there is no axis %s", axis);
        return 0;
    }
    if (v->graph->mesh.size[a] == 1)
        return TN_R;
    tn_graph_settle(v->graph);
    return v->layout[a];
}

/* --- the verifier */

static void report(struct tn_node *n, int axis, const char *why)
{
    struct tn_graph *g = n->graph;
    const char *inputs = "";

    for (uint32_t i = 0; i < n->n_in; i++)
        inputs = tn_text(g->arena, "%s %%%u:%s=%s", inputs, n->in[i]->id, n->in[i]->name,
                         tn_layout_text(g, n->in[i]->layout[axis]));
    tn_graph_fail(g, TN_ERR_LAYOUT, "node %u %s (role %s, unit %s) does not fit on axis %s: %s; inputs%s", n->id,
                  n->op->name, n->role, n->unit, tn_axis_name[axis], why, inputs);
}

static int order_fits(struct tn_node *n)
{
    for (uint32_t i = 0; i < n->n_in; i++) {
        struct tn_node *p = n->in[i]->producer;

        if (p && (p->removed || !tn_node_before(p, n))) {
            tn_graph_fail(n->graph, TN_ERR, "node %u %s (role %s, unit %s) uses %%%u before node %u %s makes it", n->id,
                          n->op->name, n->role, n->unit, n->in[i]->id, p->id, p->op->name);
            return 0;
        }
    }
    return 1;
}

/* What runs in the last micro-batch alone is read by others of that kind, and after the loop. */
static int time_fits(struct tn_node *n)
{
    const char *when = tn_node_text(n, "when");

    if (tn_node_attr(n, "when") && (strcmp(when, "last") || n->phase != TN_BACKWARD)) {
        tn_graph_fail(n->graph, TN_ERR, "node %u %s (role %s, unit %s): when = %s stands for nothing here; last is possible, in the backward", n->id,
                      n->op->name, n->role, n->unit, when);
        return 0;
    }
    for (uint32_t i = 0; i < n->n_in && n->phase == TN_BACKWARD && !*when; i++)
        if (n->in[i]->producer && tn_node_last(n->in[i]->producer)) {
            tn_graph_fail(n->graph, TN_ERR, "node %u %s (role %s, unit %s) runs in every micro-batch and reads %%%u, which node %u %s makes in the last one alone",
                          n->id, n->op->name, n->role, n->unit, n->in[i]->id, n->in[i]->producer->id, n->in[i]->producer->op->name);
            return 0;
        }
    return 1;
}

int graph_verify_node(struct tn_node *n)
{
    const char *why = NULL;
    int changed, axis;

    if (!order_fits(n) || !time_fits(n))
        return 0;
    axis = infer_node(n, &why, &changed);
    if (axis >= 0)
        report(n, axis, why);
    return axis < 0;
}

/* Nothing in the graph takes an output, so what it must be is said apart. */
static void verify_output(struct tn_graph *g, const struct tn_output_entry *o)
{
    for (int a = 0; a < TN_AXES && o->whole; a++)
        if (o->value->layout[a] != TN_R)
            tn_graph_fail(g, TN_ERR_LAYOUT, "output %s, %%%u %s, must be whole, on axis %s it is %s", o->name, o->value->id,
                          o->value->name, tn_axis_name[a], tn_layout_text(g, o->value->layout[a]));
}

tn_status tn_graph_verify(struct tn_graph *g)
{
    for (struct tn_node *n = tn_graph_first(g); n && !g->status; n = tn_node_next(n))
        graph_verify_node(n);
    for (uint32_t i = 0; i < g->n_output; i++)
        verify_output(g, &g->output[i]);
    return tn_graph_status(g);
}

/* --- local shapes */

struct part {
    int64_t origin, count, *index;
};

static void cut_zigzag(struct part *p, int64_t n, int64_t c, struct tn_arena *arena)
{
    struct tn_range r[2] = {tn_part(p->count, 2 * n, c), tn_part(p->count, 2 * n, 2 * n - 1 - c)};
    int64_t *index = tn_alloc(arena, (size_t)(r[0].count + r[1].count + 1) * sizeof *index), k = 0;

    for (int h = 0; h < 2; h++)
        for (int64_t i = r[h].start; i < r[h].start + r[h].count; i++)
            index[k++] = p->index ? p->index[i] : p->origin + i;
    p->index = index;
    p->count = k;
}

static void cut_dim(struct part *p, const struct tn_layout_info *l, int64_t n, int64_t coord, struct tn_arena *arena)
{
    int64_t c = ((coord - l->rot) % n + n) % n;
    struct tn_range r = tn_part(p->count, n, c);

    if (*l->pattern) {
        cut_zigzag(p, n, c, arena);
        return;
    }
    if (p->index)
        p->index += r.start;
    else
        p->origin += r.start;
    p->count = r.count;
}

static void cut_flat(const struct tn_value *v, const struct tn_mesh *m, struct tn_local *out)
{
    int64_t start = 0, count = out->count;

    for (int a = 0; a < TN_AXES; a++)
        if (v->layout[a] == TN_F && m->size[a] > 1) {
            struct tn_range r = tn_part(count, m->size[a], m->coord[a]);

            start += r.start;
            count = r.count;
            out->flat = 1;
        }
    out->flat_start = start;
    out->count = count;
}

int tn_value_here(const struct tn_value *v, const struct tn_mesh *m)
{
    for (int a = 0; a < TN_AXES; a++) {
        const struct tn_layout_info *l = tn_layout_get(v->graph, v->layout[a]);

        if (m->size[a] > 1 && l->kind == TN_LAYOUT_STAGE && l->rot % m->size[a] != m->coord[a])
            return 0;
    }
    return 1;
}

void tn_value_local(const struct tn_value *v, const struct tn_mesh *m, struct tn_arena *arena, struct tn_local *out)
{
    if (v->slice_of) {
        graph_slice_local(v, m, arena, out);
        return;
    }
    *out = (struct tn_local){.count = 1};
    for (uint32_t d = 0; d < v->rank; d++) {
        struct part p = {.count = v->size[d]};

        for (int a = 0; a < TN_AXES; a++) {
            const struct tn_layout_info *l = tn_layout_get(v->graph, v->layout[a]);

            if (m->size[a] > 1 && l->kind == TN_LAYOUT_SHARD && l->dim == v->dim[d])
                cut_dim(&p, l, m->size[a], m->coord[a], arena);
        }
        out->size[d] = p.count;
        out->origin[d] = p.index ? 0 : p.origin;
        out->index[d] = p.index;
        out->count *= p.count;
    }
    if (!tn_value_here(v, m))
        out->count = 0;
    cut_flat(v, m, out);
}

/* n parts of it, the largest. */
static int64_t largest(int64_t size, int64_t n)
{
    return (size + n - 1) / n;
}

int64_t tn_value_bytes(const struct tn_value *v)
{
    int64_t count = 1;

    for (uint32_t d = 0; d < v->rank; d++) {
        int64_t size = v->size[d];

        for (int a = 0; a < TN_AXES; a++) {
            const struct tn_layout_info *l = tn_layout_get(v->graph, v->layout[a]);

            if (l->kind == TN_LAYOUT_SHARD && l->dim == v->dim[d])
                size = largest(size, v->graph->mesh.size[a]);
        }
        count *= size;
    }
    for (int a = 0; a < TN_AXES; a++)
        if (v->layout[a] == TN_F)
            count = largest(count, v->graph->mesh.size[a]);
    return count * (int64_t)tn_dtype_bytes(v->dtype);
}
