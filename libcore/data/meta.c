/* meta.c - see meta.h. Every key is needed; keys that a later format adds are ignored. */
#include "data/meta.h"

#include "base/file.h"
#include "data/mapping.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define FORMAT 1

void tn_hash_text(uint64_t hash, char out[TN_HASH_TEXT])
{
    snprintf(out, TN_HASH_TEXT, "%016" PRIx64, hash);
}

int tn_hash_parse(const char *text, uint64_t *out)
{
    *out = 0;
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return 0;
    *out = strtoull(text, NULL, 16);
    return 1;
}

static tn_status wrong(const char *path, const char *key, const char *form)
{
    return tn_error(TN_ERR_INPUT, "%s: \"%s\" is missing or is not %s; run tenon prepare again", path, key,
                    form);
}

static tn_status read_number(const char *path, const json_t *o, const char *key, uint64_t low, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)low)
        return wrong(path, key, low ? "a whole number above 0" : "a whole number");
    *out = (uint64_t)json_integer_value(v);
    return TN_OK;
}

static tn_status read_hash(const char *path, const json_t *o, const char *key, uint64_t *out)
{
    if (!tn_hash_parse(json_string_value(json_object_get(o, key)), out))
        return wrong(path, key, "16 hexadecimal digits");
    return TN_OK;
}

static tn_status read_words(const char *path, const json_t *o, struct tn_meta *m)
{
    const char *kind = json_string_value(json_object_get(o, "tokenizer"));
    const char *dtype = json_string_value(json_object_get(o, "dtype"));

    if (!kind || !*kind || strlen(kind) >= sizeof m->tokenizer)
        return wrong(path, "tokenizer", "the kind of a tokenizer");
    strcpy(m->tokenizer, kind);
    if (!dtype || (strcmp(dtype, "uint16") && strcmp(dtype, "uint32")))
        return wrong(path, "dtype", "uint16 or uint32");
    m->width = strcmp(dtype, "uint16") ? 4 : 2;
    return TN_OK;
}

static tn_status read_all(const char *path, const json_t *o, struct tn_meta *m)
{
    uint64_t format, vocab;
    tn_status s = read_number(path, o, "format", 1, &format);

    if (s == TN_OK && format != FORMAT)
        s = tn_error(TN_ERR_INPUT, "%s has format %" PRIu64 ", this program reads %d", path, format, FORMAT);
    if (s < 0 || (s = read_words(path, o, m)) < 0 || (s = read_number(path, o, "vocab_size", 1, &vocab)) < 0)
        return s;
    if (vocab > INT32_MAX)
        return wrong(path, "vocab_size", "a whole number up to 2147483647");
    m->vocab_size = (int64_t)vocab;
    if ((s = read_number(path, o, "train_tokens", 0, &m->train_tokens)) < 0 ||
        (s = read_number(path, o, "val_tokens", 0, &m->val_tokens)) < 0 ||
        (s = read_hash(path, o, "tokenizer_hash", &m->tokenizer_hash)) < 0 ||
        (s = read_hash(path, o, "train_hash", &m->train_hash)) < 0)
        return s;
    return read_hash(path, o, "val_hash", &m->val_hash);
}

tn_status tn_meta_load(const char *path, struct tn_meta *out)
{
    struct tn_mapping file;
    json_error_t err;
    tn_status status;

    *out = (struct tn_meta){0};
    if (!tn_path_exists(path))
        return TN_DECLINED;
    status = tn_mapping_open(path, &file);
    if (status == TN_OK) {
        json_t *o = json_loadb(file.bytes ? (const char *)file.data : "", (size_t)file.bytes,
                               JSON_REJECT_DUPLICATES, &err);
        status = json_is_object(o) ? read_all(path, o, out)
                                   : tn_error(TN_ERR_INPUT, "%s is no JSON object: %s", path,
                                              o ? "it is something else" : err.text);
        json_decref(o);
        tn_mapping_close(&file);
    }
    return status;
}

char *tn_meta_text(const struct tn_meta *m)
{
    char *text = NULL, tokenizer[TN_HASH_TEXT], train[TN_HASH_TEXT], val[TN_HASH_TEXT];

    tn_hash_text(m->tokenizer_hash, tokenizer);
    tn_hash_text(m->train_hash, train);
    tn_hash_text(m->val_hash, val);
    if (asprintf(&text,
                 "{\"format\": %d, \"tokenizer\": \"%s\", \"vocab_size\": %" PRId64 ", \"dtype\": \"%s\",\n"
                 " \"train_tokens\": %" PRIu64 ", \"val_tokens\": %" PRIu64 ", \"tokenizer_hash\": \"%s\",\n"
                 " \"train_hash\": \"%s\", \"val_hash\": \"%s\"}\n",
                 FORMAT, m->tokenizer, m->vocab_size, m->width == 2 ? "uint16" : "uint32", m->train_tokens,
                 m->val_tokens, tokenizer, train, val) < 0) {
        tn_error(TN_ERR_MEMORY, "no memory for meta.json");
        return NULL;
    }
    return text;
}
