/* prepare.h - a text file becomes a data directory.
 *
 * The directory appears whole: files are written under another name, renamed last. The same text again is
 * "already prepared"; another text, or other choices, into a directory that is in use needs force. The text
 * is split as nanoGPT splits it: of n characters, the first int(n · (1 - val_fraction)) are for training. */
#ifndef TN_DATA_PREPARE_H
#define TN_DATA_PREPARE_H
#include "data/meta.h"

struct tn_prepare {
    const char *input, *out;                     /* a text file; a directory, made if it is not there */
    const char *tokenizer;                       /* kind; what follows is of tn_tokenizer_choice */
    int64_t vocab_size;
    const char *bpe_dir;
    int end_of_text;
    double val_fraction;                         /* above 0, below 1 */
    int force;
};

/* meta describes what lies in the directory now. *already is 1 if nothing had to be written. */
tn_status tn_prepare(const struct tn_prepare *p, struct tn_meta *meta, int *already);

/* Bytes of the part that is for training. Characters are UTF-8 ones; a text that is not UTF-8 is counted by
 * bytes. */
uint64_t tn_prepare_split(const unsigned char *text, uint64_t bytes, double val_fraction);
#endif
