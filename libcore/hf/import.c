/* import.c - a folder of Hugging Face's becomes a run.
 *
 * First everything is looked at: the configuration, the files, and for each tensor of the model the one that it comes
 * from. Only then the run directory is made, and the checkpoint in it appears whole or not at all. */
#include "hf/hf.h"

#include "base/file.h"
#include "base/status.h"
#include "ckpt/rundir.h"
#include "ckpt/save.h"
#include "data/tokenizer.h"
#include "hf/family.h"
#include "hf/files.h"
#include "hf/numbers.h"
#include "train/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#define MODEL "model-00001-of-00001.safetensors"
#define INDEX "model.safetensors.index.json"
#define NAME 300                                 /* of a tensor; longer ones are nobody's */

struct import {
    const char *dir, *run;
    struct tn_arena *arena;
    const struct hf_family *family;
    struct tn_config *config;
    struct hf_tensors want;
    struct hf_files files;
    const struct tn_tensor **from;               /* [want.n] */
    const struct tn_tensor *head;                /* where the model's is tied: what the files have for it, or NULL */
    struct tn_tokenizer *tokenizer;
    struct tn_hf_report *report;
};

/* --- which tensor is which */

static const char *our_name(const struct hf_family *f, const char *there, char out[NAME])
{
    int has = !strncmp(there, f->prefix, strlen(f->prefix)) || !strcmp(there, f->head);

    snprintf(out, NAME, "%s%s", has ? "" : f->prefix, there);
    return out;
}

static int is_tied(const struct import *m)
{
    return !hf_tensors_find(&m->want, m->family->head);
}

static void shape_text(uint32_t rank, const int64_t *shape, char *out, size_t room)
{
    size_t at = (size_t)snprintf(out, room, "[");

    for (uint32_t d = 0; d < rank && at < room; d++)
        at += (size_t)snprintf(out + at, room - at, "%s%" PRId64, d ? ", " : "", shape[d]);
    if (at < room)
        snprintf(out + at, room - at, "]");
}

static int is_turned(const struct import *m, const struct tn_session_tensor *t)
{
    return t->rank == 2 && hf_ends_with(t->name, m->family->turned);
}

/* How t must look in a file. */
static void check_form(const struct import *m, const struct tn_session_tensor *t, const struct tn_tensor *x, struct hf_list *wrong)
{
    int turned = is_turned(m, t), same = x->rank == t->rank;
    int64_t shape[TN_FILE_RANK] = {0};
    char here[200], there[200];

    for (uint32_t d = 0; d < t->rank; d++)
        shape[d] = t->shape[turned ? t->rank - 1 - d : d];
    for (uint32_t d = 0; d < t->rank && same; d++)
        same = x->shape[d] == shape[d];
    shape_text(x->rank, x->shape, there, sizeof there);
    shape_text(t->rank, shape, here, sizeof here);
    if (!same)
        hf_list_add(wrong, "%s is %s, it must be %s", x->name, there, here);
    else if (!hf_is_number(x->dtype))
        hf_list_add(wrong, "%s is %s; F32, BF16 and F16 are read", x->name, tn_file_dtype_name(x->dtype));
}

static void take(struct import *m, const struct tn_tensor *x, struct hf_list *wrong)
{
    char name[NAME];
    const struct tn_session_tensor *t;

    if (hf_ends_with(x->name, m->family->buffers)) {
        m->report->ignored++;
        return;
    }
    t = hf_tensors_find(&m->want, our_name(m->family, x->name, name));
    if (!t && is_tied(m) && !strcmp(name, m->family->head)) {
        m->head = x;
        return;
    }
    if (!t)
        hf_list_add(wrong, "%.200s is not of this model", x->name);
    else if (m->from[t - m->want.tensor])
        hf_list_add(wrong, "%.200s is there twice, also as %.200s", x->name, m->from[t - m->want.tensor]->name);
    else {
        m->from[t - m->want.tensor] = x;
        check_form(m, t, x, wrong);
    }
}

/* A tied head that is in the files must be the embedding. */
static void check_head(struct import *m, struct hf_list *wrong)
{
    const struct tn_session_tensor *t = hf_tensors_find(&m->want, m->family->embedding);
    const struct tn_tensor *e = m->from[t - m->want.tensor];

    if (!m->head || !e)
        return;
    if (m->head->dtype != e->dtype || m->head->bytes != e->bytes || memcmp(m->head->data, e->data, (size_t)e->bytes))
        hf_list_add(wrong, "%s differs from %s, and config.json ties them; if they are two, tie_word_embeddings must be false", m->head->name, e->name);
    m->report->ignored++;
}

