/* part.c - see part.h. What comes from a file is believed only as far as it fits the tensor. */
#include "train/part.h"
#include <jansson.h>

int tn_part_is_whole(const struct tn_value *v, const struct tn_local *l)
{
    for (uint32_t d = 0; d < v->rank; d++)
        if (l->index[d] || l->size[d] != v->size[d])
            return 0;
    return l->count == tn_value_count(v);
}

/* --- writing */

static json_t *numbers(uint32_t n, const int64_t *x)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(x[i]));
    return list;
}

/* Runs of neighbours along one dim, as [first, end). */
static json_t *ranges(const struct tn_local *l, uint32_t d)
{
    json_t *list = json_array();

    for (int64_t i = 0, n; i < l->size[d]; i += n) {
        int64_t first = l->index[d] ? l->index[d][i] : l->origin[d] + i;

        for (n = 1; i + n < l->size[d] && (!l->index[d] || l->index[d][i + n] == first + n); n++)
            ;
        json_array_append_new(list, numbers(2, (const int64_t[]){first, first + n}));
    }
    return list;
}

char *tn_part_text(const struct tn_value *v, const struct tn_local *l, uint32_t rank, const int64_t *shape)
{
    json_t *at = json_array(), *root;
    char *text;

    for (uint32_t d = 0; d < v->rank; d++)
        json_array_append_new(at, ranges(l, d));
    root =
        json_pack("{s:o, s:o, s:o, s:[I, I]}", "shape", numbers(rank, shape), "of", numbers(v->rank, v->size),
                  "at", at, "chunk", (json_int_t)(l->flat ? l->flat_start : 0), (json_int_t)l->count);
    text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text)
        tn_error(TN_ERR_MEMORY, "no memory to describe a part of %s", v->name);
    return text;
}

/* --- reading */

static int same_numbers(const json_t *list, uint32_t n, const int64_t *x)
{
    int same = json_is_array(list) && json_array_size(list) == n;

    for (uint32_t i = 0; i < n && same; i++)
        same =
            json_is_integer(json_array_get(list, i)) && json_integer_value(json_array_get(list, i)) == x[i];
    return same;
}

/* Ranges of dim d; 0: they make no sense. One range needs no index. */
static int read_dim(const json_t *list, int64_t size, uint32_t d, struct tn_arena *arena,
                    struct tn_local *out)
{
    size_t n = json_array_size(list);
    int64_t *index = tn_alloc_array(arena, (size_t)size + 1, sizeof *index), k = 0;

    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(list, i), *a = json_array_get(pair, 0),
                     *b = json_array_get(pair, 1);
        int64_t first = json_integer_value(a), end = json_integer_value(b);

        if (!json_is_integer(a) || !json_is_integer(b) || first < 0 || end <= first || end > size ||
            end - first > size - k)
            return 0;
        while (first < end)
            index[k++] = first++;
    }
    out->size[d] = k;
    out->origin[d] = k ? index[0] : 0;
    out->index[d] = n > 1 ? index : NULL;
    return json_is_array(list);
}

static int read_part(const json_t *root, const struct tn_value *v, uint32_t rank, const int64_t *shape,
                     int64_t count, struct tn_arena *arena, struct tn_local *out)
{
    const json_t *at = json_object_get(root, "at"), *chunk = json_object_get(root, "chunk");
    int64_t box = 1;

    *out = (struct tn_local){
        .count = count, .flat = 1, .flat_start = json_integer_value(json_array_get(chunk, 0))};
    if (!same_numbers(json_object_get(root, "shape"), rank, shape) ||
        !same_numbers(json_object_get(root, "of"), v->rank, v->size) || json_array_size(at) != v->rank)
        return 0;
    for (uint32_t d = 0; d < v->rank; d++) {
        if (!read_dim(json_array_get(at, d), v->size[d], d, arena, out))
            return 0;
        box *= out->size[d]; /* at most the tensor's elements */
    }
    return same_numbers(chunk, 2, (const int64_t[]){out->flat_start, count}) && count > 0 &&
           out->flat_start >= 0 && out->flat_start <= box - count;
}

tn_status tn_part_read(const char *text, const struct tn_value *v, uint32_t rank, const int64_t *shape,
                       int64_t count, struct tn_arena *arena, struct tn_local *out)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    int fits = root && read_part(root, v, rank, shape, count, arena, out);

    json_decref(root);
    return fits ? TN_OK : tn_error(TN_ERR_INPUT, "it does not fit the tensor of this model: %.200s", text);
}
