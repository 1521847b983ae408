/* slice.c - one index of a value's first dim, as a value of its own: a tensor of files where one of the graph is several.
 *
 * A slice is no part of the graph: it stands for what a rank holds of one expert's weights, say. It has the layouts of
 * the value that it is a slice of, and what is here of it is what lies in both. */
#include "graph/internal.h"

struct tn_value *tn_value_slice(const struct tn_value *v, int64_t index, struct tn_arena *arena)
{
    struct tn_value *s = tn_alloc(arena, sizeof *s);
    const char *star = strchr(v->name, '*');

    *s = *v;
    s->slice_of = v, s->slice = index;
    s->name = tn_text(arena, "%.*s%lld%s", star ? (int)(star - v->name) : (int)strlen(v->name), v->name, (long long)index, star ? star + 1 : "");
    s->rank = v->rank - 1;
    for (uint32_t d = 0; d < s->rank; d++)
        s->dim[d] = v->dim[d + 1], s->size[d] = v->size[d + 1];
    s->user = NULL, s->n_user = s->user_room = 0;
    s->next = s->next_value = NULL;
    return s;
}

int64_t tn_value_slices(const struct tn_value *v)
{
    return v->rank && strchr(v->name, '*') ? v->size[0] : 0;
}

/* Returns where, in what the rank holds of the whole value, that of the slice begins. */
int64_t graph_slice_local(const struct tn_value *s, const struct tn_mesh *m, struct tn_arena *arena, struct tn_local *out)
{
    struct tn_local all;
    int64_t each = 1, at, first, end;

    tn_value_local(s->slice_of, m, arena, &all);
    *out = (struct tn_local){.flat = all.flat};
    for (uint32_t d = 0; d < s->rank; d++) {
        out->size[d] = all.size[d + 1], out->origin[d] = all.origin[d + 1], out->index[d] = all.index[d + 1];
        each *= all.size[d + 1];
    }
    for (at = 0; at < all.size[0] && (all.index[0] ? all.index[0][at] : all.origin[0] + at) != s->slice; at++)
        ;
    if (at == all.size[0] || !all.count)
        return 0;
    first = all.flat_start > at * each ? all.flat_start : at * each;
    end = all.flat_start + all.count < (at + 1) * each ? all.flat_start + all.count : (at + 1) * each;
    if (first >= end)
        return 0;
    out->flat_start = first - at * each, out->count = end - first;
    return first - all.flat_start;
}

int64_t tn_value_slice_start(const struct tn_value *v, const struct tn_mesh *m)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_local l;
    int64_t at = v->slice_of ? graph_slice_local(v, m, arena, &l) : 0;

    tn_arena_free(arena);
    return at;
}