static tn_status match(struct import *m)
{
    struct hf_list wrong = {0};

    m->from = tn_alloc_array(m->arena, m->want.n, sizeof *m->from);
    for (uint32_t f = 0; f < m->files.n; f++)
        for (uint64_t i = 0; i < tn_safetensors_count(m->files.file[f]); i++)
            take(m, tn_safetensors_at(m->files.file[f], i), &wrong);
    for (uint32_t i = 0; i < m->want.n; i++)
        if (!m->from[i])
            hf_list_add(&wrong, "%s is missing", m->want.tensor[i].name);
    check_head(m, &wrong);
    return hf_list_end(&wrong, "%s: the tensors are not those of the %s model that config.json describes:", m->dir, m->family->type);
}

/* --- the tokenizer */

static void note(struct import *m, const char *text)
{
    size_t at = strlen(m->report->note);

    snprintf(m->report->note + at, sizeof m->report->note - at, "%s%s", at ? "; " : "", text);
}

/* tokenizer.json, or the pair of vocab.json and merges.txt of older folders. DIR's own may be of a kind that is not known
 * here: the weights are of use without it. */
static tn_status open_tokenizer(struct import *m, const char *given)
{
    const struct tn_tokenizer_choice pair = {.kind = "bpe", .folder = m->dir};
    const char *path = given ? given : tn_path_join(m->arena, m->dir, "tokenizer.json");
    int64_t vocab = tn_config_int(m->config, "model.vocab_size");
    int apart = !given && !tn_path_exists(path) && tn_path_exists(tn_path_join(m->arena, m->dir, "vocab.json"));
    tn_status status;

    if (!given && !apart && !tn_path_exists(path)) {
        note(m, "there is no tokenizer.json, so no text can be made of it, only numbers of tokens; --tokenizer gives one");
        return TN_OK;
    }
    status = apart ? tn_tokenizer_train(&pair, m->dir, "", 0, 0, &m->tokenizer) : tn_tokenizer_load(path, &m->tokenizer);
    if (status < 0 && given)
        return status;
    if (status < 0) {
        note(m, tn_text(m->arena, "its tokenizer does not come along: %.250s", tn_error_text()));
        tn_error_clear();
        return TN_OK;
    }
    if (tn_tokenizer_vocab_size(m->tokenizer) <= vocab)
        return TN_OK;
    return tn_error(TN_ERR_INPUT, "%s has %" PRId64 " tokens, the model only %" PRId64, path, tn_tokenizer_vocab_size(m->tokenizer), vocab);
}

/* --- writing */

/* As fp32 [out, in]; in room, or where it lies. */
static const void *as_ours(const struct import *m, uint32_t i, void *room, void *second)
{
    const struct tn_session_tensor *t = &m->want.tensor[i];
    const struct tn_tensor *x = m->from[i];
    uint64_t n = t->bytes / sizeof(float);
    int turned = is_turned(m, t);

    if (x->dtype == TN_F32 && !turned)
        return x->data;
    hf_convert(x->dtype, x->data, TN_F32, turned ? second : room, n);
    if (turned)
        hf_turn(second, (uint64_t)x->shape[0], (uint64_t)x->shape[1], sizeof(float), room);
    return room;
}

static tn_status declare(const struct import *m, struct tn_safetensors_writer *w)
{
    tn_status status = tn_safetensors_add_meta(w, "format", "pt");

    for (uint32_t i = 0; i < m->want.n && status == TN_OK; i++)
        status = tn_safetensors_declare(w, m->want.tensor[i].name, TN_F32, m->want.tensor[i].rank, m->want.tensor[i].shape);
    return status < 0 ? status : tn_safetensors_begin(w);
}

static uint64_t largest(const struct hf_tensors *t)
{
    uint64_t most = 1;

    for (uint32_t i = 0; i < t->n; i++)
        most = t->tensor[i].bytes > most ? t->tensor[i].bytes : most;
    return most;
}

static tn_status write_weights(struct import *m, struct tn_save *save)
{
    struct tn_safetensors_writer *w;
    void *room = malloc((size_t)largest(&m->want)), *second = malloc((size_t)largest(&m->want));
    uint64_t bytes, hash;
    tn_status status = tn_safetensors_create(tn_save_path(save, MODEL), &w);

    if (status == TN_OK && (!room || !second))
        status = tn_error(TN_ERR_MEMORY, "no memory for two tensors of %" PRIu64 " bytes", largest(&m->want));
    if (status == TN_OK)
        status = declare(m, w);
    for (uint32_t i = 0; i < m->want.n && status == TN_OK; i++)
        status = tn_safetensors_write(w, as_ours(m, i, room, second), m->want.tensor[i].bytes);
    free(room);
    free(second);
    if (status < 0) {
        tn_safetensors_abort(w);
        return status;
    }
    status = tn_safetensors_commit(w, &bytes, &hash);
    if (status == TN_OK)
        tn_save_add(save, MODEL, bytes, hash);
    m->report->bytes = bytes;
    return status;
}

