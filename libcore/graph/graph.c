/* graph.c - a graph: made, freed, its error, its outputs and symbols.
 *
 * The public table (api.c) and the core call what is here and beside it: values and sources are in value.c, nodes and
 * their order in node.c, what changes them in rewrite.c, layouts in layout.c. */
#include "graph/graph.h"
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

void *graph_grow(void *p, size_t bytes)
{
    p = realloc(p, bytes);
    if (!p) {
        fprintf(stderr, "tenon: out of memory while building the graph (%zu bytes)\n", bytes);
        exit(1);
    }
    return p;
}

/* --- outputs and symbols */

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
