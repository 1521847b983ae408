/* tokens.c - see tokens.h. The check of a file walks it in blocks that fit the cache: hash, then maximum. */
#include "data/tokens.h"

#include <xxhash.h>

#define BLOCK (256u << 10)
#define AROUND (2u << 20)                        /* one touch maps up to a huge page of the page cache */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little-endian and read in place");

static uint32_t max16(const uint16_t *id, uint64_t n)
{
    uint16_t most = 0;

    for (uint64_t i = 0; i < n; i++)
        most = id[i] > most ? id[i] : most;
    return most;
}

static uint32_t max32(const uint32_t *id, uint64_t n)
{
    uint32_t most = 0;

    for (uint64_t i = 0; i < n; i++)
        most = id[i] > most ? id[i] : most;
    return most;
}

static uint32_t id_at(const struct tn_tokens *t, uint64_t i)
{
    return t->width == 2 ? ((const uint16_t *)t->map.data)[i] : ((const uint32_t *)t->map.data)[i];
}

static tn_status id_too_large(const struct tn_tokens *t, uint64_t from, uint32_t limit)
{
    while (id_at(t, from) < limit)
        from++;
    return tn_error(TN_ERR_INPUT, "%s: id %lu of token %llu is outside the vocabulary of %lu", t->map.path,
                    (unsigned long)id_at(t, from), (unsigned long long)from, (unsigned long)limit);
}

static void drop(struct tn_tokens *t)
{
    tn_mapping_drop(&t->map, 0, t->map.bytes);
    t->touched = 0;
}

/* Reads all of it: hash and largest id, and the first id that is not below limit. */
static tn_status scan(struct tn_tokens *t, uint32_t limit)
{
    XXH64_state_t *hash = XXH64_createState();
    tn_status status = TN_OK;

    if (!hash)
        return tn_error(TN_ERR_MEMORY, "no memory to read %s", t->map.path);
    XXH64_reset(hash, 0);
    for (uint64_t at = 0; at < t->map.bytes && status == TN_OK; at += BLOCK) {
        uint64_t bytes = t->map.bytes - at < BLOCK ? t->map.bytes - at : BLOCK;
        const void *block = t->map.data + at;
        XXH64_update(hash, block, (size_t)bytes);
        uint32_t most = t->width == 2 ? max16(block, bytes / 2) : max32(block, bytes / 4);
        t->max_id = most > t->max_id ? most : t->max_id;
        if (most >= limit)
            status = id_too_large(t, at / t->width, limit);
        t->touched += bytes;
        if (t->touched > TN_TOKENS_RESIDENT)
            drop(t);
    }
    t->hash = XXH64_digest(hash);
    XXH64_freeState(hash);
    return status;
}

tn_status tn_tokens_open(const char *path, uint32_t width, int64_t vocab_size, struct tn_tokens *out)
{
    uint32_t limit = vocab_size > 0 && vocab_size < INT32_MAX ? (uint32_t)vocab_size : INT32_MAX;
    tn_status status;

    *out = (struct tn_tokens){.width = width};
    status = tn_mapping_open(path, &out->map);
    if (status < 0)
        return status;
    if (out->map.bytes % width)
        status = tn_error(TN_ERR_INPUT, "%s has %llu bytes, which are no whole number of uint%lu tokens",
                          path, (unsigned long long)out->map.bytes, 8ul * width);
    else
        status = scan(out, limit);
    out->count = out->map.bytes / width;
    if (status < 0)
        tn_tokens_close(out);
    return status;
}

void tn_tokens_close(struct tn_tokens *t)
{
    tn_mapping_close(&t->map);
    *t = (struct tn_tokens){0};
}

tn_status tn_tokens_fit(const struct tn_tokens *t, int64_t seq_len)
{
    if (t->count > (uint64_t)seq_len)
        return TN_OK;
    return tn_error(TN_ERR_INPUT, "%s has %llu tokens, seq_len %lld needs at least %llu", t->map.path,
                    (unsigned long long)t->count, (long long)seq_len, (unsigned long long)seq_len + 1);
}

void tn_tokens_read(struct tn_tokens *t, uint64_t start, uint64_t count, int32_t *out)
{
    if (t->width == 2) {
        const uint16_t *id = (const uint16_t *)t->map.data + start;
        for (uint64_t i = 0; i < count; i++)
            out[i] = id[i];
    } else {
        memcpy(out, (const uint32_t *)t->map.data + start, (size_t)count * sizeof *out);
    }
    t->touched += count * t->width + AROUND;
    if (t->touched > TN_TOKENS_RESIDENT && t->map.bytes > TN_TOKENS_RESIDENT)
        drop(t);
}
