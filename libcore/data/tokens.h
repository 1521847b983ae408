/* tokens.h - one file of token ids.
 *
 * nanoGPT's layout: bare little-endian uint16 or uint32, no header. Opening reads the whole file once: every
 * id is below the vocabulary, and the hash says which data it is. Later reads go through the page cache and are
 * checked again, for a file may be cut short or written over while a run of days reads it: that is an error with a
 * sentence, where a memory map would be a signal, and an id beyond the vocabulary a row beyond a table. All counts
 * and offsets are 64 bits. One thread at a time. */
#ifndef TN_DATA_TOKENS_H
#define TN_DATA_TOKENS_H
#include <tenon/abi.h>

struct tn_tokens {
    char *path;                                  /* owned; for messages */
    int fd;
    uint32_t width;                              /* bytes of one: 2 or 4 */
    uint32_t limit;                              /* ids are below */
    uint32_t max_id;                             /* 0 in an empty file */
    uint64_t count;                              /* tokens */
    uint64_t hash;                               /* XXH64 of the file */
};

/* vocab_size 0: any id that int32 can hold. On failure out is zeroed; closing that is harmless. */
tn_status tn_tokens_open(const char *path, uint32_t width, int64_t vocab_size, struct tn_tokens *out);
void tn_tokens_close(struct tn_tokens *t);

/* TN_OK if there is one window: seq_len tokens and the one that follows. */
tn_status tn_tokens_fit(const struct tn_tokens *t, int64_t seq_len);

/* out [count] = tokens start, start + 1, ...; start + count <= t->count is the caller's promise. TN_ERR_INPUT: the
 * file is not what it was. */
tn_status tn_tokens_read(const struct tn_tokens *t, uint64_t start, uint64_t count, int32_t *out);
#endif
