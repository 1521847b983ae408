/* tokenizer.h - text to ids and back.
 *
 * A kind is one row of a table: how it learns from a text, how it stands in tokenizer.json, how it encodes,
 * and which bytes an id stands for. Tokens are bytes, not characters: decode(encode(x)) gives back every byte
 * of x, and a decoder that is fed id by id holds bytes back until a character is whole. A tokenizer never
 * changes after it is made, so any number of threads may use one. */
#ifndef TN_DATA_TOKENIZER_H
#define TN_DATA_TOKENIZER_H
#include <tenon/abi.h>

struct tn_tokenizer;

#define TN_TOKENIZER_VOCAB (1 << 20)             /* ids of a vocabulary, at most */
#define TN_TOKENIZER_BYTES (256u << 20)          /* of a file that holds one */

/* What the user asks for; borrowed. What is 0 was not asked for. */
struct tn_tokenizer_choice {
    const char *kind;                            /* one of tn_tokenizer_kinds */
    int64_t vocab_size;                          /* bpe: how many tokens to learn */
    const char *folder;                          /* bpe, gpt2: where a vocabulary is that is ready */
    int end_of_text;                             /* bpe, gpt2: <|endoftext|> in a text is a token */
};

/* Learns from text, of which the first `learn` bytes are for training; bytes may be any number. Kinds that encode
 * any text look at those alone. TN_ERR_CONFIG for an unknown kind, TN_ERR_INPUT for a text that the kind cannot
 * take; source names the text in messages. */
tn_status tn_tokenizer_train(const struct tn_tokenizer_choice *choice, const char *source, const void *text,
                             uint64_t bytes, uint64_t learn, struct tn_tokenizer **out);

/* tokenizer.json, and its text: owned by the caller (free), NULL and a sentence without memory. */
tn_status tn_tokenizer_load(const char *path, struct tn_tokenizer **out);
char *tn_tokenizer_text(const struct tn_tokenizer *t);
void tn_tokenizer_free(struct tn_tokenizer *t);

const char *tn_tokenizer_kind(const struct tn_tokenizer *t);
int64_t tn_tokenizer_vocab_size(const struct tn_tokenizer *t);
/* "char, byte, bpe, gpt2" */
const char *tn_tokenizer_kinds(void);

/* out: at least bytes ids; *count says how many there are. Source names the text in messages ("prompt"). */
tn_status tn_tokenizer_encode(const struct tn_tokenizer *t, const char *source, const void *text,
                              uint64_t bytes, int32_t *out, uint64_t *count);

/* The id of <|endoftext|>, -1 where there is none. In a text that is encoded these are characters as any others: a
 * text must not be able to end a document by talking of it. */
int64_t tn_tokenizer_end_of_text(const struct tn_tokenizer *t);

/* The largest place up to which a text can be encoded apart from what follows it, at most bytes; 0: there is none,
 * more of the text is needed. For texts that are encoded in pieces. */
uint64_t tn_tokenizer_cut(const struct tn_tokenizer *t, const void *text, uint64_t bytes);

/* The bytes of one id, borrowed from t; NULL for an id outside the vocabulary. */
const char *tn_tokenizer_piece(const struct tn_tokenizer *t, int64_t id, uint64_t *bytes);

/* Decoding as the ids come. Borrows t. The text is borrowed until the next call and may be empty; it ends
 * with a 0 that bytes does not count. Flush gives what was held at the end. */
struct tn_decoder;
tn_status tn_decoder_new(const struct tn_tokenizer *t, struct tn_decoder **out);
tn_status tn_decoder_put(struct tn_decoder *d, int64_t id, const char **text, uint64_t *bytes);
void tn_decoder_flush(struct tn_decoder *d, const char **text, uint64_t *bytes);
void tn_decoder_free(struct tn_decoder *d);
#endif
