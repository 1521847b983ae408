/* bpe_files.c - a BPE that others published: a folder with tokenizer.json, or with encoder.json and vocab.bpe
 * (OpenAI's names), or with vocab.json and merges.txt (Hugging Face's). The first of these that is there is
 * read. */
#include "data/bpe.h"

#include "base/arena.h"
#include "base/file.h"
#include "data/splitter.h"
#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *const pairs[][2] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}};

/* Lines "left right" behind a first line "#version: …", which may be missing. */
static tn_status read_merges(const char *path, json_t **out)
{
    char *text, *rest;
    size_t bytes;
    tn_status s = tn_file_read(path, TN_TOKENIZER_BYTES, &text, &bytes);

    *out = NULL;
    if (s < 0)
        return s;
    *out = json_array();
    s = *out ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory to read %s", path);
    for (char *line = strtok_r(text, "\r\n", &rest); line && s == TN_OK;
         line = strtok_r(NULL, "\r\n", &rest)) {
        if (line == text && !strncmp(line, "#version", 8))
            continue;
        json_t *one = json_string(line);         /* NULL for what is no UTF-8 */
        if (!one || !strchr(line, ' ') || json_array_append(*out, one))
            s = tn_error(TN_ERR_INPUT, "%s: line \"%.60s\" is not two tokens in UTF-8", path, line);
        json_decref(one);
    }
    free(text);
    return s;
}

static tn_status read_vocab(const char *path, json_t **out)
{
    char *text;
    size_t bytes;
    json_error_t err;
    tn_status s = tn_file_read(path, TN_TOKENIZER_BYTES, &text, &bytes);

    *out = NULL;
    if (s < 0)
        return s;
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &err);
    free(text);
    return *out ? TN_OK : tn_error(TN_ERR_INPUT, "%s:%d: no valid JSON: %s", path, err.line, err.text);
}

/* Such files have no list of added tokens; of those that could be one, this is known. */
static json_t *end_of_text(const json_t *vocab)
{
    json_t *id = json_object_get(vocab, TN_END_OF_TEXT);

    return id ? json_pack("[{s:O, s:s, s:b}]", "id", id, "content", TN_END_OF_TEXT, "special", 1)
              : json_array();
}

static tn_status read_pair(struct tn_bpe *b, const char *vocab_path, const char *merges_path)
{
    json_t *vocab = NULL, *merges = NULL, *added = NULL;
    tn_status s = read_vocab(vocab_path, &vocab);

    if (s == TN_OK)
        s = read_merges(merges_path, &merges);
    if (s == TN_OK && !(added = end_of_text(vocab)))
        s = tn_error(TN_ERR_MEMORY, "no memory to read %s", vocab_path);
    if (s == TN_OK)
        s = tn_bpe_read_parts(b, vocab_path, vocab, merges, added);
    json_decref(vocab);
    json_decref(merges);
    json_decref(added);
    return s;
}

static tn_status read_one(struct tn_bpe *b, const char *path)
{
    json_t *root;
    tn_status s = read_vocab(path, &root);

    if (s == TN_OK)
        s = tn_bpe_read(b, path, root);
    json_decref(root);
    return s;
}

tn_status tn_bpe_open(struct tn_bpe *b, const char *dir)
{
    struct tn_arena *a = tn_arena_new();
    char *one = tn_path_join(a, dir, "tokenizer.json");
    tn_status s = TN_DECLINED;

    if (tn_path_exists(one))
        s = read_one(b, one);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0] && s == TN_DECLINED; i++) {
        char *vocab = tn_path_join(a, dir, pairs[i][0]), *merges = tn_path_join(a, dir, pairs[i][1]);
        if (tn_path_exists(vocab) && tn_path_exists(merges))
            s = read_pair(b, vocab, merges);
    }
    if (s == TN_DECLINED)
        s = tn_error(TN_ERR_INPUT,
                     "%s has no tokenizer.json, no encoder.json with vocab.bpe, and no vocab.json with "
                     "merges.txt",
                     dir);
    tn_arena_free(a);
    return s;
}
