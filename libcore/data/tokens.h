/* tokens.h - one file of token ids, memory mapped.
 *
 * nanoGPT's layout: bare little-endian uint16 or uint32, no header. Opening reads the whole file once: every
 * id is below the vocabulary from then on, so nothing later has to check, and the hash says which data it is.
 * All counts and offsets are 64 bits. Pages are given back after every TN_TOKENS_RESIDENT bytes, so that a
 * long run over a large file stays small in memory. One thread at a time. */
#ifndef TN_DATA_TOKENS_H
#define TN_DATA_TOKENS_H
#include "data/mapping.h"

#define TN_TOKENS_RESIDENT (64ull << 20)

struct tn_tokens {
    struct tn_mapping map;
    uint64_t count;                              /* tokens */
    uint32_t width;                              /* bytes of one: 2 or 4 */
    uint32_t max_id;                             /* 0 in an empty file */
    uint64_t hash;                               /* XXH64 of the file */
    uint64_t touched;                            /* bytes that reads may have made resident */
};

/* vocab_size 0: any id that int32 can hold. On failure out is zeroed; closing that is harmless. */
tn_status tn_tokens_open(const char *path, uint32_t width, int64_t vocab_size, struct tn_tokens *out);
void tn_tokens_close(struct tn_tokens *t);

/* TN_OK if there is one window: seq_len tokens and the one that follows. */
tn_status tn_tokens_fit(const struct tn_tokens *t, int64_t seq_len);

/* out [count] = tokens start, start + 1, ...; start + count <= t->count is the caller's promise. */
void tn_tokens_read(struct tn_tokens *t, uint64_t start, uint64_t count, int32_t *out);
#endif
