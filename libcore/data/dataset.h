/* dataset.h - a data directory: train.bin, val.bin, meta.json, tokenizer.json.
 *
 * Everything about the data that can be wrong is found when it is opened, before step 0: lengths, widths, ids
 * outside the vocabulary, files that are not those that meta.json was written for. Without meta.json the two
 * .bin files are taken as nanoGPT's (uint16), and the model's vocabulary is the limit. */
#ifndef TN_DATA_DATASET_H
#define TN_DATA_DATASET_H
#include "data/tokens.h"

struct tn_dataset {
    struct tn_tokens train, val;
    int64_t vocab_size; /* of the tokenizer; the model's where there is no meta.json */
    uint64_t tokenizer_hash;                     /* XXH64 of tokenizer.json; 0 where there is no meta.json */
    char tokenizer[32];                          /* kind; "" where there is no meta.json */
    char fingerprint[48];                        /* "train=HASH val=HASH": equal texts, equal data */
};

/* vocab_size is the model's, at least the tokenizer's; 0 takes the tokenizer's. out is zeroed on failure. */
tn_status tn_dataset_open(const char *dir, int64_t vocab_size, int64_t seq_len, struct tn_dataset *out);
void tn_dataset_close(struct tn_dataset *d);
#endif
