/* value.c - values: what they are, and the sources among them, which no node makes.
 *
 * Names are interned, sizes are checked once, here; a value never changes its shape. */
#include "graph/internal.h"

struct tn_value *graph_value_new(struct tn_graph *g, const char *name, uint32_t kind, uint32_t dtype, uint32_t rank,
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

int graph_sizes_fit(struct tn_graph *g, const char *name, uint32_t rank, const char *const *dim, const int64_t *size)
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
    if (g->status || !graph_sizes_fit(g, name, rank, dim, size))
        return NULL;
    return graph_value_new(g, name, kind, dtype, rank, dim, size);
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
        if (!v->rotary && !strcmp(v->dim[0], dim) && v->size[0] == size)
            return v;
    return tn_graph_positions_apart(g, dim, size);
}

struct tn_value *tn_graph_rotary(struct tn_graph *g, const char *const *dim, int64_t positions, int64_t width, const struct tn_rotary *r)
{
    struct tn_value *v = source(g, "rotary", TN_VALUE_POSITIONS, TN_F32, 2, dim, (const int64_t[]){positions, width});
    struct tn_rotary *own;

    if (!v)
        return NULL;
    own = tn_alloc(g->arena, sizeof *own);
    *own = *r;
    v->rotary = own;
    list_append(&g->positions, &g->last_positions, v);
    return v;
}

struct tn_value *tn_graph_copy_positions(const struct tn_value *v)
{
    return v->rotary ? tn_graph_rotary(v->graph, v->dim, v->size[0], v->size[1], v->rotary)
                     : tn_graph_positions_apart(v->graph, v->dim[0], v->size[0]);
}

int tn_graph_same_positions(const struct tn_value *a, const struct tn_value *b)
{
    const struct tn_rotary *r = a->rotary, *q = b->rotary;

    if (a->rank != b->rank || !r != !q)
        return 0;
    for (uint32_t d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d] || a->size[d] != b->size[d])
            return 0;
    return !r || (r->scaling == q->scaling && r->theta == q->theta && r->factor == q->factor && r->low == q->low && r->high == q->high &&
                  r->original == q->original);
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

struct tn_value *tn_graph_cache(struct tn_graph *g, const char *name, uint32_t dtype, uint32_t rank, const char *const *dim,
                                const int64_t *size)
{
    struct tn_value *v = source(g, name, TN_VALUE_CACHE, dtype, rank, dim, size);

    if (v)
        list_append(&g->caches, &g->last_cache, v);
    return v;
}

/* --- asking */

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

uint64_t tn_dtype_bytes(uint32_t dtype)
{
    static const uint8_t bytes[] = {
        [TN_F32] = 4, [TN_BF16] = 2, [TN_F16] = 2, [TN_I32] = 4, [TN_F64] = 8, [TN_I64] = 8, [TN_U8] = 1};

    return dtype < sizeof bytes ? bytes[dtype] : 0;
}
