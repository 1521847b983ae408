/* evaluate.h - the loss on text that is not trained on.
 *
 * A mean over tokens, not over batches: the sums and the counts of all batches are added, and divided once.
 * So the result is the same however the windows are cut into micro-batches, and training sees nothing of it:
 * the windows are those of the sampler's evaluation stream, always the same, and no generator has a state. */
#ifndef TN_TRAIN_EVALUATE_H
#define TN_TRAIN_EVALUATE_H
#include "data/sampler.h"
#include "train/session.h"

struct tn_mean {
    double sum, count;                           /* of token losses; of valid tokens */
};
/* 0 where no token counts. */
double tn_mean_value(const struct tn_mean *m);

/* Windows first … first + count - 1 of the evaluation, count a multiple of the session's micro_batch, are
 * added to m. tokens, targets: room for [micro_batch, seq_len]. */
tn_status tn_evaluate(struct tn_session *s, const struct tn_sampler *sampler, int64_t first, int64_t count,
                      int32_t *tokens, int32_t *targets, struct tn_mean *m);
#endif
