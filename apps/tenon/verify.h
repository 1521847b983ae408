/* verify.h - what the files of tenon verify share.
 *
 *   cmd_verify.c       options; the ranks run, then one process alone, then the table
 *   verify_run.c       updates of one configuration, and what came out of them
 *   verify_compare.c   the differences, against what rounding may do */
#ifndef TENON_VERIFY_H
#define TENON_VERIFY_H
#include "base/arena.h"
#include "options.h"
#include "train/session.h"

struct verify_task {
    int64_t steps;
    uint64_t seed; /* of weights and tokens */
};

/* What came out. Texts and numbers in the arena; whole tensors are allocated, on rank 0. */
struct verify_result {
    struct tn_arena *arena;
    int64_t world, rank, micro_batch, vocab_size;
    struct tn_mesh mesh;
    const char *device, *kernels; /* plugins, as in the configuration */
    double lr;
    double *loss, *gnorm; /* [steps] */
    uint32_t n;           /* parameters */
    const char **name;
    int64_t *count;
    float **grad, **after; /* of step 0 before clipping; at the end. NAN: no rank had it */
    const char *replicas;  /* how ranks that hold the same differ; NULL: they do not */
};

/* All ranks together; leaves nothing open. */
tn_status verify_run(struct tn_config *c, const struct verify_task *t, const struct tn_place *place,
                     struct verify_result *out);
void verify_release(struct verify_result *r);

struct verify_row {
    const char *what, *name;
    double alone, parallel; /* where they differ most, against what is allowed */
    double most;            /* largest magnitude alone */
    double difference;      /* largest, absolute */
    double times;           /* the tolerance; above 1: too much */
    int64_t element;
};

/* Rows in the arena of `alone`. */
struct verify_row *verify_compare(const struct verify_result *alone, const struct verify_result *parallel,
                                  int64_t steps, double tolerance, int adaptive, uint32_t *n);
#endif
