/* whole.h - a tensor between its ranks and one place.
 *
 * What is written to a file or compared is the whole tensor; what a rank holds is a part, given by layouts and mesh. Rank
 * 0 receives one tensor at a time from the ranks that own its parts (of replicas the first), so no other rank ever has
 * more than its part, and rank 0 one whole tensor beside it. */
#ifndef TENON_TRAIN_WHOLE_H
#define TENON_TRAIN_WHOLE_H
#include "graph/graph.h"
#include "world/world.h"

/* All ranks together. held: what this rank holds of v. whole: room for all of it on rank 0, not used elsewhere. */
tn_status tn_whole_gather(struct tn_world *w, const struct tn_value *v, const void *held, void *whole);
/* This rank's part of a whole tensor. */
void tn_whole_cut(const struct tn_world *w, const struct tn_value *v, const void *whole, void *held);
/* Elements of so many bytes, as a rank with l has them, to their places in the whole. */
void tn_whole_place(const struct tn_value *v, uint64_t width, const struct tn_local *l, const void *held, void *whole);
/* Does the rank that sees this mesh give its part? The first of those that hold the same does. */
int tn_whole_owns(const struct tn_value *v, const struct tn_mesh *m);
/* Is it so on any rank? All ranks together. */
tn_status tn_whole_any(struct tn_world *w, int here, int *anywhere);
/* In place, each the largest of all ranks. All ranks together. */
tn_status tn_whole_most(struct tn_world *w, double *x, uint32_t n);
/* Starts one transfer and waits for it; what says it in words, peer: a rank of the world or -1. */
tn_status tn_whole_transact(struct tn_world *w, struct tn_comm *c, const struct tn_transfer *t,
                            const char *what, int64_t peer);
#endif
