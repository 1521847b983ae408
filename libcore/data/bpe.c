/* bpe.c - the tokenizer kind bpe, of which gpt2 is one: trained here, or read from files (bpe.h). */
#include "data/bpe.h"

#include "data/splitter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

/* Of OpenAI's encoder.json and vocab.bpe, as tn_bpe_digest makes it. */
#define GPT2_DIGEST 0x6F40435DF6240CA1u

static tn_status index_merges(struct tn_bpe *b, const char *path)
{
    uint64_t slots = 1024;

    while (slots < 2 * (uint64_t)b->merges)
        slots *= 2;
    b->mask = slots - 1;
    b->slot = malloc(slots * sizeof *b->slot);
    if (!b->slot)
        return tn_error(TN_ERR_MEMORY, "no memory for %" PRId32 " merges", b->merges);
    memset(b->slot, 0xFF, slots * sizeof *b->slot);
    for (int32_t i = 0; i < b->merges; i++) {
        struct tn_bpe_merge m = b->merge[i];
        uint64_t pair = tn_bpe_pair(m.left, m.right), at = tn_bpe_hash(pair) & b->mask;
        unsigned last = b->text[b->start[m.left + 1] - 1], first = b->text[b->start[m.right]];
        while (b->slot[at].pair != UINT64_MAX && b->slot[at].pair != pair)
            at = (at + 1) & b->mask;
        if (b->slot[at].pair == pair)
            return tn_error(TN_ERR_INPUT, "%s: merge %" PRId32 " is merge %" PRId32 " again", path, i + 1,
                            b->slot[at].rank + 1);
        b->slot[at] = (struct tn_bpe_slot){.pair = pair, .rank = i};
        b->joined[last * 4 + first / 64] |= (uint64_t)1 << first % 64;
    }
    return TN_OK;
}

static tn_status index_tokens(struct tn_bpe *b, const char *path)
{
    memset(b->byte, 0xFF, sizeof b->byte);
    b->end_of_text = -1;
    for (int32_t id = 0; id < b->tokens; id++) {
        const unsigned char *text = b->text + b->start[id];
        uint32_t bytes = tn_bpe_bytes(b, id);
        if (bytes == 1 && !b->flags[id])
            b->byte[*text] = id;
        if (b->flags[id] && bytes == sizeof TN_END_OF_TEXT - 1 && !memcmp(text, TN_END_OF_TEXT, bytes))
            b->end_of_text = id;
    }
    for (int c = 0; c < 256; c++)
        if (b->byte[c] < 0)
            return tn_error(TN_ERR_INPUT, "%s has no token for byte %d: this is no byte-level BPE", path, c);
    return TN_OK;
}

tn_status tn_bpe_finish(struct tn_bpe *b, const char *path)
{
    tn_status s = index_tokens(b, path);

    return s < 0 ? s : index_merges(b, path);
}

void tn_bpe_free(void *bpe)
{
    struct tn_bpe *b = bpe;

    if (!b)
        return;
    tn_bpe_scratch_free(b->spare);
    free(b->text);
    free(b->start);
    free(b->flags);
    free(b->merge);
    free(b->slot);
    free(b);
}

uint64_t tn_bpe_digest(const struct tn_bpe *b)
{
    uint64_t part[3] = {
        XXH64(b->text, (size_t)b->start[b->tokens], 0),
        XXH64(b->start, ((size_t)b->tokens + 1) * sizeof *b->start, 0),
        XXH64(b->merge, (size_t)b->merges * sizeof *b->merge, 0),
    };
    return XXH64(part, sizeof part, 0);
}

static tn_status train(struct tn_tokenizer *t, const struct tn_tokenizer_choice *choice, const char *source,
                       const unsigned char *text, uint64_t bytes)
{
    struct tn_bpe *b = t->state = calloc(1, sizeof *b);
    int gpt2 = !strcmp(choice->kind, "gpt2");
    tn_status s;

    if (!b)
        return tn_error(TN_ERR_MEMORY, "no memory for a vocabulary");
    if (gpt2 && !choice->folder)
        return tn_error(
            TN_ERR_CONFIG, "%s",
            "--tokenizer gpt2 needs --bpe-dir DIR, a folder with GPT-2's published vocabulary: encoder.json "
            "and vocab.bpe from https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/ (sha256 "
            "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783 and "
            "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5), or vocab.json and "
            "merges.txt, or tokenizer.json, from https://huggingface.co/openai-community/gpt2");
    s = choice->folder ? tn_bpe_open(b, choice->folder)
                       : tn_bpe_train(b, source, text, bytes, choice->vocab_size, choice->end_of_text);
    if (s < 0)
        return s;
    if (gpt2 && tn_bpe_digest(b) != GPT2_DIGEST)
        return tn_error(TN_ERR_INPUT,
                        "%s has a BPE of %" PRId32 " tokens and %" PRId32 " merges that is not GPT-2's; "
                        "--tokenizer bpe takes it as it is",
                        choice->folder, b->tokens, b->merges);
    if (choice->end_of_text && b->end_of_text < 0)
        return tn_error(TN_ERR_INPUT, "the BPE of %s has no token %s, so --end-of-text cannot be had",
                        choice->folder, TN_END_OF_TEXT);
    t->vocab_size = b->tokens;
    return TN_OK;
}

static tn_status load(struct tn_tokenizer *t, const char *path, const json_t *root)
{
    struct tn_bpe *b = t->state = calloc(1, sizeof *b);

    if (!b)
        return tn_error(TN_ERR_MEMORY, "no memory for a vocabulary");
    tn_status s = tn_bpe_read(b, path, root);
    t->vocab_size = s < 0 ? 0 : b->tokens;
    return s;
}

static json_t *form(const struct tn_tokenizer *t)
{
    return tn_bpe_form(t->state);
}

static tn_status encode(const struct tn_tokenizer *t, const char *source, const unsigned char *text,
                        uint64_t bytes, int32_t *out, uint64_t *count)
{
    return tn_bpe_encode(t->state, source, text, bytes, out, count);
}

static const char *piece(const struct tn_tokenizer *t, int64_t id, uint64_t *bytes)
{
    const struct tn_bpe *b = t->state;

    *bytes = tn_bpe_bytes(b, (int32_t)id);
    return (const char *)b->text + b->start[id];
}

static int64_t end_of_text(const struct tn_tokenizer *t)
{
    return ((const struct tn_bpe *)t->state)->end_of_text;
}

const struct tn_tokenizer_kind tn_tokenizer_bpe = {.name = "bpe",
                                                   .train = train,
                                                   .load = load,
                                                   .form = form,
                                                   .encode = encode,
                                                   .cut = tn_pieces_cut,
                                                   .piece = piece,
                                                   .end_of_text = end_of_text,
                                                   .any_text = 1,
                                                   .free = tn_bpe_free};
