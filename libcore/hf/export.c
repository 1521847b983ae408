/* export.c - a checkpoint becomes a folder that Hugging Face's library opens.
 *
 * Everything is written into a folder beside it that gets its name at the end. The index is made of what is written: which
 * files a model came from when it was imported is not remembered. */
#include "hf/hf.h"

#include "base/file.h"
#include "base/status.h"
#include "ckpt/safetensors.h"
#include "data/tokenizer.h"
#include "hf/family.h"
#include "hf/numbers.h"
#include "train/checkpoint.h"
#include "train/model_config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define TOKENIZER_LIMIT (256u << 20)             /* bytes */

struct export {
    const struct tn_hf_export *how;
    struct tn_arena *arena;
    const char *temp;                            /* the folder on its way */
    struct tn_checkpoint *checkpoint;
    const struct hf_family *family;
    struct tn_config *config;
    struct hf_tensors have, give;                /* of the model; of the family's class, which may have more biases */
    uint32_t *shard;                             /* [give.n]: in which file */
    json_t *map;
    int64_t end;                                 /* the token that ends a text, or -1 */
    void *whole, *low, *turned;                  /* room for the largest tensor */
    struct tn_hf_report *report;
};

static uint64_t width(const struct export *x)
{
    return x->how->dtype == TN_F32 ? 4 : 2;
}

static uint64_t bytes_there(const struct export *x, uint32_t i)
{
    return x->give.tensor[i].bytes / sizeof(float) * width(x);
}

/* In order, as many as fit; one that does not fit alone has a file of its own. */
static void cut(struct export *x)
{
    uint64_t at = 0;
    uint32_t file = 0;

    x->shard = tn_alloc_array(x->arena, x->give.n, sizeof *x->shard);
    for (uint32_t i = 0; i < x->give.n; i++) {
        if (at && at + bytes_there(x, i) > x->how->shard)
            file++, at = 0;
        at += bytes_there(x, i);
        x->shard[i] = file;
        x->report->bytes += bytes_there(x, i);
    }
    x->report->files = file + 1;
}

static const char *file_name(const struct export *x, uint32_t file)
{
    return x->report->files == 1 ? "model.safetensors"
                                 : tn_text(x->arena, "model-%05u-of-%05u.safetensors", file + 1, x->report->files);
}

static int is_turned(const struct export *x, const struct tn_session_tensor *t)
{
    return t->rank == 2 && hf_ends_with(t->name, x->family->turned);
}

/* --- weights */

/* What the class has and the model lacks is a bias of zeros. */
static tn_status fill(struct export *x, const struct tn_session_tensor *t)
{
    const struct tn_session_tensor *own = hf_tensors_find(&x->have, t->name);

    if (own)
        return tn_checkpoint_whole(x->checkpoint, own, x->whole);
    memset(x->whole, 0, (size_t)t->bytes);
    return TN_OK;
}

static tn_status write_one(struct export *x, uint32_t i, struct tn_safetensors_writer *w)
{
    const struct tn_session_tensor *t = &x->give.tensor[i];
    uint64_t n = t->bytes / sizeof(float);
    const void *data = x->whole;
    tn_status status = fill(x, t);

    if (status < 0)
        return status;
    if (x->how->dtype != TN_F32)
        hf_convert(TN_F32, x->whole, x->how->dtype, x->low, n), data = x->low;
    if (is_turned(x, t))
        hf_turn(data, (uint64_t)t->shape[0], (uint64_t)t->shape[1], width(x), x->turned), data = x->turned;
    return tn_safetensors_write(w, data, n * width(x));
}

static tn_status declare(struct export *x, uint32_t file, struct tn_safetensors_writer *w)
{
    tn_status status = tn_safetensors_add_meta(w, "format", "pt");

    for (uint32_t i = 0; i < x->give.n && status == TN_OK; i++) {
        const struct tn_session_tensor *t = &x->give.tensor[i];
        int turned = is_turned(x, t);
        int64_t shape[TN_FILE_RANK];

        if (x->shard[i] != file)
            continue;
        for (uint32_t d = 0; d < t->rank; d++)
            shape[d] = t->shape[turned ? t->rank - 1 - d : d];
        status = tn_safetensors_declare(w, t->name, x->how->dtype, t->rank, shape);
        json_object_set_new(x->map, t->name, json_string(file_name(x, file)));
    }
    return status < 0 ? status : tn_safetensors_begin(w);
}

static tn_status write_file(struct export *x, uint32_t file)
{
    struct tn_safetensors_writer *w;
    tn_status status = tn_safetensors_create(tn_path_join(x->arena, x->temp, file_name(x, file)), &w);

    if (status < 0)
        return status;
    status = declare(x, file, w);
    for (uint32_t i = 0; i < x->give.n && status == TN_OK; i++)
        if (x->shard[i] == file)
            status = write_one(x, i, w);
    if (status == TN_OK)
        return tn_safetensors_commit(w, NULL, NULL);
    tn_safetensors_abort(w);
    return status;
}

static tn_status room_for_largest(struct export *x)
{
    uint64_t most = 1;

    for (uint32_t i = 0; i < x->give.n; i++)
        most = x->give.tensor[i].bytes > most ? x->give.tensor[i].bytes : most;
    x->whole = malloc((size_t)most);
    x->low = malloc((size_t)most);
    x->turned = malloc((size_t)most);
    return x->whole && x->low && x->turned ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for three tensors of %" PRIu64 " bytes", most);
}

static tn_status write_weights(struct export *x)
{
    tn_status status = room_for_largest(x);

    cut(x);
    x->map = json_object();
    for (uint32_t file = 0; file < x->report->files && status == TN_OK; file++)
        status = write_file(x, file);
    return status;
}

