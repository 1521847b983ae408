/* api.c - the host's table of tenon/pass.h.
 *
 * A pass has no error paths: NULL goes in and out of every call, the first error sticks to the graph. A call that gets
 * NULL although the graph is well is itself an error, found here; so every function begins with a guard. */
#include "graph/internal.h"
#include "graph/op.h"
#include <stdlib.h>

_Thread_local struct tn_graph *graph_current;

static void nothing(const char *what)
{
    if (graph_current)
        tn_graph_fail(graph_current, TN_ERR, "%s: given nothing (NULL)", what);
}
#define GUARD_VALUE(v, otherwise) if (!(v)) return nothing(__func__ + 4), otherwise
#define GUARD_VOID(v) if (!(v)) { nothing(__func__ + 4); return; }

static void api_fail(struct tn_graph *g, tn_status code, const char *text)
{
    GUARD_VOID(g && text);
    tn_graph_fail(g, code, "%s", text);
}

static double api_option(struct tn_graph *g, const char *key)
{
    GUARD_VALUE(g && key, 0);
    graph_current = g;
    if (g->option)
        return g->option(g->option_ctx, key);
    tn_graph_fail(g, TN_ERR, "option %s asked for outside of a pass", key);
    return 0;
}

static int64_t api_axis_size(struct tn_graph *g, const char *axis)
{
    int a;

    GUARD_VALUE(g && axis, 1);
    graph_current = g;
    a = tn_axis_find(axis);
    if (a >= 0)
        return g->mesh.size[a];
    tn_graph_fail(g, TN_ERR, "there is no axis %s", axis);
    return 1;
}

/* --- walking: what the body adds is not visited, what it removes is passed over */

static struct tn_node *skip(struct tn_node *n, const struct tn_node *newest)
{
    while (n && (n->removed || n->id > newest->id))
        n = tn_node_next(n);
    return n;
}

static struct tn_node *api_next_node(struct tn_graph *g, struct tn_node *n, struct tn_node *newest)
{
    GUARD_VALUE(g, NULL);
    graph_current = g;
    if (g->status || !newest)
        return NULL;
    return skip(n ? tn_node_next(n) : tn_graph_first(g), newest);
}

static struct tn_value *api_next_param(struct tn_graph *g, struct tn_value *v)
{
    GUARD_VALUE(g, NULL);
    graph_current = g;
    return g->status ? NULL : v ? v->next : g->params;
}

static struct tn_value *api_next_input(struct tn_graph *g, struct tn_value *v)
{
    GUARD_VALUE(g, NULL);
    graph_current = g;
    if (v && !v->next && v->kind == TN_VALUE_INPUT)
        v = g->positions;
    else
        v = v ? v->next : g->inputs ? g->inputs : g->positions;
    return g->status ? NULL : v;
}

/* In program order, found anew each time: the body may change who uses v. */
static struct tn_node *api_next_user(struct tn_value *v, struct tn_node *n)
{
    struct tn_node *best = NULL;

    GUARD_VALUE(v, NULL);
    for (uint32_t i = 0; i < v->n_user && !v->graph->status; i++)
        if ((!n || tn_node_before(n, v->user[i])) && (!best || tn_node_before(v->user[i], best)))
            best = v->user[i];
    return best;
}

static struct tn_node *api_newest(struct tn_graph *g)
{
    GUARD_VALUE(g, NULL);
    graph_current = g;
    return g->newest;
}

/* --- reading */

static const char *api_op(const struct tn_node *n)
{
    GUARD_VALUE(n, "");
    return n->op->name;
}

static const char *api_role(const struct tn_node *n)
{
    GUARD_VALUE(n, "");
    return n->role;
}

static const char *api_unit(const struct tn_node *n)
{
    GUARD_VALUE(n, "");
    return n->unit;
}

static uint32_t api_phase(const struct tn_node *n)
{
    GUARD_VALUE(n, 0);
    return n->phase;
}

