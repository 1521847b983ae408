/* bpe_json.c - a BPE out of Hugging Face's tokenizer.json; bpe_form.c is the other way.
 *
 * What is read may be written by others: everything that would make other ids of a text is looked at, and what
 * is not known here is refused. Keys that change no id (trim_offsets, the flags of added tokens) are taken as
 * they are.
 *
 * Nothing in the file is trusted: ids are 0 to n - 1, each once; every token is spelled in the alphabet of
 * bytes or listed as added; a merge's two tokens and what they make are in the vocabulary. So a token is
 * longer than what it is made of, and merges cannot run in circles. */
#include "data/bpe.h"

#include <inttypes.h>
#include <stdlib.h>

/* --- reading: vocabulary */

struct reading {
    struct tn_bpe *b;
    const char *path;
    json_t *vocab;                               /* borrowed; all tokens by spelling, added ones too */
    const char **spelled;                        /* [tokens] */
};

static tn_status place(struct reading *r, const char *key, const json_t *id, int64_t tokens)
{
    json_int_t i = json_integer_value(id);

    if (!json_is_integer(id) || i < 0 || i >= tokens)
        return tn_error(TN_ERR_INPUT,
                        "%s: token \"%.60s\" has no id from 0 to %" PRId64 ", as the %" PRId64
                        " tokens there must have",
                        r->path, key, tokens - 1, tokens);
    if (r->spelled[i])
        return tn_error(TN_ERR_INPUT, "%s: tokens \"%.60s\" and \"%.60s\" both have id %" PRId64, r->path,
                        r->spelled[i], key, (int64_t)i);
    r->spelled[i] = key;
    return TN_OK;
}

/* An added token: known to the vocabulary by the same id, or new. */
static tn_status take_added(struct reading *r, const json_t *one, unsigned char *flag)
{
    const json_t *id = json_object_get(one, "id");
    const char *content = json_string_value(json_object_get(one, "content"));
    json_t *known = content ? json_object_get(r->vocab, content) : NULL;

    if (!content || !*content || !json_is_integer(id))
        return tn_error(TN_ERR_INPUT, "%s: an entry of \"added_tokens\" has no id or no content", r->path);
    if (known && !json_equal(known, id))
        return tn_error(TN_ERR_INPUT,
                        "%s: token \"%.60s\" has one id in \"vocab\" and another in \"added_tokens\"",
                        r->path, content);
    if (!known && json_object_set(r->vocab, content, (json_t *)id))
        return tn_error(TN_ERR_MEMORY, "no memory to read %s", r->path);
    *flag = TN_BPE_ADDED;
    for (size_t i = 0; i < TN_BPE_FLAGS; i++)
        if (json_is_true(json_object_get(one, tn_bpe_flags[i].key)))
            *flag |= tn_bpe_flags[i].flag;
    return TN_OK;
}

static tn_status take_vocab(struct reading *r, const json_t *added)
{
    size_t n_added = json_array_size(added);
    unsigned char *flag = calloc(n_added + 1, 1);
    const char *key;
    json_t *id;
    tn_status s = flag ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory to read %s", r->path);

    for (size_t i = 0; i < n_added && s == TN_OK; i++)
        s = take_added(r, json_array_get(added, i), &flag[i]);
    int64_t tokens = (int64_t)json_object_size(r->vocab);
    if (s == TN_OK && tokens > TN_TOKENIZER_VOCAB)
        s = tn_error(TN_ERR_INPUT, "%s has %" PRId64 " tokens, more than %d", r->path, tokens,
                     TN_TOKENIZER_VOCAB);
    if (s == TN_OK) {
        r->spelled = calloc((size_t)tokens + 1, sizeof *r->spelled);
        r->b->flags = calloc((size_t)tokens + 1, 1);
        r->b->tokens = (int32_t)tokens;
        if (!r->spelled || !r->b->flags)
            s = tn_error(TN_ERR_MEMORY, "no memory for a vocabulary of %" PRId64, tokens);
    }
    if (s == TN_OK)
        json_object_foreach(r->vocab, key, id)
            if ((s = place(r, key, id, tokens)) < 0)
                break;
    for (size_t i = 0; i < n_added && s == TN_OK; i++)
        r->b->flags[json_integer_value(json_object_get(json_array_get(added, i), "id"))] = flag[i];
    free(flag);
    return s;
}

