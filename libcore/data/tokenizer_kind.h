/* tokenizer_kind.h - what a kind of tokenizer provides; for tokenizer.c and the kinds alone. */
#ifndef TN_DATA_TOKENIZER_KIND_H
#define TN_DATA_TOKENIZER_KIND_H
#include "data/tokenizer.h"

#include <jansson.h>

struct tn_tokenizer_kind {
    const char *name;
    /* Both set t->vocab_size and t->state. path names the file in messages. */
    tn_status (*train)(struct tn_tokenizer *t, const char *source, const unsigned char *text, uint64_t bytes);
    tn_status (*load)(struct tn_tokenizer *t, const char *path, const json_t *root);
    /* Adds the kind's keys to root; 0 is success, as with jansson. NULL: it has none. */
    int (*save)(const struct tn_tokenizer *t, json_t *root);
    tn_status (*encode)(const struct tn_tokenizer *t, const char *source, const unsigned char *text,
                        uint64_t bytes, int32_t *out, uint64_t *count);
    uint64_t (*cut)(const unsigned char *text, uint64_t bytes);
    const char *(*piece)(const struct tn_tokenizer *t, int64_t id, uint64_t *bytes);    /* id is in range */
    void (*free)(void *state);                   /* NULL: nothing to free */
};

struct tn_tokenizer {
    const struct tn_tokenizer_kind *kind;
    int64_t vocab_size;
    void *state;                                 /* the kind's */
};

extern const struct tn_tokenizer_kind tn_tokenizer_char, tn_tokenizer_byte;
#endif
