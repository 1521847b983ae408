/* trace.h - one update as a timeline of every rank, in the trace-event format of Chrome.
 *
 * Each rank writes FOLDER/trace-rank-N.json: in chrome://tracing or ui.perfetto.dev a process of this number, with a row of
 * the executor's thread (the update, in it tasks, in them launches, starts and waits) and rows of the collectives, as
 * many as were under way at once.
 *
 * Clocks: time 0 is the end of a reduction over all ranks just before the update. No rank leaves it before the last
 * one has come, so zeros are no further apart than it took; the shortest of several is used, and told as the precision. */
#ifndef TN_TRAIN_TRACE_H
#define TN_TRAIN_TRACE_H
#include "run/trace.h"
#include "train/session.h"

struct tn_trace_told {                           /* of the rank that computed longest, the same on all ranks */
    struct tn_trace_sums sums;
    int64_t rank;
    double precision;                            /* seconds */
};

/* As tn_session_update, and writes the file. One that cannot be written is a warning. All ranks together. */
tn_status tn_trace_update(struct tn_session *s, const char *folder, uint64_t step, const int32_t *tokens, const int32_t *targets,
                          double lr, struct tn_session_result *result, struct tn_trace_told *told);
/* The line about it. Returns out. */
const char *tn_trace_line(const struct tn_trace_told *told, uint64_t step, char *out, size_t bytes);

/* The whole file. rank, mesh: of the plan. zero: of the clock. Returns owned; NULL: no memory. */
struct json_t *tn_trace_json(const struct tn_trace *t, uint64_t step, double zero, double precision);
#endif
