/* schedule.h - the learning rate of every update, as a function of its number.
 *
 * No state: a run that resumes asks for update s and gets what an uninterrupted run got. Warm-up first, as
 * nanoGPT has it: update i of w gets lr (i + 1) / (w + 1), so none is wasted on a rate of 0. Then, from the
 * end of the warm-up to update `steps`,
 *
 *   constant   lr, for ever
 *   cosine     half a cosine from lr down to min_lr
 *   linear     a straight line from lr down to min_lr
 *   wsd        lr, then a straight line to min_lr over the last `decay` updates
 *
 * and min_lr for all updates from `steps` on. A warm-up longer than the run is simply not finished. */
#ifndef TN_TRAIN_SCHEDULE_H
#define TN_TRAIN_SCHEDULE_H
#include "base/config.h"

#define TN_SCHEDULE_CONSTANT 0u
#define TN_SCHEDULE_COSINE 1u
#define TN_SCHEDULE_LINEAR 2u
#define TN_SCHEDULE_WSD 3u

struct tn_schedule {
    uint32_t kind;                               /* TN_SCHEDULE_* */
    double lr, min_lr;
    int64_t warmup, steps, decay;                /* updates */
};

/* Reads the keys of [schedule], optimizer.lr and train.steps. What does not fit together becomes a problem of
 * the configuration (tn_config_problem); call it before the check. */
void tn_schedule_check(struct tn_config *c);
void tn_schedule_read(const struct tn_config *c, struct tn_schedule *out);

/* Of update i; the first is 0. */
double tn_schedule_lr(const struct tn_schedule *s, int64_t i);
#endif
