/* graph.c - nodes, values and sources: making, linking, walking, rewriting.
 *
 * The public table (api.c) and the core call what is here. Layouts are in layout.c: whatever changes the inputs
 * of a node queues it, and nobody sees a layout before the queue is empty. */
#include "graph/graph.h"
#include "graph/op.h"
#include "graph/internal.h"
#include <stdlib.h>

struct tn_graph *tn_graph_new(const struct tn_mesh *mesh)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_graph *g = tn_alloc(arena, sizeof *g);

    g->arena = arena;
    g->names = tn_names_new(arena);
    g->mesh = *mesh;
    g->unit = g->role = tn_intern(g->names, "");
    g->phase = TN_FORWARD;
    g->n_micro = 1;
    graph_layouts_init(g);
    if (!tn_host_table.graph)
        tn_host_table.graph = &tn_graph_api_table;
    graph_current = g;
    return g;
}

void tn_graph_free(struct tn_graph *g)
{
    if (!g)
        return;
    if (graph_current == g)
        graph_current = NULL;
    free(g->layout_info);
    free(g->queue);
    free(g->task);
    free(g->error);
    for (struct tn_value *v = g->all_values; v; v = v->next_value)
        free(v->user);
    tn_arena_free(g->arena);
}

tn_status tn_graph_status(struct tn_graph *g)
{
    return g->status ? tn_error_long(g->status, g->error) : TN_OK;
}

void tn_graph_fail(struct tn_graph *g, tn_status code, const char *fmt, ...)
{
    va_list ap;

    if (g->status)
        return;
    va_start(ap, fmt);
    if (vasprintf(&g->error, fmt, ap) < 0)
        g->error = NULL;
    va_end(ap);
    g->status = code;
}

const char *tn_graph_name(struct tn_graph *g, const char *text)
{
    return tn_intern(g->names, text);
}

/* --- values */

static struct tn_value *value_new(struct tn_graph *g, const char *name, uint32_t kind, uint32_t dtype, uint32_t rank,
                                  const char *const *dim, const int64_t *size)
{
    struct tn_value *v = tn_alloc(g->arena, sizeof *v);

    v->graph = g;
    v->id = g->n_value++;
    v->kind = kind;
    v->dtype = dtype;
    v->name = tn_graph_name(g, name);
    v->rank = rank;
    for (uint32_t d = 0; d < rank; d++) {
        v->dim[d] = tn_graph_name(g, dim[d]);
        v->size[d] = size[d];
    }
    for (int a = 0; a < TN_AXES; a++)
        v->layout[a] = TN_R;
    v->next_value = g->all_values;
    g->all_values = v;
    return v;
}

static int sizes_fit(struct tn_graph *g, const char *name, uint32_t rank, const char *const *dim, const int64_t *size)
{
    int64_t count = 1;

    if (rank > TN_MAX_RANK) {
        tn_graph_fail(g, TN_ERR_SHAPE, "%s has %u dims, at most %d are possible", name, rank, TN_MAX_RANK);
        return 0;
    }
    for (uint32_t d = 0; d < rank; d++) {
        if (size[d] < 1) {
            tn_graph_fail(g, TN_ERR_SHAPE, "%s: dim %s has size %lld", name, dim[d], (long long)size[d]);
            return 0;
        }
        if (__builtin_mul_overflow(count, size[d], &count) || count > INT64_MAX / 16) {
            tn_graph_fail(g, TN_ERR_SHAPE, "%s has more elements than can be counted", name);
            return 0;
        }
        for (uint32_t e = 0; e < d; e++)
            if (!strcmp(dim[d], dim[e])) {
                tn_graph_fail(g, TN_ERR_SHAPE, "%s has dim %s twice", name, dim[d]);
                return 0;
            }
    }
    return 1;
}

static void list_append(struct tn_value **first, struct tn_value **last, struct tn_value *v)
{
    if (*last)
        (*last)->next = v;
    else
        *first = v;
    *last = v;
}

