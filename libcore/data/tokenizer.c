/* tokenizer.c - the table of kinds, and tokenizer.json: {"kind": …, "version": 1, and the kind's own keys}, or what
 * others write for a BPE, which has no kind and a "model". */
#include "data/tokenizer_kind.h"

#include "data/mapping.h"

#include <stdlib.h>

#define VERSION 1

static const struct { const char *name; const struct tn_tokenizer_kind *kind; } kinds[] = {
    {"char", &tn_tokenizer_char},
    {"byte", &tn_tokenizer_byte},
    {"bpe", &tn_tokenizer_bpe},
    {"gpt2", &tn_tokenizer_bpe},                 /* the one that OpenAI published */
};
#define KINDS (sizeof kinds / sizeof kinds[0])

const char *tn_tokenizer_kinds(void)
{
    return "char, byte, bpe, gpt2";
}

static const struct tn_tokenizer_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i].name, name))
            return kinds[i].kind;
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

static tn_status check_choice(const struct tn_tokenizer_choice *c, const struct tn_tokenizer_kind *kind)
{
    if (!kind)
        return tn_error(TN_ERR_CONFIG, "there is no tokenizer '%s'; there are: %s", c->kind, tn_tokenizer_kinds());
    if (c->vocab_size && strcmp(c->kind, "bpe"))
        return tn_error(TN_ERR_CONFIG, "--vocab-size is for --tokenizer bpe; the vocabulary of %s is as large as it is",
                        c->kind);
    if (c->folder && kind != &tn_tokenizer_bpe)
        return tn_error(TN_ERR_CONFIG, "--bpe-dir is for --tokenizer bpe and gpt2, %s needs none", c->kind);
    if (c->end_of_text && kind != &tn_tokenizer_bpe)
        return tn_error(TN_ERR_CONFIG, "--end-of-text is for --tokenizer bpe and gpt2, %s has no such token", c->kind);
    if (c->folder && c->vocab_size)
        return tn_error(TN_ERR_CONFIG, "--bpe-dir has a vocabulary that is ready, --vocab-size trains one: give one of "
                        "them");
    return TN_OK;
}

tn_status tn_tokenizer_train(const struct tn_tokenizer_choice *choice, const char *source, const void *text,
                             uint64_t bytes, uint64_t learn, struct tn_tokenizer **out)
{
    const struct tn_tokenizer_kind *kind = find_kind(choice->kind);
    tn_status status = check_choice(choice, kind);

    *out = NULL;
    if (status < 0 || (status = make(kind, out)) < 0)
        return status;
    return made(kind->train(*out, choice, source, text, kind->any_text ? learn : bytes), out);
}

static tn_status load_root(const char *path, const json_t *root, struct tn_tokenizer **out)
{
    const char *name = json_string_value(json_object_get(root, "kind"));
    const json_t *version = json_object_get(root, "version");
    const struct tn_tokenizer_kind *kind = name ? find_kind(name) : NULL;

    if (!name && json_object_get(root, "model")) {
        tn_status made_one = make(&tn_tokenizer_bpe, out);
        return made_one < 0 ? made_one : made(tn_tokenizer_bpe.load(*out, path, root), out);
    }
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
    if (file.bytes > TN_TOKENIZER_BYTES) {
        tn_mapping_close(&file);
        return tn_error(TN_ERR_INPUT, "%s has more than %u MiB: it is no tokenizer", path, TN_TOKENIZER_BYTES >> 20);
    }
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
    json_t *root = t->kind->form ? t->kind->form(t)
                                 : json_pack("{s:s, s:i}", "kind", t->kind->name, "version", VERSION);
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

int64_t tn_tokenizer_end_of_text(const struct tn_tokenizer *t)
{
    return t->kind->end_of_text ? t->kind->end_of_text(t) : -1;
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
