/* fake_session.h - session.h without graphs, plans or plugins: what a test needs to see how a run uses one.
 *
 * Two parameters, emb [vocab, n_embd] and bias [n_embd], each with a slot "m". The loss falls, every update
 * depends on its tokens, its step and everything before, and the result is exact: enough to tell a run that
 * was resumed wrongly from one that was not. It replaces session.c where it is linked. */
#ifndef TESTS_UNIT_FAKE_SESSION_H
#define TESTS_UNIT_FAKE_SESSION_H
#include "train/session.h"

struct fake {
    int64_t bad_step;                            /* the update whose loss is not finite; -1: none */
    void (*before_update)(int64_t step);         /* what happens while update `step` is made; NULL: nothing */
    const double (*score)[2];                    /* sum and count of the next evaluations, if not NULL */
    unsigned updates, applied, evaluations, logits, opened, tensors_set;
    const char *bias_name;                       /* "bias" */
    int no_bias;
    double slowest;                              /* seconds that another rank takes for an update; 0: none is slower */
    double scale;                                /* of the loss; 0: none */
    uint64_t scale_good;
};
extern struct fake fake;
#define FAKE_DEFAULT {.bad_step = -1, .bias_name = "bias"}
#endif