static struct tn_value *source(struct tn_graph *g, const char *name, uint32_t kind, uint32_t dtype, uint32_t rank,
                               const char *const *dim, const int64_t *size)
{
    if (g->status || !sizes_fit(g, name, rank, dim, size))
        return NULL;
    return value_new(g, name, kind, dtype, rank, dim, size);
}

struct tn_value *tn_graph_param(struct tn_graph *g, const char *name, const struct tn_param_spec *spec)
{
    struct tn_value *v = source(g, name, TN_VALUE_PARAM, TN_F32, spec->rank, spec->dim, spec->size);
    struct tn_param *p;

    if (!v)
        return NULL;
    p = tn_alloc(g->arena, sizeof *p);
    p->value = v;
    p->name = v->name;
    p->spec = *spec;
    p->spec.dim = v->dim;
    p->spec.size = v->size;
    p->number = g->n_param++;
    p->decay = spec->file_rank >= 2;
    p->lr_scale = 1;
    v->param = p;
    list_append(&g->params, &g->last_param, v);
    return v;
}

struct tn_value *tn_graph_input(struct tn_graph *g, const char *name, uint32_t dtype, uint32_t rank, const char *const *dim,
                                const int64_t *size, uint32_t per_micro)
{
    struct tn_value *v = source(g, name, TN_VALUE_INPUT, dtype, rank, dim, size);

    if (!v)
        return NULL;
    v->per_micro = per_micro;
    list_append(&g->inputs, &g->last_input, v);
    return v;
}

struct tn_value *tn_graph_positions_apart(struct tn_graph *g, const char *dim, int64_t size)
{
    struct tn_value *v = source(g, tn_text(g->arena, "positions.%s", dim), TN_VALUE_POSITIONS, TN_I32, 1, &dim, &size);

    if (v)
        list_append(&g->positions, &g->last_positions, v);
    return v;
}

struct tn_value *tn_graph_positions(struct tn_graph *g, const char *dim, int64_t size)
{
    for (struct tn_value *v = g->positions; v; v = v->next)
        if (!strcmp(v->dim[0], dim) && v->size[0] == size)
            return v;
    return tn_graph_positions_apart(g, dim, size);
}

struct tn_value *tn_graph_state(struct tn_graph *g, struct tn_param *p, const char *slot, uint32_t dtype, const struct tn_value *like)
{
    struct tn_value *v;

    if (g->status)
        return NULL;
    if (p->n_state == sizeof p->state / sizeof *p->state) {
        tn_graph_fail(g, TN_ERR, "%s: an optimizer has at most %u slots", p->name, p->n_state);
        return NULL;
    }
    v = source(g, tn_text(g->arena, "%s:%s", p->name, slot), TN_VALUE_STATE, dtype, like->rank, like->dim, like->size);
    if (!v)
        return NULL;
    v->param = p;
    tn_graph_settle(g);
    memcpy(v->layout, like->layout, sizeof v->layout);
    p->state_name[p->n_state] = tn_graph_name(g, slot);
    p->state[p->n_state++] = v;
    list_append(&g->states, &g->last_state, v);
    return v;
}

void tn_graph_output(struct tn_graph *g, const char *name, struct tn_value *v)
{
    if (g->status || !v)
        return;
    for (uint32_t i = 0; i < g->n_output; i++)
        if (!strcmp(g->output[i].name, name)) {
            g->output[i].value = v;
            return;
        }
    if (g->n_output == sizeof g->output / sizeof *g->output) {
        tn_graph_fail(g, TN_ERR, "more than %u outputs", g->n_output);
        return;
    }
    g->output[g->n_output++] = (struct tn_output_entry){tn_graph_name(g, name), v, 0};
}

void tn_graph_output_whole(struct tn_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_output; i++)
        g->output[i].whole |= !strcmp(g->output[i].name, name);
}

struct tn_value *tn_graph_find_output(const struct tn_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_output; i++)
        if (!strcmp(g->output[i].name, name))
            return g->output[i].value;
    return NULL;
}

