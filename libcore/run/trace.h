/* trace.h - one step with a note of when everything began and ended: who works when, and who waits.
 *
 * The executor's thread is watched: each launch, each start of a collective, each wait. A collective itself ends out
 * of its sight, so what is noted of it, its flight, goes from the beginning of its start to the end of the wait for it:
 * no shorter than it was. After each launch the device is waited for, else its time would be that of handing it over.
 * Room for all of it is taken before. A walk of its own (trace.c), so that the normal one does not ask. */
#ifndef TN_RUN_TRACE_H
#define TN_RUN_TRACE_H
#include "base/arena.h"
#include "run/run.h"

#define TN_SPAN_TASK 0u                          /* a list for one micro-batch, with all that is launched in it */
#define TN_SPAN_COMPUTE 1u
#define TN_SPAN_START 2u                         /* copies what is sent into order, and begins */
#define TN_SPAN_WAIT 3u                          /* until it is done, and copied out of order */
#define TN_SPAN_FLIGHT 4u                        /* row: of the start */

struct tn_span {
    double begin, end;                           /* CLOCK_MONOTONIC, seconds. A flight nobody waited for has no end: 0 */
    uint32_t kind, row, task;                    /* of the plan; row TN_NOWHERE: TN_SPAN_TASK */
};

struct tn_trace {
    const struct tn_plan *plan;                  /* borrowed */
    struct tn_span *span;                        /* in the order of beginnings */
    uint32_t n, room;
    struct tn_trace_flight *open;                /* under way: [n_open] */
    uint32_t n_open;
    double begin, end;                           /* of the update, for the caller to set */
};

/* Empty, with room for one step of the run. In the arena. */
struct tn_trace *tn_trace_new(const struct tn_run *run, struct tn_arena *arena);
/* As tn_run_compute and tn_run_update; spans are added. */
tn_status tn_run_compute_traced(struct tn_run *run, struct tn_trace *trace);
tn_status tn_run_update_traced(struct tn_run *run, struct tn_trace *trace);

/* Seconds. Exposed: the executor's in starts and waits. Communication: in which at least one flight was under way; exposed
 * is part of it, and what is not is behind launches, so 1 - exposed/communication of it is hidden, at most: flights
 * may have ended earlier. */
struct tn_trace_sums {
    double whole, compute, communication, exposed, wait;         /* wait: the part of exposed in waits */
    uint32_t flights, lost;                      /* lost: nobody waited for them */
};
void tn_trace_sum(const struct tn_trace *trace, struct tn_trace_sums *out);
#endif