static const struct tn_attr *api_attr(const struct tn_node *n, const char *key)
{
    GUARD_VALUE(n && key, NULL);
    return tn_node_attr(n, key);
}

static struct tn_value *operand(struct tn_value *const *list, uint32_t n, uint32_t i, const struct tn_node *node, const char *what)
{
    if (i < n)
        return list[i];
    tn_graph_fail(node->graph, TN_ERR, "node %u %s has %u %ss, number %u was asked for", node->id, node->op->name, n, what, i);
    return NULL;
}

static struct tn_value *api_input(const struct tn_node *n, uint32_t i)
{
    GUARD_VALUE(n, NULL);
    return operand(n->in, n->n_in, i, n, "input");
}

static struct tn_value *api_output(const struct tn_node *n, uint32_t i)
{
    GUARD_VALUE(n, NULL);
    return operand(n->out, n->n_out, i, n, "output");
}

static struct tn_value *const *api_operands(const struct tn_node *n)
{
    static struct tn_value *const none[1];

    GUARD_VALUE(n, none);
    return n->graph->status ? none : n->in;
}

static struct tn_node *api_producer(const struct tn_value *v)
{
    GUARD_VALUE(v, NULL);
    return v->producer;
}

static uint32_t api_is_param(const struct tn_value *v)
{
    GUARD_VALUE(v, 0);
    return v->kind == TN_VALUE_PARAM;
}

static int64_t api_dim(const struct tn_value *v, const char *dim)
{
    GUARD_VALUE(v && dim, 0);
    return tn_value_dim(v, dim);
}

static tn_layout api_layout(const struct tn_value *v, const char *axis)
{
    GUARD_VALUE(v && axis, 0);
    return graph_layout_on((struct tn_value *)v, axis);
}

static struct tn_value *api_grad(const struct tn_value *v)
{
    GUARD_VALUE(v, NULL);
    if (v->param && v->kind == TN_VALUE_PARAM)
        return v->param->grad;
    tn_graph_fail(v->graph, TN_ERR, "%%%u %s is no parameter, it has no gradient of its own", v->id, v->name);
    return NULL;
}

/* --- layouts and places */

static tn_layout api_shard(struct tn_graph *g, const char *dim, const char *pattern, int32_t rot)
{
    GUARD_VALUE(g && dim && pattern, 0);
    graph_current = g;
    return tn_layout_shard(g, dim, pattern, rot);
}

static void api_set_layout(struct tn_value *v, const char *axis, tn_layout l)
{
    const struct tn_layout_info *info;
    int a;

    GUARD_VOID(v && axis);
    if (v->graph->status)
        return;
    a = tn_axis_find(axis);
    info = tn_layout_get(v->graph, l);
    if (info->kind == TN_LAYOUT_SHARD && tn_value_find_dim(v, info->dim) < 0) {
        tn_graph_fail(v->graph, TN_ERR, "layout of %%%u %s on axis %s: it has no dim %s that could be cut", v->id, v->name, axis, info->dim);
        return;
    }
    if (v->producer || a < 0 || !info->kind) {
        tn_graph_fail(v->graph, TN_ERR, "layout of %%%u %s on axis %s: only sources can be given one, and it must exist", v->id, v->name, axis);
        return;
    }
    if (v->graph->mesh.size[a] == 1)
        return;
    v->layout[a] = l;
    for (uint32_t i = 0; i < v->n_user; i++)
        tn_graph_queue(v->user[i]);
}

static void api_at(struct tn_graph *g, struct tn_node *n, uint32_t after)
{
    GUARD_VOID(g && n);
    if (n->removed) {
        tn_graph_fail(g, TN_ERR, "node %u %s was removed: nothing can be put beside it", n->id, n->op->name);
        return;
    }
    graph_current = g;
    g->cursor = n;
    g->cursor_after = after;
    g->phase = n->phase;
    g->unit = n->unit;
    g->role = n->role;
    g->when_last = (uint32_t)tn_node_last(n);
}

