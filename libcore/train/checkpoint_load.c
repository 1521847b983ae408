/* checkpoint_load.c - files become the session's tensors; see checkpoint.h.
 *
 * The tensors of a model may be in any number of files, each whole in one of them, or in parts over several;
 * which one has what is asked of the files, not of the index. */
#include "train/checkpoint.h"

#include "base/file.h"
#include "base/status.h"
#include "ckpt/safetensors.h"
#include "train/part.h"
#include "train/whole.h"

#include <inttypes.h>
#include <stdlib.h>

struct tn_checkpoint {
    struct tn_saved state;
    struct tn_safetensors **file; /* [files], owned */
    const char **name;            /* of the files; borrowed from state */
    uint32_t files;
};

static int has_prefix(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

static int is_tensors(const char *name)
{
    const char *end = strstr(name, ".safetensors");

    return end && !strcmp(end, ".safetensors") &&
           (has_prefix(name, "model-") || has_prefix(name, "optimizer-"));
}

tn_status tn_checkpoint_open(const char *dir, struct tn_checkpoint **out)
{
    struct tn_checkpoint *k = calloc(1, sizeof *k);
    tn_status status =
        k ? tn_saved_read(dir, &k->state) : tn_error(TN_ERR_MEMORY, "no memory to open %s", dir);

    *out = k;
    if (status < 0) {
        tn_checkpoint_close(k);
        *out = NULL;
    }
    return status;
}

void tn_checkpoint_close(struct tn_checkpoint *k)
{
    if (!k)
        return;
    for (uint32_t i = 0; i < k->files; i++)
        tn_safetensors_close(k->file[i]);
    free(k->file);
    free(k->name);
    tn_saved_free(&k->state);
    free(k);
}

const struct tn_saved *tn_checkpoint_state(const struct tn_checkpoint *k)
{
    return &k->state;
}

/* --- the data */
tn_status tn_checkpoint_match_data(const struct tn_checkpoint *k, const struct tn_dataset *data)
{
    size_t train = strcspn(data->fingerprint, " "); /* "train=HASH val=HASH" */
    const char *before = k->state.data;              /* "": an imported model, of data that nobody knows */

    if (k->state.tokenizer && data->tokenizer_hash && k->state.tokenizer != data->tokenizer_hash)
        return tn_error(
            TN_ERR_INPUT,
            "%s was trained with another tokenizer than that of the data here (checksum %016" PRIx64
            ", here %016" PRIx64 "): set data.dir to its data, or another checkpoint.dir to start anew",
            k->state.dir, k->state.tokenizer, data->tokenizer_hash);
    if (*before && strncmp(before, data->fingerprint, train + 1))
        return tn_error(TN_ERR_INPUT,
                        "%s was trained on other data (%s, here %s): set data.dir to those, or another "
                        "checkpoint.dir to start anew",
                        k->state.dir, before, data->fingerprint);
    return TN_OK;
}

/* --- the tensors */
static tn_status open_files(struct tn_checkpoint *k)
{
    struct tn_arena *a = tn_arena_new();
    tn_status status = TN_OK;

    k->file = calloc((size_t)k->state.count + 1, sizeof *k->file);
    k->name = calloc((size_t)k->state.count + 1, sizeof *k->name);
    if (!k->file || !k->name)
        status = tn_error(TN_ERR_MEMORY, "no memory to open %s", k->state.dir);
    for (uint64_t i = 0; i < k->state.count && status == TN_OK; i++) {
        if (!is_tensors(k->state.file[i].name))
            continue;
        k->name[k->files] = k->state.file[i].name;
        status =
            tn_safetensors_open(tn_path_join(a, k->state.dir, k->state.file[i].name), &k->file[k->files]);
        k->files += status == TN_OK;
    }
    tn_arena_free(a);
    return status;
}

static const struct tn_tensor *find(const struct tn_checkpoint *k, const struct tn_session_tensor *t)
{
    const struct tn_tensor *found = NULL;

    for (uint32_t f = 0; f < k->files && !found; f++)
        found = tn_safetensors_find(k->file[f], t->name);
    return found;
}

/* "[65, 128]" */
static const char *shape_text(uint32_t rank, const int64_t *shape, char *out, size_t bytes)
{
    size_t at = (size_t)snprintf(out, bytes, "[");

    for (uint32_t d = 0; d < rank && at < bytes; d++)
        at += (size_t)snprintf(out + at, bytes - at, "%s%" PRId64, d ? ", " : "", shape[d]);
    if (at < bytes)
        snprintf(out + at, bytes - at, "]");
    return out;
}

/* --- parts */

/* NULL: whole, or not there. */
static const char *part_text(const struct tn_checkpoint *k, uint32_t f, const struct tn_session_tensor *t)
{
    struct tn_arena *a = tn_arena_new();
    const char *text = tn_safetensors_meta(k->file[f], tn_text(a, TN_CHECKPOINT_PART "%s", t->name));

    tn_arena_free(a);
    return text;
}

static int is_in_parts(const struct tn_checkpoint *k, const struct tn_session_tensor *t)
{
    for (uint32_t f = 0; f < k->files; f++)
        if (part_text(k, f, t) && tn_safetensors_find(k->file[f], t->name))
            return 1;
    return 0;
}

/* Each part to its place in whole. map: one byte for each element of the tensor becomes 1 where a part gives
 * it; NULL: that is known. whole may be NULL too. *count: elements of all parts. */
static tn_status place_parts(const struct tn_checkpoint *k, const struct tn_session_tensor *t,
                             struct tn_arena *a, void *whole, char *map, int64_t *count)
{
    tn_status status = TN_OK;

    *count = 0;
    for (uint32_t f = 0; f < k->files && status == TN_OK; f++) {
        const struct tn_tensor *part = tn_safetensors_find(k->file[f], t->name);
        const char *text = part ? part_text(k, f, t) : NULL;
        struct tn_local l;

        if (!part)
            continue;
        if (!text || part->rank != 1 || part->dtype != t->dtype)
            return tn_error(TN_ERR_INPUT, "%s/%s: %s is in parts, and here it is no part of %s", k->state.dir,
                            k->name[f], t->name, tn_file_dtype_name(t->dtype));
        if ((status = tn_part_read(text, t->value, t->rank, t->shape, part->shape[0], a, &l)) < 0)
            return tn_error(TN_ERR_INPUT, "%s/%s: the part of %s: %s", k->state.dir, k->name[f], t->name,
                            tn_error_text());
        *count += l.count;
        if (whole)
            tn_whole_place(t->value, tn_dtype_bytes(t->dtype), &l, part->data, whole);
        if (map) {
            void *ones = memset(tn_alloc(a, (size_t)l.count), 1, (size_t)l.count);
            tn_whole_place(t->value, 1, &l, ones, map);
        }
    }
    return status;
}

/* Together the parts are the tensor: no element is missing, none is there twice. */
static tn_status match_parts(const struct tn_checkpoint *k, const struct tn_session_tensor *t)
{
    struct tn_arena *a = tn_arena_new();
    int64_t all = tn_value_count(t->value), count, given = 0;
    char *map = calloc(1, (size_t)all);
    tn_status status = map ? place_parts(k, t, a, NULL, map, &count)
                           : tn_error(TN_ERR_MEMORY, "no memory to look at the parts of %s", t->name);

    for (int64_t i = 0; i < all && status == TN_OK; i++)
        given += map[i];
    if (status == TN_OK && (given != all || count != all))
        status = tn_error(TN_ERR_INPUT, "%s: the parts of %s give %" PRId64 " of its %" PRId64 " elements%s",
                          k->state.dir, t->name, given, all, count > given ? ", and some of them twice" : "");
    free(map);
    tn_arena_free(a);
    return status;
}

static tn_status load_parts(const struct tn_checkpoint *k, struct tn_session *s, uint32_t i)
{
    const struct tn_session_tensor *t = tn_session_tensor(s, i);
    struct tn_arena *a = tn_arena_new();
    void *whole = malloc((size_t)t->bytes);
    int64_t count;
    tn_status status =
        whole ? place_parts(k, t, a, whole, NULL, &count)
              : tn_error(TN_ERR_MEMORY, "no memory for %s (%" PRIu64 " bytes)", t->name, t->bytes);

    if (status == TN_OK)
        status = tn_session_set(s, i, whole);
    free(whole);
    tn_arena_free(a);
    return status;
}

/* --- matching and loading */

static tn_status match_one(const struct tn_checkpoint *k, const struct tn_session_tensor *t)
{
    const struct tn_tensor *found = find(k, t);
    char there[200], here[200];

    if (found && is_in_parts(k, t))
        return match_parts(k, t);
    if (!found)
        return tn_error(TN_ERR_INPUT, "%s has no %s %s: it is a checkpoint of another %s", k->state.dir,
                        t->is_state ? "optimizer state" : "tensor", t->name,
                        t->is_state ? "optimizer" : "model");
    if (found->dtype != t->dtype)
        return tn_error(TN_ERR_INPUT, "%s: %s is %s, it must be %s", k->state.dir, t->name,
                        tn_file_dtype_name(found->dtype), tn_file_dtype_name(t->dtype));
    if (found->rank != t->rank || memcmp(found->shape, t->shape, t->rank * sizeof *t->shape) ||
        found->bytes != t->bytes)
        return tn_error(TN_ERR_INPUT, "%s is of another model: %s is %s there, %s here", k->state.dir,
                        t->name, shape_text(found->rank, found->shape, there, sizeof there),
                        shape_text(t->rank, t->shape, here, sizeof here));
    return TN_OK;
}

/* Tensors of the model's files that the session lacks: a deeper model, a bias that is off here. */
static tn_status match_rest(const struct tn_checkpoint *k, const struct tn_session *s, int slots)
{
    for (uint32_t f = 0; f < k->files; f++)
        for (uint64_t i = 0;
             (slots || has_prefix(k->name[f], "model-")) && i < tn_safetensors_count(k->file[f]); i++) {
            const char *name = tn_safetensors_at(k->file[f], i)->name;
            uint32_t t = 0;
            while (t < tn_session_tensors(s) && strcmp(tn_session_tensor(s, t)->name, name))
                t++;
            if (t == tn_session_tensors(s))
                return tn_error(
                    TN_ERR_INPUT,
                    "%s has a tensor %s that this configuration has no use for: it is a checkpoint of "
                    "another %s",
                    k->state.dir, name, has_prefix(k->name[f], "model-") ? "model" : "optimizer");
        }
    return TN_OK;
}

/* The same for a list of parameters that no session has. */
static tn_status match_names(const struct tn_checkpoint *k, const struct tn_session_tensor *t, uint32_t n)
{
    for (uint32_t f = 0; f < k->files; f++)
        for (uint64_t i = 0; has_prefix(k->name[f], "model-") && i < tn_safetensors_count(k->file[f]); i++) {
            const char *name = tn_safetensors_at(k->file[f], i)->name;
            uint32_t j = 0;

            while (j < n && strcmp(t[j].name, name))
                j++;
            if (j == n)
                return tn_error(TN_ERR_INPUT, "%s has a tensor %s that its configuration has no use for", k->state.dir, name);
        }
    return TN_OK;
}

tn_status tn_checkpoint_match_tensors(struct tn_checkpoint *k, const struct tn_session_tensor *t, uint32_t n)
{
    tn_status status = k->files ? TN_OK : open_files(k);

    for (uint32_t i = 0; i < n && status == TN_OK; i++)
        status = match_one(k, &t[i]);
    if (status == TN_OK)
        status = match_names(k, t, n);
    return status < 0 ? status : tn_saved_verify(&k->state);
}

tn_status tn_checkpoint_whole(const struct tn_checkpoint *k, const struct tn_session_tensor *t, void *whole)
{
    struct tn_arena *a;
    int64_t count;
    tn_status status;

    if (!is_in_parts(k, t)) {
        memcpy(whole, find(k, t)->data, (size_t)t->bytes);
        return TN_OK;
    }
    a = tn_arena_new();
    status = place_parts(k, t, a, whole, NULL, &count);
    tn_arena_free(a);
    return status;
}

int tn_checkpoint_has_slots(const struct tn_checkpoint *k)
{
    for (uint64_t i = 0; i < k->state.count; i++)
        if (is_tensors(k->state.file[i].name) && has_prefix(k->state.file[i].name, "optimizer-"))
            return 1;
    return 0;
}

tn_status tn_checkpoint_match(struct tn_checkpoint *k, const struct tn_session *s, int slots)
{
    tn_status status = k->files ? TN_OK : open_files(k);

    for (uint32_t i = 0; i < tn_session_tensors(s) && status == TN_OK; i++)
        if (slots || !tn_session_tensor(s, i)->is_state)
            status = match_one(k, tn_session_tensor(s, i));
    if (status == TN_OK)
        status = match_rest(k, s, slots);
    return status < 0 ? status : tn_saved_verify(&k->state);
}

tn_status tn_checkpoint_load(struct tn_checkpoint *k, struct tn_session *s, int slots)
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < tn_session_tensors(s) && status == TN_OK; i++) {
        const struct tn_session_tensor *t = tn_session_tensor(s, i);
        if (slots || !t->is_state)
            status = is_in_parts(k, t) ? load_parts(k, s, i) : tn_session_set(s, i, find(k, t)->data);
    }
    if (status == TN_OK && slots && k->state.loss_scale > 0)
        status = tn_session_scale_set(s, k->state.loss_scale, k->state.loss_scale_good);
    return status;
}