/* All ids are taken here: their bytes. */
static tn_status take_bytes(struct reading *r)
{
    struct tn_bpe *b = r->b;
    size_t room = 1;

    for (int32_t id = 0; id < b->tokens; id++)
        room += strlen(r->spelled[id]);
    b->text = malloc(room);
    b->start = calloc((size_t)b->tokens + 1, sizeof *b->start);
    if (!b->text || !b->start)
        return tn_error(TN_ERR_MEMORY, "no memory to read %s", r->path);
    for (int32_t id = 0; id < b->tokens; id++) {
        unsigned char *at = b->text + b->start[id];
        int64_t n = (int64_t)strlen(r->spelled[id]);
        if (b->flags[id])
            memcpy(at, r->spelled[id], (size_t)n);
        else
            n = tn_bpe_unspell(r->spelled[id], at);
        if (n <= 0)
            return tn_error(TN_ERR_INPUT,
                            "%s: token %" PRId32 ", \"%.60s\", is not spelled in the alphabet of bytes that "
                            "GPT-2's files have: this is no byte-level BPE",
                            r->path, id, r->spelled[id]);
        b->start[id + 1] = b->start[id] + (uint64_t)n;
    }
    return TN_OK;
}

/* --- reading: merges */

static int32_t id_of(const struct reading *r, const char *spelled)
{
    const json_t *id = json_object_get(r->vocab, spelled);

    return id ? (int32_t)json_integer_value(id) : -1;
}

/* left and right are spelled; whole, with room for both, gets what they make. */
static tn_status take_merge(struct reading *r, const char *left, const char *right, char *whole)
{
    struct tn_bpe *b = r->b;
    struct tn_bpe_merge m = {.left = id_of(r, left), .right = id_of(r, right)};

    strcat(strcpy(whole, left), right);
    m.out = id_of(r, whole);
    if (m.left < 0 || m.right < 0 || m.out < 0)
        return tn_error(TN_ERR_INPUT,
                        "%s: merge %" PRId32 ", \"%.60s\" and \"%.60s\": \"%.60s\" is not in the vocabulary",
                        r->path, b->merges + 1, left, right,
                        m.left < 0    ? left
                        : m.right < 0 ? right
                                      : whole);
    if (b->flags[m.left] || b->flags[m.right] || b->flags[m.out])
        return tn_error(TN_ERR_INPUT,
                        "%s: merge %" PRId32 ", \"%.60s\" and \"%.60s\", has to do with an added token",
                        r->path, b->merges + 1, left, right);
    b->merge[b->merges++] = m;
    return TN_OK;
}

/* "left right" or ["left", "right"]; copy has room for the first. */
static tn_status take_entry(struct reading *r, const json_t *one, char *copy, char *whole)
{
    const char *text = json_string_value(one);
    const char *left = json_string_value(json_array_get(one, 0)),
               *right = json_string_value(json_array_get(one, 1));

    if (text && strchr(text, ' ')) {
        strcpy(copy, text);
        copy[strchr(text, ' ') - text] = 0;
        left = copy;
        right = copy + strlen(copy) + 1;
    }
    if (!left || !right || (json_is_array(one) && json_array_size(one) != 2))
        return tn_error(TN_ERR_INPUT, "%s: merge %" PRId32 " is not two tokens", r->path, r->b->merges + 1);
    return take_merge(r, left, right, whole);
}

static size_t entry_bytes(const json_t *one)
{
    return json_is_array(one)
               ? json_string_length(json_array_get(one, 0)) + json_string_length(json_array_get(one, 1))
               : json_string_length(one);
}

