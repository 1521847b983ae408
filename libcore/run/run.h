/* run.h - walking a plan.
 *
 * Everything is bound when a run is opened: each launch has its pointers, so a step is a loop over a flat list of
 * function calls, without allocation, search or choice. Between the tasks of two micro-batches the pointers into
 * what differs between them are moved on. Not thread-safe: the executor's thread. */
#ifndef TN_RUN_RUN_H
#define TN_RUN_RUN_H
#include "run/memory.h"

struct tn_run;
struct tn_collectives;

/* Borrows plan and memory. seconds: the limit of one wait for the device. */
tn_status tn_run_open(const struct tn_plan *plan, struct tn_memory *memory, double seconds, struct tn_run **out);
void tn_run_close(struct tn_run *run);           /* takes; NULL is fine. The device's memory stays with the memory. */

/* Right after open. The collectives of the plan; borrowed. Where they are staged, all host memory that a step will want is
 * taken here. */
tn_status tn_run_join(struct tn_run *run, struct tn_collectives *c);
/* Later steps are replayed from what an earlier one recorded, where the launches can be recorded at all; capture may be
 * NULL: never. must: that it fails is an error, else a warning. */
void tn_run_record(struct tn_run *run, const struct tn_device_capture *capture, uint32_t must);

/* Before a step. Inputs hold all micro-batches one after the other, this rank's part of each, without gaps. What is
 * given is copied before the call returns, and stays until it is given anew. */
tn_status tn_run_input(struct tn_run *run, const char *name, const void *host, uint64_t bytes);
tn_status tn_run_symbol(struct tn_run *run, const char *name, double value);     /* fine if no expression has it */
/* The same without a search, for every step: an input of the graph; the number of a symbol, TN_NOWHERE if no expression
 * has it. */
tn_status tn_run_feed(struct tn_run *run, const struct tn_value *input, const void *host, uint64_t bytes);
uint32_t tn_run_symbol_number(const struct tn_run *run, const char *name);
void tn_run_set_symbol(struct tn_run *run, uint32_t number, double value);
void tn_run_seed(struct tn_run *run, uint64_t seed, uint64_t step);

/* A step: both halves, compute and update. Stop between them to look at the loss and the norm before parameters
 * change; both return when the device is done. */
tn_status tn_run_step(struct tn_run *run);
tn_status tn_run_compute(struct tn_run *run);
tn_status tn_run_update(struct tn_run *run);

/* The local part of a value that was kept, or of a source, row-major. micro: of what is made anew in each
 * micro-batch and of inputs that have parts, else 0. bytes: room of host, exactly tn_plan_bytes. */
tn_status tn_run_read(struct tn_run *run, const struct tn_value *v, uint32_t micro, void *host, uint64_t bytes);

/* --- looking closer (look.c): these wait after each launch, or after each list */

/* As tn_run_step; adds the seconds of each row's launches to seconds[row]. */
tn_status tn_run_step_timed(struct tn_run *run, double *seconds);

/* As tn_run_compute and tn_run_update; seconds are added. The device is waited for after each task, and after
 * each launch where rows are asked for. */
struct tn_run_times {
    double list[TN_LISTS];                       /* of all micro-batches */
    double *row;                                 /* [n_row] of the plan, or NULL */
    void (*after)(void *ctx, uint32_t row);      /* with row: when a launch is done; NULL: nothing */
    void *ctx;
};
tn_status tn_run_compute_timed(struct tn_run *run, struct tn_run_times *times);
tn_status tn_run_update_timed(struct tn_run *run, struct tn_run_times *times);

/* As tn_run_compute; between(ctx) is called once, where the first backward is next: what has run until then is done. */
tn_status tn_run_compute_seen(struct tn_run *run, tn_status (*between)(void *ctx), void *ctx);

struct tn_bad {
    const struct tn_value *value;                /* NULL: all is finite */
    const struct tn_row *row;                    /* that made it; NULL: a source */
    uint32_t micro;
    int64_t element;                             /* local, row-major */
    double number;
};

/* Is every element of a kept value or source finite? At once; for the loss and the norm. */
tn_status tn_run_finite(struct tn_run *run, const struct tn_value *v, int *out);

/* Computes again, without updating, and names the first value in program order that is not finite: sources first.
 * Call it after tn_run_compute, before the update. */
tn_status tn_run_first_nonfinite(struct tn_run *run, struct tn_bad *out);
#endif
