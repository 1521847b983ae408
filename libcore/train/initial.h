/* initial.h - the first weights. */
#ifndef TENON_TRAIN_INITIAL_H
#define TENON_TRAIN_INITIAL_H
#include "graph/graph.h"

/* out: the elements that this rank holds, as local says, in its order. Element i of the whole tensor is a function of
 * (seed, parameter, i) alone, so no rank ever makes more than its part. */
void tn_initial_weights(const struct tn_param *p, const struct tn_local *local, uint64_t seed, float *out);
#endif