static void api_at_end(struct tn_graph *g, uint32_t phase, const char *unit)
{
    GUARD_VOID(g && unit);
    if (phase < 1 || phase >= TN_PHASES) {
        tn_graph_fail(g, TN_ERR, "there is no phase %u", phase);
        return;
    }
    graph_current = g;
    g->cursor = NULL;
    g->phase = phase;
    g->unit = tn_graph_name(g, unit);
    g->when_last = 0;
}

static void api_set_role(struct tn_graph *g, const char *role)
{
    GUARD_VOID(g && role);
    graph_current = g;
    g->role = tn_graph_name(g, role);
}

static int attributes_whole(const struct tn_attr *attr, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!attr || !attr[i].key || (attr[i].type == TN_ATTR_TEXT && !attr[i].as.s))
            return 0;
        for (uint32_t k = 0; attr[i].type == TN_ATTR_NAMES && k < attr[i].count; k++)
            if (!attr[i].as.names || !attr[i].as.names[k])
                return 0;
    }
    return 1;
}

static struct tn_value *api_add(struct tn_graph *g, const char *op, struct tn_value *const *in, uint32_t n_in, const struct tn_attr *attr,
                                uint32_t n_attr)
{
    GUARD_VALUE(g && op && (in || !n_in) && attributes_whole(attr, n_attr), NULL);
    graph_current = g;
    return graph_add(g, op, in, n_in, attr, n_attr);
}

static struct tn_value *api_convert(struct tn_value *v, const char *axis, tn_layout to)
{
    GUARD_VALUE(v && axis, NULL);
    return graph_convert(v, axis, to);
}

static struct tn_value *api_clone(struct tn_node *n)
{
    GUARD_VALUE(n, NULL);
    return graph_add(n->graph, n->op->name, n->in, n->n_in, n->attr, n->n_attr);
}

static void api_set_input(struct tn_node *n, struct tn_value *old, struct tn_value *now)
{
    GUARD_VOID(n && old && now);
    graph_set_input(n, old, now);
}

static void api_replace(struct tn_value *old, struct tn_value *now)
{
    GUARD_VOID(old && now);
    graph_replace(old, now);
}

static void api_remove(struct tn_node *n)
{
    GUARD_VOID(n);
    graph_remove(n);
}

static void api_decompose(struct tn_node *n, const char *axis)
{
    GUARD_VOID(n);
    graph_decompose(n, axis);
}

static void api_set_grad(struct tn_value *param, struct tn_value *grad)
{
    GUARD_VOID(param && grad);
    if (param->graph->status)
        return;
    if (param->kind == TN_VALUE_PARAM && graph_same_shape(param, grad))
        param->param->grad = grad;
    else
        tn_graph_fail(param->graph, TN_ERR, "%%%u %s cannot be the gradient of %%%u %s: %s", grad->id, grad->name, param->id, param->name,
                      param->kind == TN_VALUE_PARAM ? "their shapes differ" : "that is no parameter");
}

/* --- stages */

/* "block7" of "block0" .. "block11": 7 of 12. */
static uint32_t api_unit_index(const struct tn_node *n, uint32_t *count)
{
    uint32_t most = 0;
    size_t stem;

    if (count)
        *count = 1;
    GUARD_VALUE(n && count, 0);
    stem = strcspn(n->unit, "0123456789");
    if (!n->unit[stem])
        return 0;
    for (struct tn_node *m = tn_graph_first(n->graph); m; m = tn_node_next(m))
        if (!strncmp(m->unit, n->unit, stem) && strspn(m->unit + stem, "0123456789") && (uint32_t)atoi(m->unit + stem) + 1 > most)
            most = (uint32_t)atoi(m->unit + stem) + 1;
    *count = most;
    return (uint32_t)atoi(n->unit + stem);
}

