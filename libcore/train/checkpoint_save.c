/* checkpoint_save.c - the session's tensors become files; see checkpoint.h.
 *
 * All ranks save together, in three parts: rank 0 makes the folder; tensors are written, by rank 0 alone or
 * by all; rank 0 publishes. After each part the ranks settle what came of it, so what is wrong on one is
 * known to all, nothing is published that is not whole, and a rank that dies in between leaves a hidden
 * folder and no checkpoint. */
#include "train/checkpoint_own.h"

#include "base/file.h"
#include "base/status.h"
#include "ckpt/safetensors.h"
#include "ckpt/save.h"
#include "world/world.h"

#include <stdlib.h>

#define INDEX "model.safetensors.index.json"
#define TOKENIZER_LIMIT (256u << 20) /* bytes of tokenizer.json */

uint64_t tn_checkpoint_bytes(const struct tn_session *s)
{
    uint64_t bytes = 64u << 10; /* headers, state.json */

    for (uint32_t i = 0; i < tn_session_tensors(s); i++)
        bytes += tn_session_tensor(s, i)->bytes + 256;
    return bytes;
}

/* --- one file each of parameters and slots, by rank 0 */

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

/* All ranks gather each tensor, in one order and to the end, whatever happens to the file: a rank that
 * stopped early would leave the others waiting, so one that cannot go on ends the run. w NULL: there is no
 * file here, or no more. */
static tn_status gather(struct saving *x, int slots, struct tn_safetensors_writer *w)
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < tn_session_tensors(x->session); i++) {
        const struct tn_session_tensor *t = tn_session_tensor(x->session, i);
        if (!t->is_state != !slots)
            continue;
        tn_status got = tn_session_get(x->session, i, x->buffer);
        if (got < 0) {
            tn_world_abandon(tn_session_world(x->session), tn_error_text());
            return got;
        }
        if (w && status == TN_OK)
            status = tn_safetensors_write(w, x->buffer, t->bytes);
    }
    return status;
}

static tn_status gather_file(struct saving *x, int slots)
{
    char name[SAVING_NAME];
    struct tn_safetensors_writer *w = NULL;
    uint64_t bytes, hash;
    tn_status status = TN_OK, written;

    saving_name(slots, 1, 1, name);
    if (x->save && (status = tn_safetensors_create(tn_save_path(x->save, name), &w)) == TN_OK)
        status = declare(x->session, slots, w);
    written = gather(x, slots, status < 0 ? NULL : w);
    if (!x->save || status < 0 || written < 0) {
        tn_safetensors_abort(w);
        return status < 0 ? status : written;
    }
    status = tn_safetensors_commit(w, &bytes, &hash);
    if (status == TN_OK)
        tn_save_add(x->save, name, bytes, hash);
    return status;
}

/* Both always, for the sake of the other ranks. */
static tn_status gather_files(struct saving *x)
{
    tn_status model = gather_file(x, 0),
              optimizer = model < 0 && tn_world_has_failed(tn_session_world(x->session)) ? model : TN_OK;

    if (optimizer == TN_OK)
        optimizer = gather_file(x, 1);
    return model < 0 ? model : optimizer;
}

/* --- what rank 0 writes of itself */

/* For other programs, which know whole tensors only: no index where one is in parts. */
static tn_status save_index(struct saving *x)
{
    const struct tn_session *s = x->session;
    json_t *map = json_object();
    uint64_t total = 0;
    int whole = 1;

    for (uint32_t i = 0; i < tn_session_tensors(s); i++) {
        const struct tn_session_tensor *t = tn_session_tensor(s, i);
        char name[SAVING_NAME];

        if (t->is_state)
            continue;
        if (x->together)
            whole &= saving_home(x, i, name);
        else
            saving_name(0, 1, 1, name);
        json_object_set_new(map, t->name, json_string(name));
        total += t->bytes;
    }
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    tn_status status = !text   ? tn_error(TN_ERR_MEMORY, "no memory for " INDEX)
                       : whole ? tn_save_put(x->save, INDEX, text, strlen(text))
                               : TN_OK;
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

static tn_status publish(struct saving *x, const struct tn_config *c, const struct tn_dataset *data)
{
    tn_status status = save_index(x);

    if (status == TN_OK)
        status = save_tokenizer(c, data, x->save);
    if (status < 0)
        return status;
    json_t *config = tn_config_json(c);
    struct tn_saved state = {.seed = (uint64_t)tn_config_int(c, "train.seed"),
                             .config = config,
                             .data = data->fingerprint,
                             .tokenizer = data->tokenizer_hash};
    if (!tn_session_scale_get(x->session, &state.loss_scale, &state.loss_scale_good))
        state.loss_scale = 0;
    status = tn_save_commit(x->save, &state);
    x->save = NULL;
    json_decref(config);
    return status;
}

/* --- all of it */

/* Room for the largest tensor: whole, or what this rank holds. */
static tn_status buffer_new(struct saving *x)
{
    uint64_t most = 1;

    for (uint32_t i = 0; i < tn_session_tensors(x->session); i++) {
        const struct tn_session_tensor *t = tn_session_tensor(x->session, i);
        uint64_t bytes = x->together ? t->held : tn_session_shape(x->session)->rank ? 0 : t->bytes;
        most = bytes > most ? bytes : most;
    }
    x->buffer = malloc((size_t)most);
    return x->buffer ? TN_OK
                     : tn_error(TN_ERR_MEMORY, "no memory for a tensor of %llu bytes on its way to the disk",
                                (unsigned long long)most);
}

static tn_status save(struct saving *x, const struct tn_config *c, const struct tn_dataset *data,
                      int64_t step)
{
    struct tn_world *w = tn_session_world(x->session);
    int lead = tn_session_shape(x->session)->rank == 0;
    tn_status status;

    if (tn_world_has_failed(w))
        return tn_world_failed(w);
    if ((status = buffer_new(x)) == TN_OK && lead)
        status = tn_save_begin(x->run, step, &x->save);
    if ((status = tn_world_settle(w, status)) < 0)
        return status;
    status = x->together ? saving_parts(x) : gather_files(x);
    if ((status = tn_world_settle(w, status)) < 0)
        return status;
    return tn_world_settle(w, lead ? publish(x, c, data) : TN_OK);
}

tn_status tn_checkpoint_save(struct tn_session *s, const struct tn_config *c, const struct tn_dataset *data,
                             const char *run, int64_t step, int together)
{
    struct saving x = {.session = s, .run = run, .together = together, .arena = tn_arena_new()};
    tn_status status = save(&x, c, data, step);
    char *said = status < 0 ? strdup(tn_error_text()) : NULL;
    int hushed = tn_error_is_hushed();

    tn_save_abort(x.save);
    free(x.buffer);
    tn_arena_free(x.arena);
    if (said)
        tn_error_long(status, said);
    if (hushed)
        tn_error_hush();
    free(said);
    return status;
}
