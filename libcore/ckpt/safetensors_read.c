/* safetensors_read.c - see safetensors.h.
 *
 * Three steps, each trusting only what the ones before have shown: the frame (is there a header, does it
 * fit?), the entries (each tensor for itself), the whole (the data lie one after the other and fill the
 * file). */
#include "ckpt/safetensors.h"

#include "data/mapping.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define HEADER_LIMIT 100000000u                  /* bytes; the reference implementation's */

struct tn_safetensors {
    struct tn_mapping map;
    json_t *header;                              /* owns the names and the metadata */
    const unsigned char *data;
    uint64_t data_bytes, count;
    struct tn_tensor *tensor;                    /* [count] by place in the file */
    const struct tn_tensor **by_name;            /* [count] sorted */
};

#define REFUSE(...) tn_error(TN_ERR_INPUT, __VA_ARGS__)

/* --- the frame */

static uint64_t little_endian(const unsigned char *p)
{
    uint64_t n = 0;

    for (int i = 7; i >= 0; i--)
        n = n << 8 | p[i];
    return n;
}

static tn_status check_frame(const struct tn_mapping *m, uint64_t *length)
{
    static const char lfs[] = "version https://git-lfs";

    if (m->bytes == 0)
        return REFUSE("%s is empty", m->path);
    if (m->bytes >= sizeof lfs - 1 && !memcmp(m->data, lfs, sizeof lfs - 1))
        return REFUSE("%s is a git-lfs pointer, not weights; fetch the file itself with git lfs pull",
                      m->path);
    if (m->bytes < 8)
        return REFUSE("%s has %" PRIu64 " bytes, too few for a safetensors file", m->path, m->bytes);
    uint64_t n = *length = little_endian(m->data);
    if (n == 0)
        return REFUSE("%s says that its header has 0 bytes", m->path);
    if (n >> 63)
        return REFUSE("%s is no safetensors file: as a header length its first 8 bytes make %" PRIu64,
                      m->path, n);
    if (n > HEADER_LIMIT)
        return REFUSE("%s says that its header has %" PRIu64 " bytes, more than the %u that are allowed",
                      m->path, n, HEADER_LIMIT);
    if (n > m->bytes - 8)
        return REFUSE("%s says that its header has %" PRIu64 " bytes, but only %" PRIu64
                      " follow; it is cut short",
                      m->path, n, m->bytes - 8);
    if (m->data[8] != '{')
        return REFUSE("%s: the header does not begin with '{'", m->path);
    return TN_OK;
}

static tn_status parse_header(struct tn_safetensors *f, uint64_t length)
{
    json_error_t err;

    f->header = json_loadb((const char *)f->map.data + 8, (size_t)length, JSON_REJECT_DUPLICATES, &err);
    if (f->header)                               /* an object, since it begins with '{' */
        return TN_OK;
    switch (json_error_code(&err)) {
    case json_error_duplicate_key:
        return REFUSE("%s: the header has a name twice (byte %d): %s", f->map.path, err.position, err.text);
    case json_error_invalid_utf8:
        return REFUSE("%s: the header is not UTF-8 (byte %d)", f->map.path, err.position);
    case json_error_stack_overflow:
        return REFUSE("%s: the header is nested too deep (byte %d)", f->map.path, err.position);
    default:
        return REFUSE("%s: the header is no valid JSON (byte %d): %s", f->map.path, err.position, err.text);
    }
}

/* --- the entries */

static tn_status check_meta(const struct tn_safetensors *f, const json_t *meta)
{
    const char *key;
    json_t *value;

    if (!json_is_object(meta))
        return REFUSE("%s: __metadata__ is no object", f->map.path);
    json_object_foreach((json_t *)meta, key, value)
        if (!json_is_string(value))
            return REFUSE("%s: __metadata__ \"%s\" is no text", f->map.path, key);
    return TN_OK;
}

static tn_status read_shape(const char *path, const json_t *list, struct tn_tensor *t, int64_t *elements)
{
    if (!json_is_array(list))
        return REFUSE("%s: tensor '%s' has no shape", path, t->name);
    if (json_array_size(list) > TN_FILE_RANK)
        return REFUSE("%s: tensor '%s' has %zu dimensions, this program reads up to %u", path, t->name,
                      json_array_size(list), TN_FILE_RANK);
    t->rank = (uint32_t)json_array_size(list);
    int64_t product = 1; /* of what is not 0: dims in any order must not overflow either */
    *elements = 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return REFUSE("%s: dimension %" PRIu32 " of tensor '%s' is no size", path, i, t->name);
        t->shape[i] = json_integer_value(v);
        if (t->shape[i] && __builtin_mul_overflow(product, t->shape[i], &product))
            return REFUSE("%s: the shape of tensor '%s' overflows", path, t->name);
        if (t->shape[i] == 0)
            *elements = 0;
    }
    *elements *= product;
    return TN_OK;
}

