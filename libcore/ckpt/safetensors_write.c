/* safetensors_write.c - see safetensors.h. The header is built as JSON while tensors are declared, so a name
 * that comes twice is seen at once; the file itself begins with the header, when all is known. */
#include "ckpt/safetensors.h"

#include "data/sink.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define HEADER_LIMIT 100000000u

struct tn_safetensors_writer {
    char *path;
    json_t *header, *meta;                       /* meta is borrowed from header, its first entry */
    uint64_t declared, written;                  /* bytes of data */
    struct tn_sink *output;
    int begun;
};

static tn_status no_memory(const char *path)
{
    return tn_error(TN_ERR_MEMORY, "no memory to write %s", path);
}

tn_status tn_safetensors_create(const char *path, struct tn_safetensors_writer **out)
{
    struct tn_safetensors_writer *w = calloc(1, sizeof *w);
    tn_status status = TN_OK;

    *out = NULL;
    if (!w)
        return no_memory(path);
    w->path = strdup(path);
    w->header = json_object();
    w->meta = json_object();
    if (json_object_set_new(w->header, "__metadata__", w->meta) || !w->path)
        status = no_memory(path);
    else
        status = tn_sink_open(path, &w->output);
    if (status < 0)
        tn_safetensors_abort(w);
    else
        *out = w;
    return status;
}

tn_status tn_safetensors_add_meta(struct tn_safetensors_writer *w, const char *key, const char *value)
{
    if (json_object_set_new(w->meta, key, json_string(value)))
        return tn_error(TN_ERR, "%s: the metadata '%s' is no UTF-8", w->path, key);
    return TN_OK;
}

/* Bytes of a tensor; 0 elements is fine, more than int64 is not. */
static tn_status measure(const struct tn_safetensors_writer *w, const char *name, uint32_t dtype,
                         uint32_t rank, const int64_t *shape, int64_t *bytes)
{
    *bytes = tn_file_dtype_bytes(dtype);
    if (*bytes == 0 || rank > TN_FILE_RANK)
        return tn_error(TN_ERR, "%s: tensor '%s' has dtype %" PRIu32 " and rank %" PRIu32
                        ", which cannot be written", w->path, name, dtype, rank);
    for (uint32_t i = 0; i < rank; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(*bytes, shape[i], bytes))
            return tn_error(TN_ERR, "%s: tensor '%s' is too large", w->path, name);
    return TN_OK;
}

static json_t *shape_list(uint32_t rank, const int64_t *shape)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < rank; i++)
        json_array_append_new(list, json_integer(shape[i]));
    return list;
}

tn_status tn_safetensors_declare(struct tn_safetensors_writer *w, const char *name, uint32_t dtype,
                                 uint32_t rank, const int64_t *shape)
{
    int64_t bytes;
    tn_status status = measure(w, name, dtype, rank, shape, &bytes);

    if (status < 0)
        return status;
    if (w->begun || json_object_get(w->header, name))
        return tn_error(TN_ERR, "%s: tensor '%s' was declared %s", w->path, name,
                        w->begun ? "too late" : "twice");
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", tn_file_dtype_name(dtype), "shape",
                              shape_list(rank, shape), "data_offsets", (json_int_t)w->declared,
                              (json_int_t)w->declared + bytes);
    if (json_object_set_new(w->header, name, entry))
        return tn_error(TN_ERR, "%s: the tensor name '%s' is no UTF-8", w->path, name);
    w->declared += (uint64_t)bytes;
    return TN_OK;
}

tn_status tn_safetensors_begin(struct tn_safetensors_writer *w)
{
    unsigned char length[8];
    tn_status status;

    if (json_object_size(w->meta) == 0)
        json_object_del(w->header, "__metadata__");
    w->begun = 1;
    char *text = json_dumps(w->header, JSON_COMPACT);
    if (!text)
        return no_memory(w->path);
    uint64_t bytes = strlen(text), padded = (bytes + 7) / 8 * 8;
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(padded >> (8 * i));
    if (padded > HEADER_LIMIT)
        status = tn_error(TN_ERR, "%s: a header of %" PRIu64 " bytes is more than a reader takes", w->path,
                          padded);
    else if ((status = tn_sink_write(w->output, length, 8)) == TN_OK &&
             (status = tn_sink_write(w->output, text, bytes)) == TN_OK)
        status = tn_sink_write(w->output, "       ", padded - bytes);
    free(text);
    return status;
}

tn_status tn_safetensors_write(struct tn_safetensors_writer *w, const void *data, uint64_t bytes)
{
    if (!w->begun || bytes > w->declared - w->written)
        return tn_error(TN_ERR, "%s: more data than was declared", w->path);
    w->written += bytes;
    return tn_sink_write(w->output, data, bytes);
}

tn_status tn_safetensors_commit(struct tn_safetensors_writer *w, uint64_t *bytes, uint64_t *hash)
{
    tn_status status;

    if (!w->begun || w->written != w->declared) {
        status = tn_error(TN_ERR, "%s: %" PRIu64 " of %" PRIu64 " bytes of data were written", w->path,
                          w->written, w->declared);
    } else {
        status = tn_sink_commit(w->output, bytes, hash);
        w->output = NULL;
    }
    tn_safetensors_abort(w);
    return status;
}

void tn_safetensors_abort(struct tn_safetensors_writer *w)
{
    if (!w)
        return;
    tn_sink_abort(w->output);
    json_decref(w->header);
    free(w->path);
    free(w);
}
