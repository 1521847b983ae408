/* measure.h - how fast a session trains, and how fast the machine would let it.
 *
 *   steps      whole updates on random tokens: time, its phases, page faults, memory   (measure.c)
 *   nodes      the launches of a step one by one, alike ones together                  (measure_nodes.c)
 *   products   matrix products of the step's own shapes, and a large square one,
 *              through the same kernel plugins                                         (measure_products.c)
 *   timeline   resident memory after each launch of the first update, beside the plan's     (measure_timeline.c)
 *   memory     how fast large arrays are read and written                              (measure_memory.c)
 *
 * Medians, since machines are shared. Measure steps first: what the other three allocate would count as
 * memory of the step. What comes out lives in the arena given. Main thread. */
#ifndef TENON_TRAIN_MEASURE_H
#define TENON_TRAIN_MEASURE_H
#include "base/arena.h"
#include "train/session.h"

/* Seconds since some moment. */
double tn_measure_now(void);
double tn_measure_median(const double *x, uint32_t n); /* 0 of none */

/* --- whole updates */

enum {
    TN_PHASE_DATA,
    TN_PHASE_FORWARD,
    TN_PHASE_BACKWARD,
    TN_PHASE_OPTIMIZER,
    TN_PHASE_OTHER,
    TN_MEASURE_PHASES
};
extern const char *const tn_measure_phase_name[TN_MEASURE_PHASES];

struct tn_measure_options {
    uint32_t warmup, steps; /* warmup: updates that do not count, at least 1 */
    uint64_t seed;          /* of the tokens */
};

struct tn_measure {
    double *seconds; /* [steps]; of the slowest rank, and so are all that follow from them */
    uint32_t steps;
    double first; /* seconds of the first update */
    double median, low, high;
    double phase[TN_MEASURE_PHASES]; /* medians; of this rank, and what stands below of memory too */
    double tokens, flops; /* of an update, of all ranks; flops of the model: 6N + 6LCT for each token */
    double first_loss, last_loss;
    double minor_faults, major_faults,
        allocations;         /* of an update, after the warm-up; allocations -1: not counted */
    uint64_t planned, arena; /* bytes; planned: all that is allocated on the device */
    uint64_t rss, rss_peak;  /* bytes of the process after the last update */
    uint64_t device_bytes;   /* taken of a device whose memory is not the host's, libraries and all; else 0 */
    double peak;             /* operations a second that the device says it can, in the step's dtype; 0: it does not */
};

/* The session is open for TRAIN and has weights. A step that is skipped is an error. */
tn_status tn_measure_steps(struct tn_session *s, const struct tn_measure_options *o, struct tn_arena *arena,
                           struct tn_measure *out);

/* One more update, traced: train/trace.h. */
struct tn_trace_told;
tn_status tn_measure_trace(struct tn_session *s, const char *folder, uint64_t step, uint64_t seed, struct tn_arena *arena,
                           struct tn_trace_told *told);

/* --- launches */

/* Rows of the plan that do the same: operation, role, list, kernel, shapes. */
struct tn_measure_node {
    const char *op, *role, *unit, *list, *kernel, *shape; /* unit: of the first one */
    uint32_t rows, launches;                              /* launches: of an update */
    uint32_t merged;                                      /* nodes in one row */
    double seconds, flops, bytes; /* of an update, all rows; seconds: median of updates */
};

/* In the order of the program. seconds: of all nodes. */
tn_status tn_measure_nodes(struct tn_session *s, uint32_t steps, uint64_t seed, struct tn_arena *arena,
                           struct tn_measure_node **out, uint32_t *n, double *seconds);

/* --- memory, launch by launch */

/* One update, the first of this session: bytes that are resident after each row, less those before the first one, the last
 * time that the row ran; [n_row] of the plan. Of host memory: on a device with memory of its own it says nothing, and
 * *out is NULL. What the arena is touched by for the first time shows, what is given back does not: it is one block. */
tn_status tn_measure_timeline(struct tn_session *s, uint64_t seed, struct tn_arena *arena, uint64_t **out);

/* --- products */

struct tn_measure_product {
    const char *text, *kernel; /* "768 x 384 x 128: batch seq embd . heads embd" */
    uint32_t count;            /* in an update */
    double flops, seconds;     /* of one */
};

/* The step's products, each shape once. */
tn_status tn_measure_products(struct tn_session *s, struct tn_arena *arena, struct tn_measure_product **out,
                              uint32_t *n);
/* One of n x n x n; n is made smaller where it would take longer than a few seconds. low: in the step's dtype, else in
 * fp32. */
tn_status tn_measure_square(struct tn_session *s, uint32_t n, uint32_t low, struct tn_arena *arena,
                            struct tn_measure_product *out, uint32_t *side);
/* Their rate, weighted by the work that the step has of each: FLOP/s. */
double tn_measure_rate(const struct tn_measure_product *p, uint32_t n);

/* --- memory */

/* Bytes a second of a = b + s c on all threads, read and written; of a copy where the device's memory is not
 * the host's. */
tn_status tn_measure_memory(struct tn_session *s, double *rate);
#endif
