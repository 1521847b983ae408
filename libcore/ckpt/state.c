/* state.c - see state.h. */
#include "ckpt/state.h"

#include "base/file.h"
#include "data/mapping.h"
#include "data/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

#define FORMAT 1
#define STATE_LIMIT (64u << 20) /* bytes; a sane one has some thousand */

static tn_status wrong(const struct tn_saved *s, const char *what)
{
    return tn_error(TN_ERR_INPUT, "%s/state.json: %s", s->dir, what);
}

static tn_status load(struct tn_saved *s)
{
    struct tn_arena *a = tn_arena_new();
    char *text = NULL;
    size_t bytes;
    json_error_t err;
    tn_status status = tn_file_read(tn_path_join(a, s->dir, "state.json"), STATE_LIMIT, &text, &bytes);

    tn_arena_free(a);
    if (status < 0)
        return status;
    s->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &err);
    free(text);
    return s->root ? TN_OK : wrong(s, err.text);
}

/* A name that leads out of the directory is no file of this checkpoint. */
static int plain(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/');
}

static tn_status read_file(struct tn_saved *s, const char *name, const json_t *entry)
{
    const json_t *bytes = json_object_get(entry, "bytes");
    struct tn_saved_file *f = &s->file[s->count];

    if (!plain(name) || !json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
        !tn_hash_parse(json_string_value(json_object_get(entry, "xxh64")), &f->hash))
        return wrong(s, "an entry of \"files\" has no proper name, bytes or xxh64");
    f->name = name;
    f->bytes = (uint64_t)json_integer_value(bytes);
    s->count++;
    return TN_OK;
}

static tn_status read_files(struct tn_saved *s)
{
    json_t *files = json_object_get(s->root, "files"), *entry;
    const char *name;
    tn_status status = TN_OK;

    if (!json_is_object(files))
        return wrong(s, "\"files\" is missing");
    s->file = calloc(json_object_size(files) + 1, sizeof *s->file);
    if (!s->file)
        return tn_error(TN_ERR_MEMORY, "no memory to read %s/state.json", s->dir);
    json_object_foreach(files, name, entry) if (status == TN_OK) status = read_file(s, name, entry);
    return status;
}

/* Only training in fp16 has one. */
static tn_status read_scale(struct tn_saved *s)
{
    const json_t *scale = json_object_get(s->root, "loss_scale"),
                 *good = json_object_get(s->root, "loss_scale_good");

    if (!scale)
        return TN_OK;
    if (!json_is_number(scale) || !json_is_integer(good) || json_integer_value(good) < 0)
        return wrong(s, "\"loss_scale\" or \"loss_scale_good\" is no proper number");
    s->loss_scale = json_number_value(scale);
    s->loss_scale_good = (uint64_t)json_integer_value(good);
    return TN_OK;
}

static tn_status read_root(struct tn_saved *s)
{
    const json_t *format = json_object_get(s->root, "format"), *step = json_object_get(s->root, "step");
    const json_t *seed = json_object_get(s->root, "seed");

    if (!json_is_integer(format) || json_integer_value(format) != FORMAT)
        return wrong(s, "\"format\" is not the one that this program reads");
    if (!json_is_integer(step) || json_integer_value(step) < 0 || !json_is_integer(seed))
        return wrong(s, "\"step\" or \"seed\" is missing or no whole number");
    s->step = json_integer_value(step);
    s->seed = (uint64_t)json_integer_value(seed);
    s->config = json_object_get(s->root, "config");
    s->data = json_string_value(json_object_get(s->root, "data"));
    if (!json_is_object(s->config) || !s->data ||
        !tn_hash_parse(json_string_value(json_object_get(s->root, "tokenizer")), &s->tokenizer))
        return wrong(s, "\"config\", \"data\" or \"tokenizer\" is missing or of another kind");
    return read_scale(s) < 0 ? TN_ERR_INPUT : read_files(s);
}

static tn_status check_size(const struct tn_saved_file *f, const char *path)
{
    struct stat st;

    if (stat(path, &st))
        return tn_error(TN_ERR_INPUT, "cannot find %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->bytes)
        return tn_error(TN_ERR_INPUT, "%s has %lld bytes, state.json beside it says %" PRIu64, path,
                        (long long)st.st_size, f->bytes);
    return TN_OK;
}

static tn_status check_hash(const struct tn_saved_file *f, const char *path)
{
    struct tn_mapping m;
    tn_status status = check_size(f, path);

    if (status < 0 || (status = tn_mapping_open(path, &m)) < 0)
        return status;
    if (XXH64(m.bytes ? (const void *)m.data : "", (size_t)m.bytes, 0) != f->hash)
        status = tn_error(TN_ERR_INPUT, "%s is damaged: its checksum is not the one in state.json", path);
    tn_mapping_close(&m);
    return status;
}

static tn_status check_each(const struct tn_saved *s,
                            tn_status (*check)(const struct tn_saved_file *f, const char *path))
{
    struct tn_arena *a = tn_arena_new();
    tn_status status = TN_OK;

    for (uint64_t i = 0; i < s->count && status == TN_OK; i++)
        status = check(&s->file[i], tn_path_join(a, s->dir, s->file[i].name));
    tn_arena_free(a);
    return status;
}

tn_status tn_saved_read(const char *dir, struct tn_saved *out)
{
    tn_status status;

    *out = (struct tn_saved){.dir = strdup(dir)};
    if (!out->dir)
        return tn_error(TN_ERR_MEMORY, "no memory to read %s", dir);
    if ((status = load(out)) < 0 || (status = read_root(out)) < 0)
        return status;
    return check_each(out, check_size);
}

tn_status tn_saved_verify(const struct tn_saved *s)
{
    return check_each(s, check_hash);
}

const struct tn_saved_file *tn_saved_find(const struct tn_saved *s, const char *name)
{
    for (uint64_t i = 0; i < s->count; i++)
        if (!strcmp(s->file[i].name, name))
            return &s->file[i];
    return NULL;
}

void tn_saved_free(struct tn_saved *s)
{
    json_decref(s->root);
    free(s->file);
    free(s->dir);
    *s = (struct tn_saved){0};
}

char *tn_saved_text(const struct tn_saved *s)
{
    char hash[TN_HASH_TEXT];
    json_t *files = json_object();

    for (uint64_t i = 0; i < s->count; i++) {
        tn_hash_text(s->file[i].hash, hash);
        json_object_set_new(files, s->file[i].name,
                            json_pack("{s:I, s:s}", "bytes", (json_int_t)s->file[i].bytes, "xxh64", hash));
    }
    tn_hash_text(s->tokenizer, hash);
    json_t *root = json_pack("{s:i, s:I, s:I, s:s, s:s, s:O, s:o}", "format", FORMAT, "step",
                             (json_int_t)s->step, "seed", (json_int_t)s->seed, "data", s->data, "tokenizer",
                             hash, "config", (json_t *)s->config, "files", files);
    if (root && s->loss_scale > 0) {
        json_object_set_new(root, "loss_scale", json_real(s->loss_scale));
        json_object_set_new(root, "loss_scale_good", json_integer((json_int_t)s->loss_scale_good));
    }
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (!text || json_object_size(files) != s->count) {
        tn_error(TN_ERR, "state.json cannot be written: a text in it is no UTF-8");
        free(text);
        text = NULL;
    }
    json_decref(root);
    return text;
}
