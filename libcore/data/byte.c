/* byte.c - the tokenizer that has nothing to learn: id = byte, 256 of them, for any file at all. */
#include "data/tokenizer_kind.h"

static tn_status train(struct tn_tokenizer *t, const struct tn_tokenizer_choice *choice, const char *source,
                       const unsigned char *text, uint64_t bytes)
{
    (void)choice, (void)source, (void)text, (void)bytes;
    t->vocab_size = 256;
    return TN_OK;
}

static tn_status load(struct tn_tokenizer *t, const char *path, const json_t *root)
{
    (void)path, (void)root;
    t->vocab_size = 256;
    return TN_OK;
}

static tn_status encode(const struct tn_tokenizer *t, const char *source, const unsigned char *text,
                        uint64_t bytes, int32_t *out, uint64_t *count)
{
    (void)t, (void)source;
    for (uint64_t i = 0; i < bytes; i++)
        out[i] = text[i];
    *count = bytes;
    return TN_OK;
}

static uint64_t cut(const unsigned char *text, uint64_t bytes)
{
    (void)text;
    return bytes;
}

static const char *piece(const struct tn_tokenizer *t, int64_t id, uint64_t *bytes)
{
    static const unsigned char all[256] = {
#define ROW(x) x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7
#define BLOCK(x) ROW(x), ROW(x + 8), ROW(x + 16), ROW(x + 24)
        BLOCK(0), BLOCK(32), BLOCK(64), BLOCK(96), BLOCK(128), BLOCK(160), BLOCK(192), BLOCK(224)};
    (void)t;
    *bytes = 1;
    return (const char *)&all[id];
}

const struct tn_tokenizer_kind tn_tokenizer_byte = {
    .name = "byte", .train = train, .load = load, .encode = encode, .cut = cut, .piece = piece};
