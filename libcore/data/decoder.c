/* decoder.c - ids to text as they come (tokenizer.h). A character may be spread over several tokens: its
 * bytes wait in `held` until it is whole. Bytes that can never become a character are passed on as they are,
 * so nothing is lost and at most 3 bytes ever wait. */
#include "data/tokenizer.h"
#include "data/utf8.h"

#include <inttypes.h>
#include <stdlib.h>

struct tn_decoder {
    const struct tn_tokenizer *tokenizer;        /* borrowed */
    char *buffer;                                /* given out; owned */
    uint64_t room, waiting;
    char held[4];
};

tn_status tn_decoder_new(const struct tn_tokenizer *t, struct tn_decoder **out)
{
    struct tn_decoder *d = calloc(1, sizeof *d);

    *out = NULL;
    if (!d || !(d->buffer = malloc(64))) {
        free(d);
        return tn_error(TN_ERR_MEMORY, "no memory for a decoder");
    }
    d->room = 64;
    d->tokenizer = t;
    *out = d;
    return TN_OK;
}

static tn_status make_room(struct tn_decoder *d, uint64_t need)
{
    if (need <= d->room)
        return TN_OK;
    char *grown = realloc(d->buffer, (size_t)need * 2);
    if (!grown)
        return tn_error(TN_ERR_MEMORY, "no memory for decoded text");
    d->buffer = grown;
    d->room = need * 2;
    return TN_OK;
}

tn_status tn_decoder_put(struct tn_decoder *d, int64_t id, const char **text, uint64_t *bytes)
{
    uint64_t n, all, whole;
    const char *piece = tn_tokenizer_piece(d->tokenizer, id, &n);

    *text = "";
    *bytes = 0;
    if (!piece)
        return tn_error(TN_ERR_INPUT, "id %" PRId64 " is outside the %s vocabulary of %" PRId64, id,
                        tn_tokenizer_kind(d->tokenizer), tn_tokenizer_vocab_size(d->tokenizer));
    all = d->waiting + n;
    if (make_room(d, all + 1) < 0)
        return TN_ERR_MEMORY;
    memcpy(d->buffer, d->held, (size_t)d->waiting);
    memcpy(d->buffer + d->waiting, piece, (size_t)n);
    whole = tn_utf8_whole((const unsigned char *)d->buffer, (size_t)all);
    d->waiting = all - whole;
    memcpy(d->held, d->buffer + whole, (size_t)d->waiting);
    d->buffer[whole] = 0;
    *text = d->buffer;
    *bytes = whole;
    return TN_OK;
}

void tn_decoder_flush(struct tn_decoder *d, const char **text, uint64_t *bytes)
{
    memcpy(d->buffer, d->held, (size_t)d->waiting);
    d->buffer[d->waiting] = 0;
    *text = d->buffer;
    *bytes = d->waiting;
    d->waiting = 0;
}

void tn_decoder_free(struct tn_decoder *d)
{
    if (d)
        free(d->buffer);
    free(d);
}