/* --- what lies beside them */

static tn_status put(const struct export *x, const char *name, const char *text)
{
    return text ? tn_file_write(tn_path_join(x->arena, x->temp, name), text, strlen(text)) : tn_error(TN_ERR_MEMORY, "no memory for %s", name);
}

static tn_status write_index(const struct export *x)
{
    json_t *root;
    char *text;
    tn_status status;

    if (x->report->files == 1)
        return TN_OK;
    root = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)x->report->bytes, "weight_map", x->map);
    text = root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    status = put(x, "model.safetensors.index.json", text);
    json_decref(root);
    free(text);
    return status;
}

static tn_status write_config(const struct export *x)
{
    static const char *const name[] = {[TN_F32] = "float32", [TN_BF16] = "bfloat16", [TN_F16] = "float16"};
    char *text = hf_config_text(x->family, x->config, name[x->how->dtype], x->end);
    tn_status status = put(x, "config.json", text);

    free(text);
    return status;
}

static tn_status copy_tokenizer(struct export *x)
{
    const struct tn_saved *state = tn_checkpoint_state(x->checkpoint);
    const char *path = tn_path_join(x->arena, state->dir, "tokenizer.json");
    struct tn_tokenizer *t;
    char *text;
    size_t bytes;
    tn_status status;

    if (!tn_saved_find(state, "tokenizer.json"))
        return TN_OK;
    status = tn_tokenizer_load(path, &t);
    if (status == TN_OK)
        x->end = tn_tokenizer_end_of_text(t);
    tn_tokenizer_free(t);
    if (status == TN_OK)
        status = tn_file_read(path, TOKENIZER_LIMIT, &text, &bytes);
    if (status < 0)
        return status;
    status = tn_file_write(tn_path_join(x->arena, x->temp, "tokenizer.json"), text, bytes);
    free(text);
    x->report->tokenizer = 1;
    return status;
}

/* --- all of it */

/* Only the model's keys: what else a checkpoint says has no say here. */
static tn_status configure(struct export *x)
{
    const char *key;
    json_t *value;
    tn_status status = tn_config_open(NULL, 0, NULL, &x->config);

    if (status < 0)
        return status;
    json_object_foreach((json_t *)tn_checkpoint_state(x->checkpoint)->config, key, value)
        if (json_is_string(value) && !strncmp(key, "model.", 6))
            tn_config_case(x->config, key, json_string_value(value));
    tn_model_reach(x->config);
    if ((status = tn_config_check(x->config)) < 0)
        return status;
    x->family = hf_family_find(tn_config_text(x->config, "model.arch"));
    if (!x->family)
        return tn_error(TN_ERR_INPUT, "%s is a checkpoint of a model of model.arch = %s; these can be exported: %s", x->how->checkpoint,
                        tn_config_text(x->config, "model.arch"), hf_family_names());
    status = hf_tensors_of(x->config, x->family, 0, &x->have);
    return status < 0 ? status : hf_tensors_of(x->config, x->family, 1, &x->give);
}

static tn_status write_folder(struct export *x)
{
    tn_status status = tn_path_remove(x->temp);

    if (status == TN_OK)
        status = tn_folder_make(x->temp);
    if (status == TN_OK)
        status = write_weights(x);
    if (status == TN_OK)
        status = write_index(x);
    if (status == TN_OK)
        status = copy_tokenizer(x);
    if (status == TN_OK)
        status = write_config(x);
    if (status == TN_OK)
        status = tn_folder_sync(x->temp);
    return status < 0 ? status : tn_file_rename(x->temp, x->how->dir);
}

static tn_status export(struct export *x)
{
    tn_status status = tn_path_exists(x->how->dir)
                           ? tn_error(TN_ERR_INPUT, "%s is there already: give a name that is not", x->how->dir)
                           : tn_checkpoint_open(x->how->checkpoint, &x->checkpoint);

    if (status == TN_OK)
        status = configure(x);
    if (status == TN_OK)
        status = tn_checkpoint_match_tensors(x->checkpoint, x->have.tensor, x->have.n);
    return status < 0 ? status : write_folder(x);
}

static void release(struct export *x)
{
    json_decref(x->map);
    free(x->whole);
    free(x->low);
    free(x->turned);
    if (x->have.graph)
        hf_tensors_free(&x->have);
    if (x->give.graph)
        hf_tensors_free(&x->give);
    tn_config_free(x->config);
    tn_checkpoint_close(x->checkpoint);
    tn_arena_free(x->arena);
}

tn_status tn_hf_export(const struct tn_hf_export *e, struct tn_hf_report *out)
{
    struct export x = {.how = e, .end = -1, .arena = tn_arena_new(), .report = out};
    size_t n = strlen(e->dir);
    tn_status status;
    char *said;

    while (n > 1 && e->dir[n - 1] == '/')
        n--;
    *out = (struct tn_hf_report){.family = ""};
    x.temp = tn_text(x.arena, "%.*s.tmp-%ld", (int)n, e->dir, (long)getpid());
    status = export(&x);
    said = status < 0 ? strdup(tn_error_text()) : NULL;
    if (status < 0)
        tn_path_remove(x.temp);
    if (said)
        tn_error_long(status, said);
    free(said);
    if (status == TN_OK) {
        out->family = x.family->type;
        out->parameters = x.have.parameters;
        out->tensors = x.give.n;
        if (x.give.n > x.have.n)
            snprintf(out->note, sizeof out->note, "%u biases that this model does without are zeros there", x.give.n - x.have.n);
    }
    release(&x);
    return status;
}