struct tn_value *tn_graph_find_input(const struct tn_graph *g, const char *name)
{
    for (struct tn_value *v = g->inputs; v; v = v->next)
        if (!strcmp(v->name, name))
            return v;
    return NULL;
}

uint32_t tn_graph_symbol(struct tn_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_symbol; i++)
        if (!strcmp(g->symbol[i], name))
            return i;
    if (g->n_symbol == sizeof g->symbol / sizeof *g->symbol) {
        tn_graph_fail(g, TN_ERR, "more than %u symbols that change from step to step", g->n_symbol);
        return 0;
    }
    g->symbol[g->n_symbol] = tn_graph_name(g, name);
    return g->n_symbol++;
}

int tn_graph_has_symbol(const struct tn_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_symbol; i++)
        if (!strcmp(g->symbol[i], name))
            return 1;
    return 0;
}

int64_t tn_value_dim(const struct tn_value *v, const char *dim)
{
    int d = tn_value_find_dim(v, dim);

    return d < 0 ? 0 : v->size[d];
}

int tn_value_find_dim(const struct tn_value *v, const char *dim)
{
    for (uint32_t d = 0; d < v->rank; d++)
        if (v->dim[d] == dim || !strcmp(v->dim[d], dim))
            return (int)d;
    return -1;
}

int64_t tn_value_count(const struct tn_value *v)
{
    int64_t n = 1;

    for (uint32_t d = 0; d < v->rank; d++)
        n *= v->size[d];
    return n;
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

uint64_t tn_dtype_bytes(uint32_t dtype)
{
    static const uint8_t bytes[] = {
        [TN_F32] = 4, [TN_BF16] = 2, [TN_F16] = 2, [TN_I32] = 4, [TN_F64] = 8, [TN_I64] = 8, [TN_U8] = 1};

    return dtype < sizeof bytes ? bytes[dtype] : 0;
}

/* --- who uses what */

static void user_add(struct tn_value *v, struct tn_node *n)
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

static void user_drop(struct tn_value *v, struct tn_node *n)
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

void *graph_grow(void *p, size_t bytes)
{
    p = realloc(p, bytes);
    if (!p) {
        fprintf(stderr, "tenon: out of memory while building the graph (%zu bytes)\n", bytes);
        exit(1);
    }
    return p;
}

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

static void unlink_node(const struct tn_node *n)
{
    *(n->prev ? &n->prev->next : &n->graph->first[n->phase]) = n->next;
    *(n->next ? &n->next->prev : &n->graph->last[n->phase]) = n->prev;
}

static void link_node(struct tn_graph *g, struct tn_node *n)
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
        user_add(in[i], n);
    link_node(g, n);
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

    if (g->status || !sizes_fit(g, n->op->name, rank, dim, size))
        return NULL;
    if (n->n_out == TN_MAX_OUT) {
        tn_graph_fail(g, TN_ERR_SHAPE, "%s: more than %d outputs", n->op->name, TN_MAX_OUT);
        return NULL;
    }
    v = value_new(g, n->op->name, TN_VALUE_TMP, dtype, rank, dim, size);
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
    if (!graph_same_shape(old, now)) {
        tn_graph_fail(n->graph, TN_ERR_SHAPE, "node %u %s (role %s, unit %s): %%%u %s cannot take the place of %%%u %s, their shapes differ",
                      n->id, n->op->name, n->role, n->unit, now->id, now->name, old->id, old->name);
        return;
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == old)
            n->in[i] = now;
    user_drop(old, n);
    user_add(now, n);
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
    unlink_node(n);
    link_node(g, n);
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
    unlink_node(n);
    if (g->cursor == n) {
        g->cursor = n->prev ? n->prev : n->next;
        g->cursor_after = n->prev != NULL;
    }
    for (uint32_t i = 0; i < n->n_in; i++) {
        struct tn_value *v = n->in[i];

        n->in[i] = NULL;
        user_drop(v, n);
    }
    n->n_in = 0;
}
