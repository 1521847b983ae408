/* tokenizer.c - the table of kinds, and tokenizer.json: {"kind": …, "version": 1, and the kind's own keys}. */
#include "data/tokenizer_kind.h"

#include "data/mapping.h"

#include <stdlib.h>

#define VERSION 1

static const struct tn_tokenizer_kind *const kinds[] = {&tn_tokenizer_char, &tn_tokenizer_byte};
#define KINDS (sizeof kinds / sizeof kinds[0])

const char *tn_tokenizer_kinds(void)
{
    return "char, byte";
}

static const struct tn_tokenizer_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i]->name, name))
            return kinds[i];
    return NULL;
}

static tn_status make(const struct tn_tokenizer_kind *kind, struct tn_tokenizer **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return tn_error(TN_ERR_MEMORY, "no memory for a tokenizer");
    (*out)->kind = kind;
    return TN_OK;
}

/* Passes status on; what failed to be made is freed. */
static tn_status made(tn_status status, struct tn_tokenizer **out)
{
    if (status < 0) {
        tn_tokenizer_free(*out);
        *out = NULL;
    }
    return status;
}

tn_status tn_tokenizer_train(const char *name, const char *source, const void *text, uint64_t bytes,
                             struct tn_tokenizer **out)
{
    const struct tn_tokenizer_kind *kind = find_kind(name);

    *out = NULL;
    if (!kind)
        return tn_error(TN_ERR_CONFIG, "there is no tokenizer '%s'; there are: %s", name,
                        tn_tokenizer_kinds());
    tn_status status = make(kind, out);
    return status < 0 ? status : made(kind->train(*out, source, text, bytes), out);
}

static tn_status load_root(const char *path, const json_t *root, struct tn_tokenizer **out)
{
    const char *name = json_string_value(json_object_get(root, "kind"));
    const json_t *version = json_object_get(root, "version");
    const struct tn_tokenizer_kind *kind = name ? find_kind(name) : NULL;

    if (!name)
        return tn_error(TN_ERR_INPUT, "%s says no \"kind\": it is no tokenizer of this program", path);
    if (!kind)
        return tn_error(TN_ERR_INPUT, "%s is of kind '%s'; this program knows: %s", path, name,
                        tn_tokenizer_kinds());
    if (!json_is_integer(version) || json_integer_value(version) != VERSION)
        return tn_error(TN_ERR_INPUT, "%s: \"version\" is not %d, the one that this program reads", path,
                        VERSION);
    tn_status status = make(kind, out);
    return status < 0 ? status : made(kind->load(*out, path, root), out);
}

tn_status tn_tokenizer_load(const char *path, struct tn_tokenizer **out)
{
    struct tn_mapping file;
    json_error_t err;
    tn_status status = tn_mapping_open(path, &file);

    *out = NULL;
    if (status < 0)
        return status;
    json_t *root = json_loadb(file.bytes ? (const char *)file.data : "", (size_t)file.bytes,
                              JSON_REJECT_DUPLICATES, &err);
    status = root ? load_root(path, root, out)
                  : tn_error(TN_ERR_INPUT, "%s:%d: no valid JSON: %s", path, err.line, err.text);
    json_decref(root);
    tn_mapping_close(&file);
    return status;
}

char *tn_tokenizer_text(const struct tn_tokenizer *t)
{
    json_t *root = json_pack("{s:s, s:i}", "kind", t->kind->name, "version", VERSION);
    char *text = NULL, *line = NULL;

    if (root && (!t->kind->save || t->kind->save(t, root) == 0))
        text = json_dumps(root, 0);
    json_decref(root);
    if (!text || asprintf(&line, "%s\n", text) < 0) {
        tn_error(TN_ERR_MEMORY, "no memory for tokenizer.json");
        line = NULL;
    }
    free(text);
    return line;
}

void tn_tokenizer_free(struct tn_tokenizer *t)
{
    if (!t)
        return;
    if (t->kind->free)
        t->kind->free(t->state);
    free(t);
}

const char *tn_tokenizer_kind(const struct tn_tokenizer *t)
{
    return t->kind->name;
}

int64_t tn_tokenizer_vocab_size(const struct tn_tokenizer *t)
{
    return t->vocab_size;
}

tn_status tn_tokenizer_encode(const struct tn_tokenizer *t, const char *source, const void *text,
                              uint64_t bytes, int32_t *out, uint64_t *count)
{
    *count = 0;
    return t->kind->encode(t, source, text, bytes, out, count);
}

uint64_t tn_tokenizer_cut(const struct tn_tokenizer *t, const void *text, uint64_t bytes)
{
    return t->kind->cut(text, bytes);
}

const char *tn_tokenizer_piece(const struct tn_tokenizer *t, int64_t id, uint64_t *bytes)
{
    *bytes = 0;
    return id >= 0 && id < t->vocab_size ? t->kind->piece(t, id, bytes) : NULL;
}