static tn_status take_merges(struct reading *r, const json_t *merges)
{
    size_t n = json_array_size(merges), most = 0;
    tn_status s = TN_OK;

    if (n > 8 * (size_t)TN_TOKENIZER_VOCAB)
        return tn_error(TN_ERR_INPUT, "%s has %zu merges, more than %d", r->path, n, 8 * TN_TOKENIZER_VOCAB);
    for (size_t i = 0; i < n; i++)
        most = entry_bytes(json_array_get(merges, i)) > most ? entry_bytes(json_array_get(merges, i)) : most;
    char *copy = malloc(most + 1), *whole = malloc(most + 1);
    r->b->merge = malloc((n + 1) * sizeof *r->b->merge);
    if (!copy || !whole || !r->b->merge)
        s = tn_error(TN_ERR_MEMORY, "no memory to read %s", r->path);
    for (size_t i = 0; i < n && s == TN_OK; i++)
        s = take_entry(r, json_array_get(merges, i), copy, whole);
    free(copy);
    free(whole);
    return s;
}

/* vocab is changed: added tokens go in. */
tn_status tn_bpe_read_parts(struct tn_bpe *b, const char *path, json_t *vocab, const json_t *merges,
                            const json_t *added)
{
    struct reading r = {.b = b, .path = path, .vocab = vocab};
    tn_status s;

    if (!json_is_object(vocab) || !json_is_array(merges))
        return tn_error(TN_ERR_INPUT, "%s has no \"vocab\" of tokens and ids, or no list of \"merges\"",
                        path);
    if (added && !json_is_null(added) && !json_is_array(added))
        return tn_error(TN_ERR_INPUT, "%s: \"added_tokens\" is no list", path);
    s = take_vocab(&r, added);
    if (s == TN_OK)
        s = take_bytes(&r);
    if (s == TN_OK)
        s = take_merges(&r, merges);
    free(r.spelled);
    return s < 0 ? s : tn_bpe_finish(b, path);
}

/* --- reading: what surrounds them */

static tn_status other(const char *path, const char *what)
{
    return tn_error(TN_ERR_INPUT,
                    "%s: %s, which is not known here: a byte-level BPE with GPT-2's way to split a text is "
                    "read, and nothing else",
                    path, what);
}

static int is(const json_t *o, const char *key, const char *value)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text && !strcmp(text, value);
}

static int is_absent(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return !v || json_is_null(v);
}

static int is_off(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return is_absent(o, key) || json_is_false(v) || (json_is_string(v) && !*json_string_value(v)) ||
           (json_is_number(v) && json_number_value(v) == 0);
}

static tn_status check_model(const char *path, const json_t *model)
{
    if (!json_is_object(model) || (!is_absent(model, "type") && !is(model, "type", "BPE")))
        return other(path, "\"model\" is no BPE");
    if (!is_off(model, "dropout"))
        return other(path, "\"model\" has a dropout");
    if (!is_off(model, "continuing_subword_prefix") || !is_off(model, "end_of_word_suffix"))
        return other(path, "\"model\" has a prefix or suffix of words");
    if (!is_off(model, "byte_fallback") || !is_off(model, "ignore_merges"))
        return other(path, "\"model\" has byte_fallback or ignore_merges");
    return TN_OK;
}

static tn_status check_surroundings(const char *path, const json_t *root)
{
    const json_t *splits = json_object_get(root, "pre_tokenizer"),
                 *regex = json_object_get(splits, "use_regex");

    if (!is(splits, "type", "ByteLevel") || !is_off(splits, "add_prefix_space") ||
        (regex && !json_is_true(regex)))
        return other(path, "\"pre_tokenizer\" is not ByteLevel without a blank in front");
    if (!is(json_object_get(root, "decoder"), "type", "ByteLevel"))
        return other(path, "\"decoder\" is not ByteLevel");
    if (!is_absent(root, "normalizer"))
        return other(path, "there is a \"normalizer\"");
    if (!is_absent(root, "post_processor") &&
        !is(json_object_get(root, "post_processor"), "type", "ByteLevel"))
        return other(path, "\"post_processor\" is not ByteLevel");
    if (!is_absent(root, "truncation") || !is_absent(root, "padding"))
        return other(path, "there is \"truncation\" or \"padding\"");
    return TN_OK;
}

tn_status tn_bpe_read(struct tn_bpe *b, const char *path, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    tn_status s = check_model(path, model);

    if (s == TN_OK)
        s = check_surroundings(path, root);
    return s < 0 ? s
                 : tn_bpe_read_parts(b, path, json_object_get(model, "vocab"),
                                     json_object_get(model, "merges"), json_object_get(root, "added_tokens"));
}
