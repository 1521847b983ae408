/* tokenizer_kind.h - what a kind of tokenizer provides; for tokenizer.c and the kinds alone. */
#ifndef TN_DATA_TOKENIZER_KIND_H
#define TN_DATA_TOKENIZER_KIND_H
#include "data/tokenizer.h"

#include <jansson.h>

struct tn_tokenizer_kind {
    const char *name;
    /* Both set t->vocab_size and t->state. path names the file in messages. */
    tn_status (*train)(struct tn_tokenizer *t, const struct tn_tokenizer_choice *choice, const char *source,
                       const unsigned char *text, uint64_t bytes);
    tn_status (*load)(struct tn_tokenizer *t, const char *path, const json_t *root);
    /* Adds the kind's keys to root; 0 is success, as with jansson. NULL: it has none. */
    int (*save)(const struct tn_tokenizer *t, json_t *root);
    /* All of tokenizer.json, owned by the caller, of a kind that has a form of its own. NULL: kind, version, save. */
    json_t *(*form)(const struct tn_tokenizer *t);
    tn_status (*encode)(const struct tn_tokenizer *t, const char *source, const unsigned char *text,
                        uint64_t bytes, int32_t *out, uint64_t *count);
    uint64_t (*cut)(const unsigned char *text, uint64_t bytes);
    int64_t (*end_of_text)(const struct tn_tokenizer *t);    /* NULL: there is none */
    const char *(*piece)(const struct tn_tokenizer *t, int64_t id, uint64_t *bytes);    /* id is in range */
    int any_text;                                /* encodes what it never saw, so it learns from the training part */
    void (*free)(void *state);                   /* NULL: nothing to free */
};

struct tn_tokenizer {
    const struct tn_tokenizer_kind *kind;
    int64_t vocab_size;
    void *state;                                 /* the kind's */
};

extern const struct tn_tokenizer_kind tn_tokenizer_char, tn_tokenizer_byte, tn_tokenizer_bpe;
#endif
