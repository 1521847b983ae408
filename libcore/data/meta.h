/* meta.h - meta.json: what a data directory holds.
 *
 * Written by prepare beside train.bin and val.bin, which say nothing about themselves. The hashes tie the
 * token files to their tokenizer, and a checkpoint to its data. */
#ifndef TN_DATA_META_H
#define TN_DATA_META_H
#include <tenon/abi.h>

struct tn_meta {
    char tokenizer[32];                          /* kind */
    int64_t vocab_size;
    uint32_t width;                              /* bytes of a token: 2 uint16, 4 uint32 */
    uint64_t train_tokens, val_tokens;
    uint64_t tokenizer_hash, train_hash, val_hash;    /* XXH64 of the files */
};

/* TN_DECLINED without a word if there is no file. */
tn_status tn_meta_load(const char *path, struct tn_meta *out);

/* The text of meta.json, owned by the caller (free); NULL and a sentence without memory. */
char *tn_meta_text(const struct tn_meta *m);

/* 16 hex digits, as all hashes are written. */
#define TN_HASH_TEXT 17
void tn_hash_text(uint64_t hash, char out[TN_HASH_TEXT]);
/* 0 if text is not exactly 16 hex digits. */
int tn_hash_parse(const char *text, uint64_t *out);
#endif
