/* probe.h - what the files of tenon probe share.
 *
 *   cmd_probe.c      options, the ranks and their groups, the order of things
 *   probe_work.c     one operation from start to end, its buffers, numbers of every type
 *   probe_values.c   is what comes out right?
 *   probe_sweep.c    how fast is it? */
#ifndef TENON_PROBE_H
#define TENON_PROBE_H
#include "options.h"
#include "run/collective.h"
#include "train/engine.h"

/* The collectives by name; SEND is a send to the next rank and a receive from the one before. */
struct probe_op {
    const char *name;
    uint32_t op;
};
extern const struct probe_op probe_ops[]; /* ends with NULL */

struct probe_dtype {
    const char *name;
    uint32_t dtype, bytes;
};
extern const struct probe_dtype probe_dtypes[]; /* ends with NULL */

struct probe {
    const struct options *options;
    struct tn_engine engine;
    struct tn_world *world; /* of the engine */
    struct tn_arena *arena;
    struct tn_queue *queue;
    struct tn_collectives way; /* how collectives reach the device's memory */
    char *from, *to;           /* of the device, or, TN_STAGED, of the host */
    uint64_t sequence;
    int ops[8]; /* which of probe_ops are asked for */
};

/* A communicator and this rank's place on it. */
struct probe_group {
    const char *name; /* "the world", "dp" */
    struct tn_comm *comm;
    uint32_t n, me;
    const int64_t *ranks; /* of the world */
};

/* --- probe_work.c */
tn_status probe_buffers(struct probe *p, uint64_t bytes);
void probe_buffers_free(struct probe *p);
tn_status probe_put(struct probe *p, char *at, const void *host, uint64_t bytes);
tn_status probe_get(struct probe *p, void *host, const char *at, uint64_t bytes);
/* From start to end; words: what the others are told that this rank waits for. */
tn_status probe_do(struct probe *p, struct tn_comm *c, const struct tn_transfer *t, uint32_t n,
                   const char *words);
/* In place: the largest of all ranks. */
tn_status probe_most(struct probe *p, double *x, uint32_t n);
void probe_number_put(uint32_t dtype, void *at, uint64_t i, double value); /* rounded, or wrapped */
double probe_number_get(uint32_t dtype, const void *at, uint64_t i);
/* The number that is left of a value when it is stored as dtype. */
double probe_number(uint32_t dtype, double value);

/* --- probe_values.c */
/* Every collective that is asked for with every dtype, on one communicator. print: a line for each, on rank
 * 0. */
tn_status probe_values(struct probe *p, const struct probe_group *g, int print);

/* --- probe_sweep.c */
struct probe_point {
    const char *op;
    uint64_t bytes;
    double seconds, least; /* of the slowest rank: median, and least */
    double payload, bus;   /* bytes a second */
};
/* The list ends the call; of the world. */
tn_status probe_sweep(struct probe *p, const struct probe_group *g, const uint64_t *bytes, uint32_t n_bytes,
                      const struct probe_dtype *dtype, uint32_t warmup, uint32_t repeat,
                      struct probe_point **out, uint32_t *n);
#endif