static struct tn_value *api_primary(const struct tn_value *v)
{
    GUARD_VALUE(v, NULL);
    return v->param && v->param->twin ? v->param->twin->value : (struct tn_value *)v;
}

/* The copies of a source are those with the same primary, or the same positions. */
static struct tn_value *copy_at(struct tn_value *v, int a, tn_layout at)
{
    struct tn_value *c = v->kind == TN_VALUE_PARAM ? v->graph->params : v->graph->positions;

    for (; c; c = c->next)
        if (c->layout[a] == at && (v->kind == TN_VALUE_PARAM ? c->param->twin == v->param : tn_graph_same_positions(c, v)))
            return c;
    return NULL;
}

static struct tn_value *new_copy(struct tn_value *v)
{
    struct tn_value *copy;

    if (v->kind == TN_VALUE_POSITIONS)
        return tn_graph_copy_positions(v);
    copy = tn_graph_param(v->graph, v->name, &v->param->spec);
    if (copy) {
        copy->param->twin = v->param;
        copy->param->number = v->param->number;
        copy->param->decay = v->param->decay;
        copy->param->lr_scale = v->param->lr_scale;
    }
    return copy;
}

static struct tn_value *api_copy_param(struct tn_value *v, const char *axis, tn_layout at)
{
    struct tn_value *copy;
    int a;

    GUARD_VALUE(v && axis, NULL);
    a = tn_axis_find(axis);
    if ((v->kind != TN_VALUE_PARAM && v->kind != TN_VALUE_POSITIONS) || a < 0) {
        tn_graph_fail(v->graph, TN_ERR, "copy of %%%u %s on axis %s: only parameters and positions have copies", v->id, v->name, axis);
        return NULL;
    }
    if (v->layout[a] == at)
        return v;
    if (v->layout[a] == TN_R) {
        api_set_layout(v, axis, at);
        return v;
    }
    copy = copy_at(v, a, at);
    if (copy || !(copy = new_copy(v)))
        return copy;
    memcpy(copy->layout, v->layout, sizeof copy->layout);
    copy->layout[a] = at;
    return copy;
}

static tn_layout api_on(struct tn_graph *g, uint32_t stage)
{
    GUARD_VALUE(g, 0);
    graph_current = g;
    return tn_layout_stage(g, stage);
}

static void api_task(struct tn_graph *g, uint32_t rank, uint32_t phase, uint32_t micro, uint32_t stage)
{
    GUARD_VOID(g);
    if (phase != TN_FORWARD && phase != TN_BACKWARD) {
        tn_graph_fail(g, TN_ERR, "a task is TN_FORWARD or TN_BACKWARD of a micro-batch, not phase %u", phase);
        return;
    }
    if (g->n_task == g->task_room) {
        g->task_room = g->task_room ? 2 * g->task_room : 64;
        g->task = graph_grow(g->task, g->task_room * sizeof *g->task);
    }
    g->task[g->n_task++] = (struct tn_task_entry){rank, phase, micro, stage};
}

/* --- order, and what lies together */

static void api_when_last(struct tn_graph *g, uint32_t on)
{
    GUARD_VOID(g);
    graph_current = g;
    g->when_last = on;
}

static void api_move(struct tn_node *n)
{
    GUARD_VOID(n);
    graph_move(n);
}

static void api_convert_all(struct tn_value *const *v, uint32_t n, const char *axis, tn_layout to, struct tn_value **out)
{
    int whole = axis && (!n || (v && out));

    for (uint32_t i = 0; i < n && out; i++)
        out[i] = NULL;
    for (uint32_t i = 0; i < n && whole; i++)
        whole = v[i] && v[i]->graph == v[0]->graph;
    GUARD_VOID(whole);
    graph_convert_all(v, n, axis, to, out);
}

