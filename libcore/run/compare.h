/* compare.h - debug mode: do all ranks of a group begin the same collective?
 *
 * A collective that differs between its ranks hangs, mixes up numbers or ends in a sentence about sizes, far
 * from where it went wrong. With backend.debug each rank first says what it is about to do: which node, which
 * operation, type and count, as the how many. The ranks of a collective tell each other; a send says it to
 * its receiver, in front of the data, and never waits for an answer, so pipelines go as they would. */
#ifndef TN_RUN_COMPARE_H
#define TN_RUN_COMPARE_H
#include <tenon/comm.h>
#include "world/world.h"

struct tn_compare;
struct tn_compare_ticket; /* words of senders that are on their way */

struct tn_compare *tn_compare_new(struct tn_world *world, const struct tn_comm_api *comm, double seconds);
void tn_compare_free(struct tn_compare *c); /* takes; NULL is fine */

/* Before the list is started on this group, which is along the axis; words: the node. TN_ERR names ranks and
 * what they do. What is received is compared by end, before the wait for it; *out is NULL where nothing is.
 */
tn_status tn_compare_start(struct tn_compare *c, struct tn_comm *group, int axis,
                           const struct tn_transfer *list, uint32_t n, const char *words,
                           struct tn_compare_ticket **out);
tn_status tn_compare_end(struct tn_compare *c, struct tn_compare_ticket **ticket); /* takes, and sets NULL */
#endif
