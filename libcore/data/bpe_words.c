/* bpe_words.c - the different pieces of a text and how often each is there: all that training looks at.
 *
 * Memory goes with the number of different pieces, not with the text; a piece is borrowed from where it was
 * first. Their order is that of the text, so what is learned does not depend on the table's size or hash. */
#include "data/bpe.h"

#include "data/splitter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

void tn_bpe_words_free(struct tn_bpe_words *w)
{
    free(w->word);
    free(w->slot);
    *w = (struct tn_bpe_words){0};
}

static int widen(struct tn_bpe_words *w)
{
    uint64_t slots = w->slots ? 2 * w->slots : 1 << 14, *slot = calloc(slots, sizeof *slot);
    struct tn_bpe_word *word = realloc(w->word, slots / 2 * sizeof *word);

    if (word)
        w->word = word, w->room = slots / 2;
    if (!slot || !word) {
        free(slot);
        return 0;
    }
    for (uint64_t i = 0; i < w->count; i++) {
        uint64_t at = word[i].hash & (slots - 1);
        while (slot[at])
            at = (at + 1) & (slots - 1);
        slot[at] = i + 1;
    }
    free(w->slot);
    w->slot = slot;
    w->slots = slots;
    return 1;
}

static int same(const struct tn_bpe_word *a, const unsigned char *text, uint64_t bytes, uint64_t hash)
{
    return a->hash == hash && a->bytes == bytes && !memcmp(a->text, text, (size_t)bytes);
}

static tn_status add(struct tn_bpe_words *w, const unsigned char *text, uint64_t bytes)
{
    uint64_t hash = XXH3_64bits(text, (size_t)bytes), at;

    if (2 * w->count >= w->slots && !widen(w))
        return tn_error(TN_ERR_MEMORY, "no memory for %" PRIu64 " different words", w->count + 1);
    for (at = hash & (w->slots - 1); w->slot[at]; at = (at + 1) & (w->slots - 1))
        if (same(&w->word[w->slot[at] - 1], text, bytes, hash)) {
            w->word[w->slot[at] - 1].count++;
            return TN_OK;
        }
    w->word[w->count++] = (struct tn_bpe_word){.text = text, .bytes = bytes, .hash = hash, .count = 1};
    w->slot[at] = w->count;
    return TN_OK;
}

static tn_status count_pieces(struct tn_bpe_words *w, struct tn_pieces pieces)
{
    const unsigned char *piece;
    uint64_t bytes;
    tn_status s;

    while ((s = tn_pieces_next(&pieces, &piece, &bytes)) == TN_OK)
        if ((s = add(w, piece, bytes)) < 0)
            return s;
    return s == TN_DECLINED ? TN_OK : s;
}

/* documents: what stands between two of them is no word. */
tn_status tn_bpe_words_count(struct tn_bpe_words *w, const unsigned char *text, uint64_t bytes, int documents)
{
    struct tn_splitter *splitter;
    tn_status s = tn_splitter_new(&splitter);

    *w = (struct tn_bpe_words){0};
    for (uint64_t at = 0, end; s == TN_OK && at < bytes; at = end + sizeof TN_END_OF_TEXT - 1) {
        end = documents ? tn_pieces_document(text, bytes, at) : bytes;
        s = count_pieces(w, (struct tn_pieces){.splitter = splitter, .text = text + at, .bytes = end - at});
    }
    tn_splitter_free(splitter);
    if (s < 0)
        tn_bpe_words_free(w);
    return s;
}
