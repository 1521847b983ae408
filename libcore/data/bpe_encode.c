/* bpe_encode.c - a text to ids: pieces, and for each its merges.
 *
 * Texts repeat their words, so a piece that was seen is looked up in a small table; a collision replaces. A
 * piece is first cut where its two bytes are never neighbours in a token: nothing is joined there, and what
 * lies between is mostly short. Short stretches are merged by looking for the lowest rank again and again,
 * long ones by bpe_long.c.
 *
 * The table and all other memory is a scratch, made at the first use and kept for the next one. Threads that
 * encode at the same time have one each: whoever finds none in the tokenizer makes one. */
#include "data/bpe.h"

#include "data/splitter.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <xxhash.h>

#define SHORT 40                                 /* bytes */
#define SEEN (1u << 14)                          /* a power of two */
#define SEEN_BYTES 30
#define SEEN_IDS 8

struct seen {                                    /* 64 bytes, a line of the cache */
    unsigned char bytes, count;                  /* bytes 0: nothing here */
    unsigned char text[SEEN_BYTES];
    int32_t id[SEEN_IDS];
};

struct tn_bpe_scratch {
    struct tn_splitter *splitter;
    struct tn_bpe_long merge_long;
    struct seen *seen;                           /* [SEEN] */
};

void tn_bpe_scratch_free(struct tn_bpe_scratch *s)
{
    if (!s)
        return;
    tn_splitter_free(s->splitter);
    tn_bpe_long_free(&s->merge_long);
    free(s->seen);
    free(s);
}

static tn_status take(struct tn_bpe *b, struct tn_bpe_scratch **out)
{
    struct tn_bpe_scratch *s = *out = atomic_exchange(&b->spare, NULL);
    tn_status status;

    if (s)
        return TN_OK;
    s = calloc(1, sizeof *s);
    if (!s || !(s->seen = calloc(SEEN, sizeof *s->seen)))
        status = tn_error(TN_ERR_MEMORY, "no memory to encode");
    else
        status = tn_splitter_new(&s->splitter);
    if (status < 0)
        tn_bpe_scratch_free(s);
    else
        *out = s;
    return status;
}

static void give_back(struct tn_bpe *b, struct tn_bpe_scratch *s)
{
    tn_bpe_scratch_free(atomic_exchange(&b->spare, s));
}

/* bytes is 1 to SHORT. Returns the number of ids. */
static uint32_t merge_short(const struct tn_bpe *b, const unsigned char *text, uint32_t bytes, int32_t *id)
{
    int32_t rank[SHORT + 1];
    uint32_t n = bytes;

    for (uint32_t i = 0; i < n; i++)
        id[i] = b->byte[text[i]];
    for (uint32_t i = 0; i + 1 < n; i++)
        rank[i] = tn_bpe_rank(b, id[i], id[i + 1]);
    while (n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == INT32_MAX)
            break;
        id[best] = b->merge[rank[best]].out;
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        memmove(rank + best, rank + best + 1, (n - best) * sizeof *rank);
        if (best > 0)
            rank[best - 1] = tn_bpe_rank(b, id[best - 1], id[best]);
        if (best + 1 < n)
            rank[best] = tn_bpe_rank(b, id[best], id[best + 1]);
    }
    return n;
}

static int is_joined(const struct tn_bpe *b, const unsigned char *at)
{
    return b->joined[at[0] * 4 + at[1] / 64] >> at[1] % 64 & 1;
}

static tn_status merge_piece(const struct tn_bpe *b, struct tn_bpe_scratch *s, const unsigned char *text,
                             uint64_t bytes, int32_t *out, uint64_t *count)
{
    tn_status status = TN_OK;

    *count = 0;
    for (uint64_t at = 0, n, k; at < bytes && status == TN_OK; at += n, *count += k) {
        for (n = 1; at + n < bytes && is_joined(b, text + at + n - 1); n++)
            ;
        if (n <= SHORT)
            k = merge_short(b, text + at, (uint32_t)n, out + *count);
        else
            status = tn_bpe_merge_long(b, &s->merge_long, text + at, n, out + *count, &k);
    }
    return status;
}

static tn_status encode_piece(const struct tn_bpe *b, struct tn_bpe_scratch *s, const unsigned char *text,
                              uint64_t bytes, int32_t *out, uint64_t *count)
{
    struct seen *seen;

    if (bytes > SEEN_BYTES)
        return merge_piece(b, s, text, bytes, out, count);
    seen = &s->seen[XXH3_64bits(text, (size_t)bytes) & (SEEN - 1)];
    if (seen->bytes == bytes && !memcmp(seen->text, text, (size_t)bytes)) {
        *count = seen->count;
        for (uint32_t i = 0; i < seen->count; i++)
            out[i] = seen->id[i];
        return TN_OK;
    }
    tn_status status = merge_piece(b, s, text, bytes, out, count);
    if (status == TN_OK && *count <= SEEN_IDS) {
        seen->bytes = (unsigned char)bytes;
        seen->count = (unsigned char)*count;
        memcpy(seen->text, text, (size_t)bytes);
        memcpy(seen->id, out, *count * sizeof *out);
    }
    return status;
}

tn_status tn_bpe_encode(struct tn_bpe *b, const char *source, const unsigned char *text, uint64_t bytes,
                        int32_t *out, uint64_t *count)
{
    struct tn_bpe_scratch *s;
    const unsigned char *piece;
    uint64_t n, k;
    tn_status status = take(b, &s);

    *count = 0;
    if (status < 0)
        return status;
    struct tn_pieces pieces = {.splitter = s->splitter, .text = text, .bytes = bytes};
    while ((status = tn_pieces_next(&pieces, &piece, &n)) == TN_OK) {
        if (n >= INT32_MAX)
            status = tn_error(TN_ERR_INPUT,
                              "%s has a piece of %" PRIu64 " bytes without a border between words; a "
                              "piece must have less than 2 GiB",
                              source, n);
        else
            status = encode_piece(b, s, piece, n, out + *count, &k);
        if (status < 0)
            break;
        *count += k;
    }
    give_back(b, s);
    return status == TN_DECLINED ? TN_OK : status;
}