static tn_status read_offsets(const char *path, const json_t *pair, const char *name, uint64_t *begin,
                              uint64_t *end)
{
    const json_t *a = json_array_get(pair, 0), *b = json_array_get(pair, 1);

    if (json_array_size(pair) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return REFUSE("%s: data_offsets of tensor '%s' are no pair of whole numbers", path, name);
    if (json_integer_value(a) < 0 || json_integer_value(b) < 0)
        return REFUSE("%s: tensor '%s' has a negative offset", path, name);
    *begin = (uint64_t)json_integer_value(a);
    *end = (uint64_t)json_integer_value(b);
    if (*begin > *end)
        return REFUSE("%s: tensor '%s' ends before it begins", path, name);
    return TN_OK;
}

/* One tensor but for its place in memory, which lay_out gives. */
static tn_status read_entry(const struct tn_safetensors *f, const char *name, const json_t *entry,
                            struct tn_tensor *t, uint64_t *begin)
{
    const char *path = f->map.path, *dtype = json_string_value(json_object_get(entry, "dtype"));
    int64_t elements = 0, bytes;
    uint64_t end = 0;
    tn_status s;

    *t = (struct tn_tensor){.name = name};
    if (!json_is_object(entry))
        return REFUSE("%s: the entry of tensor '%s' is no object", path, name);
    if (!dtype || !(t->dtype = tn_file_dtype_find(dtype)))
        return REFUSE("%s: the dtype of tensor '%s' is %s", path, name, dtype ? "not known" : "missing");
    if ((s = read_shape(path, json_object_get(entry, "shape"), t, &elements)) < 0 ||
        (s = read_offsets(path, json_object_get(entry, "data_offsets"), name, begin, &end)) < 0)
        return s;
    if (__builtin_mul_overflow(elements, (int64_t)tn_file_dtype_bytes(t->dtype), &bytes))
        return REFUSE("%s: the size of tensor '%s' overflows", path, name);
    t->bytes = end - *begin;
    if (t->bytes != (uint64_t)bytes)
        return REFUSE("%s: tensor '%s' has %" PRIu64 " bytes, but %s of its shape need %" PRId64, path, name,
                      t->bytes, dtype, bytes);
    return TN_OK;
}

/* --- the whole */

struct placed {
    uint64_t begin;
    struct tn_tensor tensor;
};

static int by_place(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->tensor.bytes > y->tensor.bytes) - (x->tensor.bytes < y->tensor.bytes); /* empty ones first */
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct tn_tensor *const *)a)->name, (*(const struct tn_tensor *const *)b)->name);
}

static tn_status lay_out(struct tn_safetensors *f, struct placed *p)
{
    uint64_t at = 0;

    qsort(p, (size_t)f->count, sizeof *p, by_place);
    for (uint64_t i = 0; i < f->count; i++) {
        const char *name = p[i].tensor.name;
        if (p[i].begin < at)
            return REFUSE("%s: tensors '%s' and '%s' overlap", f->map.path, p[i - 1].tensor.name, name);
        if (p[i].begin > at)
            return REFUSE("%s: there is a hole of %" PRIu64 " bytes before tensor '%s'", f->map.path,
                          p[i].begin - at, name);
        if (p[i].tensor.bytes > f->data_bytes - at)
            return REFUSE("%s is cut short: tensor '%s' ends at byte %" PRIu64
                          " of the data, which are %" PRIu64,
                          f->map.path, name, at + p[i].tensor.bytes, f->data_bytes);
        f->tensor[i] = p[i].tensor;
        f->tensor[i].data = f->data + at;
        f->by_name[i] = &f->tensor[i];
        at += p[i].tensor.bytes;
    }
    if (at != f->data_bytes)
        return REFUSE("%s has %" PRIu64 " bytes behind its last tensor", f->map.path, f->data_bytes - at);
    qsort(f->by_name, (size_t)f->count, sizeof *f->by_name, by_name);
    return TN_OK;
}

static tn_status read_entries(struct tn_safetensors *f, struct placed *p)
{
    const char *name;
    json_t *entry;
    tn_status s = TN_OK;

    json_object_foreach(f->header, name, entry) {
        if (!strcmp(name, "__metadata__"))
            s = check_meta(f, entry);
        else
            s = read_entry(f, name, entry, &p[f->count].tensor, &p[f->count].begin), f->count++;
        if (s < 0)
            return s;
    }
    return lay_out(f, p);
}

static tn_status read_file(struct tn_safetensors *f)
{
    uint64_t length = 0;
    tn_status s = check_frame(&f->map, &length);

    if (s < 0 || (s = parse_header(f, length)) < 0)
        return s;
    f->data = f->map.data + 8 + length;
    f->data_bytes = f->map.bytes - 8 - length;
    size_t room = json_object_size(f->header) + 1;
    struct placed *p = calloc(room, sizeof *p);
    f->tensor = calloc(room, sizeof *f->tensor);
    f->by_name = calloc(room, sizeof *f->by_name);
    if (!p || !f->tensor || !f->by_name)
        s = tn_error(TN_ERR_MEMORY, "no memory to read %s", f->map.path);
    else
        s = read_entries(f, p);
    free(p);
    return s;
}

tn_status tn_safetensors_open(const char *path, struct tn_safetensors **out)
{
    struct tn_safetensors *f = calloc(1, sizeof *f);
    tn_status s;

    *out = NULL;
    if (!f)
        return tn_error(TN_ERR_MEMORY, "no memory to read %s", path);
    s = tn_mapping_open(path, &f->map);
    if (s == TN_OK)
        s = read_file(f);
    if (s < 0)
        tn_safetensors_close(f);
    else
        *out = f;
    return s;
}

void tn_safetensors_close(struct tn_safetensors *f)
{
    if (!f)
        return;
    json_decref(f->header);
    free(f->tensor);
    free(f->by_name);
    tn_mapping_close(&f->map);
    free(f);
}

uint64_t tn_safetensors_count(const struct tn_safetensors *f)
{
    return f->count;
}

const struct tn_tensor *tn_safetensors_at(const struct tn_safetensors *f, uint64_t i)
{
    return i < f->count ? &f->tensor[i] : NULL;
}

const struct tn_tensor *tn_safetensors_find(const struct tn_safetensors *f, const char *name)
{
    const struct tn_tensor key = {.name = name}, *k = &key, **hit;

    hit = bsearch(&k, f->by_name, (size_t)f->count, sizeof *f->by_name, by_name);
    return hit ? *hit : NULL;
}

const char *tn_safetensors_meta(const struct tn_safetensors *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}