static struct tn_value *api_convert_rows(struct tn_value *v, struct tn_value *before, struct tn_value *after, const char *axis, tn_layout to)
{
    GUARD_VALUE(v && before && after && axis, NULL);
    return graph_convert_rows(v, before, after, axis, to);
}

static int64_t api_bytes(const struct tn_value *v)
{
    GUARD_VALUE(v, 0);
    tn_graph_settle(v->graph);
    return tn_value_bytes(v);
}

static uint32_t api_reads(const struct tn_node *n, const struct tn_value *v)
{
    GUARD_VALUE(n && v, 0);
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == v && (i >= 32 || !(n->op->unread & 1u << i)))
            return 1;
    return 0;
}

/* Is a's gradient complete before b's? */
static int completes_before(const struct tn_value *a, const struct tn_value *b)
{
    const struct tn_value *x = a->param->grad, *y = b->param->grad;

    return x->producer == y->producer ? x->output < y->output : !x->producer || (y->producer && tn_node_before(x->producer, y->producer));
}

static struct tn_value *const *api_gradients(struct tn_graph *g)
{
    static struct tn_value *const none[1];
    struct tn_value **list;
    uint32_t n = 0;

    GUARD_VALUE(g, none);
    graph_current = g;
    if (g->status)
        return none;
    list = tn_alloc(g->arena, (g->n_param + 1) * sizeof *list);
    for (struct tn_value *p = g->params; p; p = p->next) {
        uint32_t at = n;

        if (!p->param->grad)
            continue;
        for (n++; at && completes_before(p, list[at - 1]); at--)
            list[at] = list[at - 1];
        list[at] = p;
    }
    return list;
}

/* --- more about the graph */

static const char *api_option_text(struct tn_graph *g, const char *key)
{
    const char *text = NULL;

    GUARD_VALUE(g && key, "");
    graph_current = g;
    if (g->option_text)
        text = g->option_text(g->option_ctx, key);
    else
        tn_graph_fail(g, TN_ERR, "option %s asked for outside of a pass", key);
    return text ? tn_graph_name(g, text) : "";
}

static uint32_t api_micro_batches(const struct tn_graph *g)
{
    GUARD_VALUE(g, 1);
    return g->n_micro;
}

static double api_flops(const struct tn_node *n)
{
    const struct tn_mesh alone = tn_mesh_single();

    GUARD_VALUE(n, 0);
    return tn_node_flops(n, &alone);
}

const struct tn_graph_api tn_graph_api_table = {
    .struct_size = sizeof tn_graph_api_table,
    .fail = api_fail,
    .option = api_option,
    .axis_size = api_axis_size,
    .next_node = api_next_node,
    .next_param = api_next_param,
    .next_input = api_next_input,
    .next_user = api_next_user,
    .newest = api_newest,
    .op = api_op,
    .role = api_role,
    .unit = api_unit,
    .phase = api_phase,
    .attr = api_attr,
    .input = api_input,
    .output = api_output,
    .operands = api_operands,
    .producer = api_producer,
    .is_param = api_is_param,
    .dim = api_dim,
    .layout = api_layout,
    .grad = api_grad,
    .shard = api_shard,
    .set_layout = api_set_layout,
    .at = api_at,
    .at_end = api_at_end,
    .set_role = api_set_role,
    .add = api_add,
    .convert = api_convert,
    .clone = api_clone,
    .set_input = api_set_input,
    .replace = api_replace,
    .remove = api_remove,
    .decompose = api_decompose,
    .set_grad = api_set_grad,
    .on = api_on,
    .unit_index = api_unit_index,
    .copy_param = api_copy_param,
    .primary = api_primary,
    .task = api_task,
    .when_last = api_when_last,
    .move = api_move,
    .convert_all = api_convert_all,
    .bytes = api_bytes,
    .reads = api_reads,
    .gradients = api_gradients,
    .option_text = api_option_text,
    .micro_batches = api_micro_batches,
    .flops = api_flops,
    .convert_rows = api_convert_rows,
};
