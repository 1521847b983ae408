/* bpe_form.c - a BPE as Hugging Face's tokenizer.json; bpe_json.c reads it.
 *
 * Tokens are written as keys of model.vocab, by id, merges as "left right", so that old readers take them too. */
#include "data/bpe.h"

#include <stdlib.h>

const struct tn_bpe_flag tn_bpe_flags[TN_BPE_FLAGS] = {
    {"single_word", TN_BPE_SINGLE},
    {"lstrip", TN_BPE_LSTRIP},
    {"rstrip", TN_BPE_RSTRIP},
    {"normalized", TN_BPE_NORMALIZED},
    {"special", TN_BPE_SPECIAL},
};

static int put_new(json_t *list, const char *key, json_t *value)
{
    return json_is_array(list) ? json_array_append_new(list, value) : json_object_set_new(list, key, value);
}

/* How a token stands in the file; text has room for the longest. */
static const char *spelling(const struct tn_bpe *b, int32_t id, char *text)
{
    const unsigned char *bytes = b->text + b->start[id];
    uint32_t n = tn_bpe_bytes(b, id);

    if (b->flags[id]) {
        memcpy(text, bytes, n);
        text[n] = 0;
    } else {
        tn_bpe_spell(bytes, n, text);
    }
    return text;
}

static json_t *added_form(const struct tn_bpe *b, int32_t id, char *text)
{
    json_t *one = json_pack("{s:i, s:s}", "id", (int)id, "content", spelling(b, id, text));

    for (size_t i = 0; i < TN_BPE_FLAGS; i++)
        if (json_object_set_new(one, tn_bpe_flags[i].key, json_boolean(b->flags[id] & tn_bpe_flags[i].flag))) {
            json_decref(one);
            return NULL;
        }
    return one;
}

/* 0 is success, as with jansson. */
static int fill(const struct tn_bpe *b, json_t *vocab, json_t *merges, json_t *added, char *text, char *pair)
{
    int bad = 0;

    for (int32_t id = 0; id < b->tokens && !bad; id++) {
        bad = put_new(vocab, spelling(b, id, text), json_integer(id));
        if (b->flags[id] && !bad)
            bad = put_new(added, NULL, added_form(b, id, text));
    }
    for (int32_t i = 0; i < b->merges && !bad; i++) {
        size_t n = strlen(spelling(b, b->merge[i].left, pair));
        pair[n] = ' ';
        spelling(b, b->merge[i].right, pair + n + 1);
        bad = put_new(merges, NULL, json_string(pair));
    }
    return bad;
}

static uint32_t longest(const struct tn_bpe *b)
{
    uint32_t most = 0;

    for (int32_t id = 0; id < b->tokens; id++)
        most = tn_bpe_bytes(b, id) > most ? tn_bpe_bytes(b, id) : most;
    return most;
}

json_t *tn_bpe_form(const struct tn_bpe *b)
{
    size_t room = 2 * (size_t)longest(b) + 1;
    char *text = malloc(room), *pair = malloc(2 * room);
    json_t *vocab = json_object(), *merges = json_array(), *added = json_array(), *root = NULL;

    if (text && pair && vocab && merges && added && !fill(b, vocab, merges, added, text, pair))
        root = json_pack(
            "{s:s, s:n, s:n, s:O, s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s, s:b, s:b, s:b}, "
            "s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:O, s:O}}",
            "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer",    /* nulls have no value */
            "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1,
            "post_processor",
            "decoder", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1,
            "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
            "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges", merges);
    json_decref(vocab);
    json_decref(merges);
    json_decref(added);
    free(text);
    free(pair);
    return root;
}
