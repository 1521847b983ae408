/* choose.h - the next token, drawn from logits.
 *
 * temperature divides the logits (0: the largest, no draw at all); of the probabilities, top_k keeps the k
 * largest, then top_p the fewest largest that make p of the rest. What is drawn at a position is a function
 * of the seed and the position alone. Equal logits: the smaller id first, so that the result is the same
 * everywhere. */
#ifndef TN_TRAIN_CHOOSE_H
#define TN_TRAIN_CHOOSE_H
#include <tenon/abi.h>

struct tn_choice {
    double temperature;
    int64_t top_k;                               /* 0, or more than there are: all */
    double top_p;                                /* 0: the largest only; 1: all */
    uint64_t seed;
};

struct tn_chooser;
tn_status tn_chooser_new(int64_t vocab, const struct tn_choice *choice, struct tn_chooser **out);
void tn_chooser_free(struct tn_chooser *c);      /* NULL is fine */

/* logits [vocab], of the token at this position. TN_ERR_NUMBER if one of them is not finite. */
tn_status tn_choose(struct tn_chooser *c, const float *logits, int64_t position, int64_t *id);
#endif
