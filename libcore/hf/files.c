/* files.c - see files.h. An index is a table from tensors to files; its names are plain, so that none leads out of the
 * folder. */
#include "hf/files.h"

#include "base/file.h"
#include "hf/family.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define SINGLE "model.safetensors"
#define INDEX SINGLE ".index.json"
#define INDEX_LIMIT (64u << 20)                  /* bytes */
#define MOST_FILES 4096u

static int is_plain(const char *name)
{
    static const char *const end[] = {".safetensors", NULL};

    return *name && *name != '.' && !strchr(name, '/') && !strchr(name, '\\') && hf_ends_with(name, end);
}

static tn_status add_file(struct hf_files *f, const char *dir, const char *name)
{
    tn_status status;

    f->file = tn_alloc_grow(f->arena, f->file, f->n, sizeof *f->file);
    f->path = tn_alloc_grow(f->arena, f->path, f->n, sizeof *f->path);
    f->path[f->n] = tn_path_join(f->arena, dir, name);
    status = tn_safetensors_open(f->path[f->n], &f->file[f->n]);
    f->n += status == TN_OK;
    return status;
}

static int find_file(const struct hf_files *f, const char *name)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (!strcmp(tn_path_name(f->path[i]), name))
            return (int)i;
    return -1;
}

/* All files that the map names. */
static tn_status open_mapped(struct hf_files *f, const char *dir, const char *index, json_t *map)
{
    const char *tensor;
    json_t *value;

    json_object_foreach(map, tensor, value) {
        const char *name = json_string_value(value);
        tn_status status = TN_OK;

        if (!name || strlen(name) != json_string_length(value) || !is_plain(name))
            return tn_error(TN_ERR_INPUT, "%s: tensor '%.120s' is said to be in '%.120s', which is no name of a safetensors file beside it", index,
                            tensor, name ? name : "(no text)");
        if (find_file(f, name) < 0)
            status = f->n == MOST_FILES ? tn_error(TN_ERR_INPUT, "%s names more than %u files", index, MOST_FILES) : add_file(f, dir, name);
        if (status < 0)
            return status;
    }
    return f->n ? TN_OK : tn_error(TN_ERR_INPUT, "%s names no file", index);
}

/* The map and the files say the same. */
static tn_status compare(const struct hf_files *f, const char *index, json_t *map)
{
    struct hf_list wrong = {0};
    const char *tensor;
    json_t *value;

    json_object_foreach(map, tensor, value)
        if (!tn_safetensors_find(f->file[find_file(f, json_string_value(value))], tensor))
            hf_list_add(&wrong, "%.200s is not in %.120s", tensor, json_string_value(value));
    for (uint32_t i = 0; i < f->n; i++)
        for (uint64_t k = 0; k < tn_safetensors_count(f->file[i]); k++) {
            const char *name = tn_safetensors_at(f->file[i], k)->name;
            const char *at = json_string_value(json_object_get(map, name));

            if (!at || strcmp(at, tn_path_name(f->path[i])))
                hf_list_add(&wrong, "%.200s is in %.120s, which the index does not say", name, tn_path_name(f->path[i]));
        }
    return hf_list_end(&wrong, "%s does not fit its files:", index);
}

static tn_status open_index(struct hf_files *f, const char *dir, const char *path)
{
    char *text = NULL;
    size_t bytes;
    json_error_t err;
    json_t *root, *map;
    tn_status status = tn_file_read(path, INDEX_LIMIT, &text, &bytes);

    if (status < 0)
        return status;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &err);
    free(text);
    if (!root)
        return tn_error(TN_ERR_INPUT, "%s:%d: %s", path, err.line, err.text);
    map = json_object_get(root, "weight_map");
    status = json_is_object(map) ? open_mapped(f, dir, path, map) : tn_error(TN_ERR_INPUT, "%s has no \"weight_map\"", path);
    if (status == TN_OK)
        status = compare(f, path, map);
    json_decref(root);
    return status;
}

static tn_status nothing(const char *dir, struct tn_arena *a)
{
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "consolidated.00.pth"};

    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++)
        if (tn_path_exists(tn_path_join(a, dir, pickles[i])))
            return tn_error(TN_ERR_INPUT, "%s has its weights in %s, a pickle, which is code and never run here: have it saved as safetensors", dir,
                            pickles[i]);
    return tn_error(TN_ERR_INPUT, "%s has neither " SINGLE " nor " INDEX, dir);
}

tn_status hf_files_open(const char *dir, struct hf_files *out)
{
    struct tn_arena *a = tn_arena_new();
    const char *index = tn_path_join(a, dir, INDEX);

    *out = (struct hf_files){.arena = a};
    if (!tn_path_is_folder(dir))
        return tn_error(TN_ERR_INPUT, "there is no directory %s", dir);
    if (tn_path_exists(tn_path_join(a, dir, SINGLE)))
        return add_file(out, dir, SINGLE);
    return tn_path_exists(index) ? open_index(out, dir, index) : nothing(dir, a);
}

void hf_files_close(struct hf_files *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        tn_safetensors_close(f->file[i]);
    if (f->arena)
        tn_arena_free(f->arena);
    *f = (struct hf_files){0};
}
