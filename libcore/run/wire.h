/* wire.h - what a plan sends: its collectives, alike ones together, before anything was sent.
 *
 * Bytes are those that a ring would send from this rank (run/collective.h), so they do not depend on the
 * communicator, and are what a run counts (tn_session_sent). */
#ifndef TN_RUN_WIRE_H
#define TN_RUN_WIRE_H
#include "plan/plan.h"

struct tn_wire {
    const char *op, *axis, *role, *list; /* list: the part of the step, tn_list_name */
    int64_t ranks;                       /* of the group */
    uint32_t dtype;
    uint32_t times;   /* in an update */
    int64_t elements; /* of one, on this rank: the larger of what goes in and what comes out */
    double bytes;     /* of an update */
};

/* In the order of the program; texts and list in the arena. */
void tn_wire_list(const struct tn_plan *plan, struct tn_arena *arena, struct tn_wire **out, uint32_t *n);
double tn_wire_bytes(const struct tn_wire *w, uint32_t n, const char *axis); /* axis NULL: all */
#endif
