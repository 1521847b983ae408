/* sampler.h - which tokens are sequence i of update s.
 *
 * The answer is a pure function of (seed, order, s, i) with i counted over the global batch, so it does not
 * depend on how the batch is cut over ranks and micro-batches, and a resumed run goes on with the same
 * windows. A window is seq_len + 1 tokens: inputs are the first seq_len, targets the last. It never crosses
 * the end of the file.
 *
 * random   nanoGPT's: every window starts anywhere, uniformly, independent of all others.
 * shuffle  epochs: the file is cut into windows that do not overlap (each starts with the last target of the
 * one before; what is left at the end, fewer than seq_len tokens, is not used), and an epoch takes each once,
 *          in an order of its own. Sequences are counted through, s · global_batch + i, so a batch may begin
 * in one epoch and end in the next, or go through several when the data are few. eval     sequence j of an
 * evaluation: like random, in a stream of its own and without a step, so every evaluation takes the same
 * windows and training is not disturbed. */
#ifndef TN_DATA_SAMPLER_H
#define TN_DATA_SAMPLER_H
#include "data/tokens.h"

#define TN_ORDER_RANDOM 1u
#define TN_ORDER_SHUFFLE 2u

struct tn_sampler {
    struct tn_tokens *tokens;                    /* borrowed */
    uint64_t seed;
    int64_t seq_len, global_batch;
    uint32_t order;                              /* TN_ORDER_* */
    uint32_t stream;                             /* of the random numbers */
};

/* split ("train", "val") keeps the evaluations of two parts apart. TN_ERR_INPUT if the tokens are fewer than
 * one window. */
tn_status tn_sampler_init(struct tn_tokens *tokens, const char *split, uint32_t order, uint64_t seed,
                          int64_t seq_len, int64_t global_batch, struct tn_sampler *out);

/* First token of sequence i of update step; of sequence j of an evaluation. */
uint64_t tn_sampler_start(const struct tn_sampler *s, uint64_t step, uint64_t i);
uint64_t tn_sampler_eval_start(const struct tn_sampler *s, uint64_t j);

/* Sequences first … first + count - 1: tokens, targets [count][seq_len], row-major. */
tn_status tn_sampler_fill(const struct tn_sampler *s, uint64_t step, uint64_t first, uint64_t count,
                     int32_t *tokens, int32_t *targets);
tn_status tn_sampler_eval_fill(const struct tn_sampler *s, uint64_t first, uint64_t count, int32_t *tokens,
                          int32_t *targets);

/* Windows of an epoch of the shuffled order. */
uint64_t tn_sampler_windows(const struct tn_sampler *s);
#endif
