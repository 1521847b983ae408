/* bpe.h - byte pair encoding: ids of bytes, and merges that make two neighbours one, lowest rank first.
 *
 * For the files bpe*.c alone. A piece of text (splitter.h) begins as one token a byte; of all neighbours that
 * a merge joins, the one of lowest rank is joined, the leftmost of equals, until none is left. That is
 * GPT-2's, tiktoken's and Hugging Face's rule, and every way in which it is done here gives the same ids.
 *
 * A byte is spelled as a printable character in files ("Ġ" is the blank), so a token is a JSON string. Tokens
 * that were added (<|endoftext|>) are spelled as they are, no merge makes them, and a text that has one in it
 * is a text: only who asks for it (tn_pieces_document) gets its id. */
#ifndef TN_DATA_BPE_H
#define TN_DATA_BPE_H
#include "data/tokenizer_kind.h"

struct tn_bpe_merge {
    int32_t left, right, out;
};
struct tn_bpe_slot {
    uint64_t pair;
    int32_t rank;
};

/* Of an added token, as Hugging Face's files have them; they are kept, and mean nothing here. */
enum {
    TN_BPE_ADDED = 1,
    TN_BPE_SINGLE = 2,
    TN_BPE_LSTRIP = 4,
    TN_BPE_RSTRIP = 8,
    TN_BPE_NORMALIZED = 16,
    TN_BPE_SPECIAL = 32
};
#define TN_BPE_FLAGS 5
struct tn_bpe_flag {
    const char *key;
    unsigned char flag;
};
extern const struct tn_bpe_flag tn_bpe_flags[TN_BPE_FLAGS];

struct tn_bpe_scratch;

struct tn_bpe {
    int32_t tokens, merges;
    unsigned char *text;                         /* bytes of all tokens, by id */
    uint64_t *start;                             /* [tokens + 1] in text */
    unsigned char *flags;                        /* [tokens] 0, or TN_BPE_ADDED and what else holds */
    struct tn_bpe_merge *merge;                  /* [merges] by rank */
    /* what tn_bpe_finish makes of these */
    int32_t byte[256];                           /* id of each byte */
    int32_t end_of_text;                         /* or -1 */
    struct tn_bpe_slot *slot;                    /* [mask + 1] open addressing; pair UINT64_MAX: empty */
    uint64_t mask;
    uint64_t joined[1024];                       /* bit a * 256 + b: some merge has byte a left of byte b */
    struct tn_bpe_scratch *_Atomic spare;        /* NULL: in use */
};

static inline uint64_t tn_bpe_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline uint64_t tn_bpe_hash(uint64_t pair)
{
    pair *= 0x9E3779B97F4A7C15u;
    return pair ^ pair >> 29;
}

/* The rank of the merge of these two, INT32_MAX if there is none. */
static inline int32_t tn_bpe_rank(const struct tn_bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = tn_bpe_pair(left, right), at = tn_bpe_hash(pair) & b->mask;

    while (b->slot[at].pair != pair && b->slot[at].pair != UINT64_MAX)
        at = (at + 1) & b->mask;
    return b->slot[at].pair == pair ? b->slot[at].rank : INT32_MAX;
}

static inline uint32_t tn_bpe_bytes(const struct tn_bpe *b, int32_t id)
{
    return (uint32_t)(b->start[id + 1] - b->start[id]);
}

/* bpe.c. Everything above "finish" is set; path names the origin in messages. */
tn_status tn_bpe_finish(struct tn_bpe *b, const char *path);
void tn_bpe_free(void *bpe);
uint64_t tn_bpe_digest(const struct tn_bpe *b);  /* of tokens and merges, however they were spelled */
/* The id that GPT-2 gives to a byte: printable ones first. */
int32_t tn_bpe_byte_id(unsigned char byte);

/* bpe_spell.c. out has 2 chars for a byte, and 1; returns their number. Back: 1 byte for each; -1: not so
 * spelled. */
size_t tn_bpe_spell(const unsigned char *text, size_t bytes, char *out);
int64_t tn_bpe_unspell(const char *spelled, unsigned char *out);

/* bpe_train.c, bpe_json.c, bpe_files.c: each fills b and finishes it. bpe_form.c: all of tokenizer.json, owned by
 * the caller. */
tn_status tn_bpe_train(struct tn_bpe *b, const char *source, const unsigned char *text, uint64_t bytes,
                       int64_t vocab_size, int end_of_text);
tn_status tn_bpe_read(struct tn_bpe *b, const char *path, const json_t *root);
tn_status tn_bpe_read_parts(struct tn_bpe *b, const char *path, json_t *vocab, const json_t *merges,
                            const json_t *added);
json_t *tn_bpe_form(const struct tn_bpe *b);
tn_status tn_bpe_open(struct tn_bpe *b, const char *dir);

/* bpe_encode.c. out: one id for each byte at most. */
tn_status tn_bpe_encode(struct tn_bpe *b, const char *source, const unsigned char *text, uint64_t bytes,
                        int32_t *out, uint64_t *count);
void tn_bpe_scratch_free(struct tn_bpe_scratch *s);

/* bpe_long.c: one stretch of a piece, of any length below 2^31 - 1, in time linear in it. The state is made
 * for b's merges at the first use, and belongs to one thread at a time. */
struct tn_bpe_long {
    int32_t *head, *tail;                        /* [merges] */
    int32_t *heap;                               /* [merges] ranks */
    unsigned char *queued;                       /* [merges] is it in the heap? */
    uint64_t heap_count;
    int32_t *next, *prev;                        /* [room] by position */
    uint64_t room;
};
tn_status tn_bpe_merge_long(const struct tn_bpe *b, struct tn_bpe_long *l, const unsigned char *text,
                            uint64_t bytes, int32_t *out, uint64_t *count);
void tn_bpe_long_free(struct tn_bpe_long *l);

/* bpe_words.c: the different pieces of a text, with their number. Borrows the text. */
struct tn_bpe_word {
    const unsigned char *text;
    uint64_t bytes, hash;
    int64_t count;
};
struct tn_bpe_words {
    struct tn_bpe_word *word;
    uint64_t count, room;
    uint64_t *slot, slots; /* 0: empty, else 1 + index of a word; slots is a power of two */
};
tn_status tn_bpe_words_count(struct tn_bpe_words *w, const unsigned char *text, uint64_t bytes,
                             int documents);
void tn_bpe_words_free(struct tn_bpe_words *w);
#endif
