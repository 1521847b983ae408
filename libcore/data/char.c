/* char.c - one id per Unicode code point of the training text, in the order of the code points (as nanoGPT
 * sorts them). In tokenizer.json: "chars": [10, 32, 33, …]. */
#include "data/tokenizer_kind.h"

#include "data/utf8.h"

#include <inttypes.h>
#include <stdlib.h>

struct chars {
    uint32_t last;                               /* the largest code point */
    int32_t *id;                                 /* [last + 1] by code point; -1: not in the vocabulary */
    struct { char text[4]; uint32_t bytes; } *piece;    /* [vocab_size] by id */
};

static void free_chars(void *state)
{
    struct chars *c = state;

    if (c) {
        free(c->id);
        free(c->piece);
    }
    free(c);
}

/* code [n]: ascending. The state belongs to t from the start, so that a failure is freed with it. */
static tn_status build(struct tn_tokenizer *t, const uint32_t *code, uint32_t n)
{
    struct chars *c = t->state = calloc(1, sizeof *c);

    if (!c)
        return tn_error(TN_ERR_MEMORY, "no memory for a vocabulary of %" PRIu32, n);
    c->last = n > 0 ? code[n - 1] : 0;
    c->id = malloc((c->last + 1) * sizeof *c->id);
    c->piece = calloc(n > 0 ? n : 1, sizeof *c->piece);
    if (!c->id || !c->piece)
        return tn_error(TN_ERR_MEMORY, "no memory for a vocabulary of %" PRIu32, n);
    memset(c->id, 0xFF, (c->last + 1) * sizeof *c->id);
    for (uint32_t i = 0; i < n; i++) {
        unsigned char text[4];
        c->id[code[i]] = (int32_t)i;
        c->piece[i].bytes = tn_utf8_write(code[i], text);
        memcpy(c->piece[i].text, text, sizeof text);
    }
    t->vocab_size = n;
    return TN_OK;
}

static tn_status not_utf8(const char *source, uint64_t at)
{
    return tn_error(TN_ERR_INPUT, "%s is not valid UTF-8 at byte %" PRIu64 ", so it has no characters there; "
                    "--tokenizer byte takes any file", source, at);
}

static tn_status train(struct tn_tokenizer *t, const struct tn_tokenizer_choice *choice, const char *source,
                       const unsigned char *text, uint64_t bytes)
{
    (void)choice;
    unsigned char *seen = calloc(TN_CODEPOINTS, 1);
    uint32_t *code = NULL, n = 0;
    tn_status status = TN_OK;

    if (!seen)
        return tn_error(TN_ERR_MEMORY, "no memory to read %s", source);
    for (uint64_t at = 0; at < bytes && status == TN_OK;) {
        uint32_t c;
        unsigned length = tn_utf8_read(text + at, bytes - at, &c);
        if (length == 0)
            status = not_utf8(source, at);
        else if (!seen[c])
            seen[c] = 1, n++;
        at += length;
    }
    if (status == TN_OK && !(code = malloc((n + 1) * sizeof *code)))
        status = tn_error(TN_ERR_MEMORY, "no memory for a vocabulary of %" PRIu32, n);
    if (status == TN_OK) {
        for (uint32_t c = 0, i = 0; c < TN_CODEPOINTS; c++)
            if (seen[c])
                code[i++] = c;
        status = build(t, code, n);
    }
    free(code);
    free(seen);
    return status;
}

static int is_char(json_int_t c)
{
    return c >= 0 && c < (json_int_t)TN_CODEPOINTS && (c < 0xD800 || c > 0xDFFF);
}

static tn_status load(struct tn_tokenizer *t, const char *path, const json_t *root)
{
    const json_t *list = json_object_get(root, "chars");
    size_t n = json_array_size(list);
    uint32_t *code = malloc((n + 1) * sizeof *code);
    tn_status status = TN_OK;
    json_int_t before = -1;

    if (!code)
        return tn_error(TN_ERR_MEMORY, "no memory to read %s", path);
    if (n == 0)
        status = tn_error(TN_ERR_INPUT, "%s: \"chars\" is missing or is no list of code points", path);
    for (size_t i = 0; i < n && status == TN_OK; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t c = json_integer_value(v);
        if (!json_is_integer(v) || !is_char(c) || c <= before)
            status = tn_error(TN_ERR_INPUT,
                              "%s: entry %zu of \"chars\" is no code point above the one before it", path, i);
        code[i] = (uint32_t)c;
        before = c;
    }
    if (status == TN_OK)
        status = build(t, code, (uint32_t)n);
    free(code);
    return status;
}

static int save(const struct tn_tokenizer *t, json_t *root)
{
    const struct chars *c = t->state;
    json_t *list = json_array();

    for (uint32_t code = 0; list && code <= c->last; code++)
        if (c->id[code] >= 0 && json_array_append_new(list, json_integer(code))) {
            json_decref(list);
            return -1;
        }
    return json_object_set_new(root, "chars", list);
}

static tn_status unknown(const struct tn_tokenizer *t, const char *source, const unsigned char *at,
                         unsigned length, uint32_t code, uint64_t position)
{
    char shown[16] = "";

    if (code > ' ' && code != 0x7F && (code < 0x80 || code > 0x9F))
        snprintf(shown, sizeof shown, " '%.*s'", (int)length, (const char *)at);
    return tn_error(TN_ERR_INPUT,
                    "%s: character %" PRIu64 " is U+%04" PRIX32 "%s, which is not among the %" PRId64
                    " characters of this char vocabulary",
                    source, position, code, shown, t->vocab_size);
}

static tn_status encode(const struct tn_tokenizer *t, const char *source, const unsigned char *text,
                        uint64_t bytes, int32_t *out, uint64_t *count)
{
    const struct chars *c = t->state;
    uint64_t n = 0;

    for (uint64_t at = 0; at < bytes; n++) {
        uint32_t code;
        unsigned length = tn_utf8_read(text + at, bytes - at, &code);
        if (length == 0)
            return not_utf8(source, at);
        out[n] = code <= c->last ? c->id[code] : -1;
        if (out[n] < 0)
            return unknown(t, source, text + at, length, code, n + 1);
        at += length;
    }
    *count = n;
    return TN_OK;
}

static uint64_t cut(const unsigned char *text, uint64_t bytes)
{
    return tn_utf8_whole(text, bytes);
}

static const char *piece(const struct tn_tokenizer *t, int64_t id, uint64_t *bytes)
{
    const struct chars *c = t->state;

    *bytes = c->piece[id].bytes;
    return c->piece[id].text;
}

const struct tn_tokenizer_kind tn_tokenizer_char = {.name = "char",
                                                    .train = train,
                                                    .load = load,
                                                    .save = save,
                                                    .encode = encode,
                                                    .cut = cut,
                                                    .piece = piece,
                                                    .free = free_chars};