static tn_status write_index(const struct import *m, struct tn_save *save)
{
    json_t *map = json_object(), *root;
    uint64_t total = 0;
    tn_status status;
    char *text;

    for (uint32_t i = 0; i < m->want.n; i++) {
        json_object_set_new(map, m->want.tensor[i].name, json_string(MODEL));
        total += m->want.tensor[i].bytes;
    }
    root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    text = root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    status = text ? tn_save_put(save, INDEX, text, strlen(text)) : tn_error(TN_ERR_MEMORY, "no memory for " INDEX);
    free(text);
    return status;
}

static tn_status write_tokenizer(const struct import *m, struct tn_save *save, uint64_t *hash)
{
    char *text = m->tokenizer ? tn_tokenizer_text(m->tokenizer) : NULL;
    tn_status status;

    *hash = 0;
    if (!m->tokenizer)
        return TN_OK;
    if (!text)
        return TN_ERR;
    *hash = XXH64(text, strlen(text), 0);
    status = tn_save_put(save, "tokenizer.json", text, strlen(text));
    free(text);
    return status;
}

/* The model's keys that are not at their defaults, or that the file said: what any program that goes on must say too. */
static json_t *model_keys(const struct tn_config *c)
{
    json_t *all = json_object();
    struct tn_config_entry e;

    for (size_t i = 0; tn_config_at(c, i, &e); i++)
        if (!strcmp(e.key->section, "model") && e.value)
            json_object_set_new(all, e.name, json_string(e.value));
    return all;
}

/* An INI file to train on with. */
static tn_status write_ini(const struct import *m)
{
    struct tn_config_entry e;
    const char *text = tn_text(m->arena, "; %s, imported. Fine-tune: tenon train THIS data.dir=... train.steps=...\n[model]\n", m->family->type);

    for (size_t i = 0; tn_config_at(m->config, i, &e); i++)
        if (!strcmp(e.key->section, "model") && e.value && tn_config_is_set(m->config, e.name))
            text = tn_text(m->arena, "%s%s = %s\n", text, e.key->name, e.value);
    text = tn_text(m->arena, "%s\n[checkpoint]\ndir = %s\n", text, m->run);
    return tn_file_write(tn_path_join(m->arena, m->run, "import.ini"), text, strlen(text));
}

static tn_status write_checkpoint(struct import *m)
{
    struct tn_saved state = {.data = ""};
    struct tn_save *save;
    json_t *keys;
    tn_status status = tn_save_begin(m->run, 0, &save);

    if (status < 0)
        return status;
    status = write_weights(m, save);
    if (status == TN_OK)
        status = write_index(m, save);
    if (status == TN_OK)
        status = write_tokenizer(m, save, &state.tokenizer);
    if (status < 0) {
        tn_save_abort(save);
        return status;
    }
    state.config = keys = model_keys(m->config);
    status = tn_save_commit(save, &state);
    json_decref(keys);
    return status;
}

/* --- all of it */

static tn_status write_run(struct import *m)
{
    struct tn_runs *runs;
    int64_t *steps = NULL;
    uint64_t count = 0;
    tn_status status = tn_runs_open(m->run, &runs);

    if (status < 0)
        return status;
    status = tn_runs_list(m->run, &steps, &count);
    if (status == TN_OK && count)
        status = tn_error(TN_ERR_INPUT, "%s has checkpoints already: import into another directory", m->run);
    if (status == TN_OK)
        status = write_ini(m);
    if (status == TN_OK)
        status = write_checkpoint(m);
    free(steps);
    tn_runs_close(runs);
    return status;
}

static tn_status import(struct import *m, const char *tokenizer)
{
    tn_status status = tn_path_is_folder(m->dir) ? TN_OK : tn_error(TN_ERR_INPUT, "there is no directory %s", m->dir);

    if (status == TN_OK)
        status = hf_config_read(m->dir, m->arena, &m->family, &m->config, m->report->note, sizeof m->report->note);
    if (status == TN_OK)
        status = hf_tensors_of(m->config, m->family, 0, &m->want);
    if (status == TN_OK)
        status = hf_files_open(m->dir, &m->files);
    if (status == TN_OK)
        status = match(m);
    if (status == TN_OK)
        status = open_tokenizer(m, tokenizer);
    if (status == TN_OK)
        status = write_run(m);
    return status;
}

tn_status tn_hf_import(const char *dir, const char *run, const char *tokenizer, struct tn_hf_report *out)
{
    struct import m = {.dir = dir, .run = run, .arena = tn_arena_new(), .report = out};
    tn_status status;

    *out = (struct tn_hf_report){.family = ""};
    status = import(&m, tokenizer);
    if (status == TN_OK) {
        out->family = m.family->type;
        out->parameters = m.want.parameters;
        out->tensors = m.want.n;
        out->files = m.files.n;
        out->tokenizer = m.tokenizer != NULL;
    }
    hf_files_close(&m.files);
    if (m.want.graph)
        hf_tensors_free(&m.want);
    tn_tokenizer_free(m.tokenizer);
    tn_config_free(m.config);
    tn_arena_free(m.arena);
    return status;
}
