/* measure_own.h - what the measurements of a session share. */
#ifndef TENON_TRAIN_MEASURE_OWN_H
#define TENON_TRAIN_MEASURE_OWN_H
#include "train/measure.h"

struct tn_feed {
    struct tn_session *session;
    int32_t *tokens, *targets; /* [global_batch, seq_len] */
    int64_t count, vocab;
    uint64_t seed, step;
};

void tn_feed_new(struct tn_feed *f, struct tn_session *s, uint64_t seed, struct tn_arena *arena);
/* The next update. Adds to times; the time of drawing tokens to times->feed. */
tn_status tn_feed_step(struct tn_feed *f, struct tn_session_times *times, struct tn_session_result *result);
#endif
