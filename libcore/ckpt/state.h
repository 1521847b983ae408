/* state.h - state.json: what makes a directory of files a checkpoint.
 *
 * It is written last and lists the size and the checksum of every other file, so a directory with a
 * state.json that agrees with its files is complete, and any other is not. Reading is in two steps: sizes are
 * cheap and tell whole from torn, checksums are read when the checkpoint is really to be used. */
#ifndef TN_CKPT_STATE_H
#define TN_CKPT_STATE_H
#include <jansson.h>
#include <tenon/abi.h>

struct tn_saved_file {
    const char *name;                            /* plain, in the checkpoint's directory */
    uint64_t bytes, hash;                        /* hash: XXH64 */
};

struct tn_saved {
    int64_t step;                                /* updates that were completed */
    uint64_t seed;
    const json_t *config;                        /* the resolved configuration; borrowed from root */
    const char *data;                            /* fingerprint of the data (dataset.h) */
    uint64_t tokenizer;                          /* XXH64 of tokenizer.json; 0: there was none */
    double loss_scale;                           /* of training in fp16, see train/session.h; 0: there was none */
    uint64_t loss_scale_good;                    /* updates since it changed */
    uint64_t count;
    struct tn_saved_file *file;                  /* [count] */
    json_t *root;                                /* owns all of it */
    char *dir;
};

/* Reads DIR/state.json and looks whether the files are there in their sizes. TN_ERR_INPUT and a sentence if
 * not. Free also what a failure left. */
tn_status tn_saved_read(const char *dir, struct tn_saved *out);
/* Reads every file and compares checksums. */
tn_status tn_saved_verify(const struct tn_saved *s);
/* NULL if there is no such file. */
const struct tn_saved_file *tn_saved_find(const struct tn_saved *s, const char *name);
void tn_saved_free(struct tn_saved *s);

/* The text of a state.json, owned (free); dir and root are not looked at. NULL and a sentence on failure. */
char *tn_saved_text(const struct tn_saved *s);
#endif
