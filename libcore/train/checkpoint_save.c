/* checkpoint_save.c - the session's tensors become files; see checkpoint.h. */
#include "train/checkpoint.h"

#include "base/file.h"
#include "ckpt/safetensors.h"
#include "ckpt/save.h"

#include <stdlib.h>

#define MODEL "model-00001-of-00001.safetensors"
#define OPTIMIZER "optimizer-00001-of-00001.safetensors"
#define INDEX "model.safetensors.index.json"
#define TOKENIZER_LIMIT (256u << 20)             /* bytes of tokenizer.json */

uint64_t tn_checkpoint_bytes(const struct tn_session *s)
{
    uint64_t bytes = 64u << 10;                  /* headers, state.json */

    for (uint32_t i = 0; i < tn_session_tensors(s); i++)
        bytes += tn_session_tensor(s, i)->bytes + 256;
    return bytes;
}

/* Room for the largest tensor. */
static tn_status buffer_new(const struct tn_session *s, void **out)
{
    uint64_t most = 1;

    for (uint32_t i = 0; i < tn_session_tensors(s); i++)
        if (tn_session_tensor(s, i)->bytes > most)
            most = tn_session_tensor(s, i)->bytes;
    *out = malloc((size_t)most);
    return *out ? TN_OK
                : tn_error(TN_ERR_MEMORY, "no memory for a tensor of %llu bytes on its way to the disk",
                           (unsigned long long)most);
}

static tn_status declare(const struct tn_session *s, int slots, struct tn_safetensors_writer *w)
{
    tn_status status = tn_safetensors_add_meta(w, "format", "pt");

    for (uint32_t i = 0; i < tn_session_tensors(s) && status == TN_OK; i++) {
        const struct tn_session_tensor *t = tn_session_tensor(s, i);
        if (!t->is_state == !slots)
            status = tn_safetensors_declare(w, t->name, t->dtype, t->rank, t->shape);
    }
    return status < 0 ? status : tn_safetensors_begin(w);
}

/* All ranks gather each tensor, in one order and to the end, whatever happens to the file: a rank that stopped early
 * would leave the others waiting. w NULL: there is no file here, or no more. */
static tn_status write_data(struct tn_session *s, int slots, void *buffer, struct tn_safetensors_writer *w)
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < tn_session_tensors(s); i++) {
        const struct tn_session_tensor *t = tn_session_tensor(s, i);
        if (!t->is_state != !slots)
            continue;
        tn_status got = tn_session_get(s, i, buffer);
        if (got < 0)
            return got;
        if (w && status == TN_OK)
            status = tn_safetensors_write(w, buffer, t->bytes);
    }
    return status;
}

/* Of the parameters, or of the slots, one file. */
static tn_status save_tensors(struct tn_session *s, int slots, void *buffer, struct tn_save *save)
{
    const char *name = slots ? OPTIMIZER : MODEL;
    struct tn_safetensors_writer *w = NULL;
    uint64_t bytes, hash;
    tn_status status = tn_safetensors_create(tn_save_path(save, name), &w), written;

    if (status == TN_OK)
        status = declare(s, slots, w);
    written = write_data(s, slots, buffer, status < 0 ? NULL : w);
    if (status < 0 || written < 0) {
        tn_safetensors_abort(w);
        return status < 0 ? status : written;
    }
    status = tn_safetensors_commit(w, &bytes, &hash);
    if (status == TN_OK)
        tn_save_add(save, name, bytes, hash);
    return status;
}

static tn_status save_index(const struct tn_session *s, struct tn_save *save)
{
    json_t *map = json_object();
    uint64_t total = 0;

    for (uint32_t i = 0; i < tn_session_tensors(s); i++) {
        const struct tn_session_tensor *t = tn_session_tensor(s, i);
        if (t->is_state)
            continue;
        json_object_set_new(map, t->name, json_string(MODEL));
        total += t->bytes;
    }
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    tn_status status =
        text ? tn_save_put(save, INDEX, text, strlen(text)) : tn_error(TN_ERR_MEMORY, "no memory for " INDEX);
    free(text);
    return status;
}

static tn_status save_tokenizer(const struct tn_config *c, const struct tn_dataset *data,
                                struct tn_save *save)
{
    struct tn_arena *a = tn_arena_new();
    char *text = NULL;
    size_t bytes;
    tn_status status = TN_OK;

    if (data->tokenizer_hash)
        status = tn_file_read(tn_path_join(a, tn_config_text(c, "data.dir"), "tokenizer.json"),
                              TOKENIZER_LIMIT, &text, &bytes);
    if (status == TN_OK && text)
        status = tn_save_put(save, "tokenizer.json", text, bytes);
    free(text);
    tn_arena_free(a);
    return status;
}

/* Both files always, for the sake of the other ranks. */
static tn_status save_all(struct tn_session *s, const struct tn_config *c, const struct tn_dataset *data, void *buffer,
                          struct tn_save *save)
{
    tn_status model = save_tensors(s, 0, buffer, save), optimizer = save_tensors(s, 1, buffer, save), status;

    if (model < 0 || optimizer < 0)
        return model < 0 ? model : optimizer;
    status = save_index(s, save);
    return status < 0 ? status : save_tokenizer(c, data, save);
}

/* A rank's part in a save that another rank writes, or that cannot be written. */
static tn_status give(struct tn_session *s, void *buffer)
{
    tn_status status = write_data(s, 0, buffer, NULL);

    return status < 0 ? status : write_data(s, 1, buffer, NULL);
}

static tn_status write_checkpoint(struct tn_session *s, const struct tn_config *c, const struct tn_dataset *data, const char *run,
                                  int64_t step)
{
    struct tn_save *save = NULL;
    void *buffer;
    tn_status status = buffer_new(s, &buffer);

    if (status == TN_OK && (status = tn_save_begin(run, step, &save)) < 0)
        give(s, buffer);
    if (save && (status = save_all(s, c, data, buffer, save)) < 0)
        tn_save_abort(save);
    free(buffer);
    if (status < 0)
        return status;
    json_t *config = tn_config_json(c);
    struct tn_saved state = {.seed = (uint64_t)tn_config_int(c, "train.seed"),
                             .config = config,
                             .data = data->fingerprint,
                             .tokenizer = data->tokenizer_hash};
    if (!tn_session_scale_get(s, &state.loss_scale, &state.loss_scale_good))
        state.loss_scale = 0;
    status = tn_save_commit(save, &state);
    json_decref(config);
    return status;
}

tn_status tn_checkpoint_save(struct tn_session *s, const struct tn_config *c, const struct tn_dataset *data,
                             const char *run, int64_t step)
{
    int lead = tn_session_shape(s)->rank == 0;
    tn_status status = lead ? write_checkpoint(s, c, data, run, step) : give(s, NULL);

    if (tn_session_any(s, status < 0) && status >= 0)
        return tn_error(TN_ERR_IO, "another rank could not do its part of it");
    return status;
}
