/* tokens.c - see tokens.h. */
#include "data/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include "data/mapping.h"

#define BLOCK (256u << 10)                       /* of the first reading: fits the cache */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little-endian and read as they are");

static tn_status read_at(const struct tn_tokens *t, uint64_t at, uint64_t bytes, void *to)
{
    for (char *p = to; bytes;) {
        ssize_t n = pread(t->fd, p, bytes, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tn_error(TN_ERR_IO, "cannot read %s: %s", t->path, strerror(errno));
        if (n == 0)
            return tn_error(TN_ERR_INPUT, "%s was cut short while it was in use: it ends before byte %llu", t->path,
                            (unsigned long long)(at + bytes));
        p += n, at += (uint64_t)n, bytes -= (uint64_t)n;
    }
    return TN_OK;
}

/* Ids in place: uint16 at the end of their room become int32 from its start. A few at a time by way of an array: gcc 12 at -O1
 * takes the plain loop for one that writes elsewhere. */
static void widen(int32_t *id, uint64_t n)
{
    const char *from = (const char *)id + n * sizeof(uint16_t);
    uint16_t narrow[64];

    for (uint64_t i = 0, some; i < n; i += some) {
        some = n - i < 64 ? n - i : 64;
        memcpy(narrow, from + i * sizeof *narrow, some * sizeof *narrow);
        for (uint64_t k = 0; k < some; k++)
            id[i + k] = narrow[k];
    }
}

static uint32_t largest(const int32_t *id, uint64_t n)
{
    uint32_t most = 0;

    for (uint64_t i = 0; i < n; i++)
        most = (uint32_t)id[i] > most ? (uint32_t)id[i] : most;
    return most;
}

static tn_status id_too_large(const struct tn_tokens *t, uint64_t start, const int32_t *id)
{
    while ((uint32_t)*id < t->limit)
        id++, start++;
    return tn_error(TN_ERR_INPUT, "%s: id %lu of token %llu is outside the vocabulary of %lu", t->path, (unsigned long)(uint32_t)*id,
                    (unsigned long long)start, (unsigned long)t->limit);
}

tn_status tn_tokens_read(const struct tn_tokens *t, uint64_t start, uint64_t count, int32_t *out)
{
    uint64_t bytes = count * t->width;
    tn_status status = read_at(t, start * t->width, bytes, (char *)out + (count * sizeof *out - bytes));

    if (status < 0)
        return status;
    if (t->width == 2)
        widen(out, count);
    return largest(out, count) < t->limit || !count ? TN_OK : id_too_large(t, start, out);
}

/* Reads all of it: hash, largest id, and the first id that is not below the limit. */
static tn_status scan(struct tn_tokens *t, XXH64_state_t *hash, int32_t *block)
{
    uint64_t most = BLOCK / t->width;
    tn_status status = TN_OK;

    XXH64_reset(hash, 0);
    for (uint64_t at = 0, n; at < t->count && status == TN_OK; at += n) {
        n = t->count - at < most ? t->count - at : most;
        char *raw = (char *)block + n * (sizeof *block - t->width);

        status = read_at(t, at * t->width, n * t->width, raw);
        if (status < 0)
            return status;
        XXH64_update(hash, raw, n * t->width);
        if (t->width == 2)
            widen(block, n);
        uint32_t id = largest(block, n);
        t->max_id = id > t->max_id ? id : t->max_id;
        if (id >= t->limit)
            status = id_too_large(t, at, block);
    }
    t->hash = XXH64_digest(hash);
    return status;
}

static tn_status scan_all(struct tn_tokens *t)
{
    XXH64_state_t *hash = XXH64_createState();
    int32_t *block = malloc((size_t)BLOCK / t->width * sizeof *block);
    tn_status status = hash && block ? scan(t, hash, block) : tn_error(TN_ERR_MEMORY, "no memory to read %s", t->path);

    XXH64_freeState(hash);
    free(block);
    return status;
}

tn_status tn_tokens_open(const char *path, uint32_t width, int64_t vocab_size, struct tn_tokens *out)
{
    uint64_t bytes = 0;
    tn_status status;

    *out = (struct tn_tokens){.width = width, .fd = -1,
                              .limit = vocab_size > 0 && vocab_size < INT32_MAX ? (uint32_t)vocab_size : INT32_MAX};
    status = tn_mapping_descriptor(path, &out->fd, &bytes);
    if (status < 0) {
        *out = (struct tn_tokens){0};
        return status;
    }
    out->path = strdup(path);
    out->count = bytes / width;
    if (!out->path)
        status = tn_error(TN_ERR_MEMORY, "no memory for a file name");
    else if (bytes % width)
        status = tn_error(TN_ERR_INPUT, "%s has %llu bytes, which are no whole number of uint%lu tokens", path,
                          (unsigned long long)bytes, 8ul * width);
    else
        status = scan_all(out);
    if (status < 0)
        tn_tokens_close(out);
    return status;
}

void tn_tokens_close(struct tn_tokens *t)
{
    if (t->width && t->fd >= 0)
        close(t->fd);
    free(t->path);
    *t = (struct tn_tokens){0};
}

tn_status tn_tokens_fit(const struct tn_tokens *t, int64_t seq_len)
{
    if (t->count > (uint64_t)seq_len)
        return TN_OK;
    return tn_error(TN_ERR_INPUT, "%s has %llu tokens, seq_len %lld needs at least %llu", t->path,
                    (unsigned long long)t->count, (long long)seq_len, (unsigned long long)seq_len + 1);
}
