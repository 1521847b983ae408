/* collective.h - collectives of the graph on a communicator.
 *
 * Here each becomes at most three things, prepared once: boxes copied into the order of ranks, one group of transfers,
 * boxes copied out. Its start does the first and begins the second; its wait ends that and does the third. What a rank
 * holds follows from layouts and mesh (graph/layout.c), so uneven parts, zig-zag and flat chunks need no case of their own.
 *
 * Messages have no names: what goes from one rank to another arrives in the order in which it was sent. Moves of the
 * backward have a group of their own (tn_world.back), since in a pipeline two ranks need not agree how forward and
 * backward mix; within one of them the plan has made sure that they do (plan/timetable.c). */
#ifndef TN_RUN_COLLECTIVE_H
#define TN_RUN_COLLECTIVE_H
#include <tenon/comm.h>
#include <tenon/device.h>
#include "plan/plan.h"
#include "world/world.h"

/* The first six are the caller's to set, all borrowed. */
struct tn_collectives {
    const struct tn_comm_api *comm;
    const struct tn_device_api *device;
    struct tn_mesh mesh;                         /* seen by this rank */
    const struct tn_plan_kernels *kernels;
    uint32_t n_kernels;
    double seconds;                              /* limit of one wait */
    struct tn_world *world;                      /* borrowed, set by open */
    struct tn_comm *group[TN_AXES];              /* the world's; NULL where the axis has one rank */
    struct tn_comm *back;                        /* a second group of the axis pp */
    uint64_t started[TN_AXES + 1];               /* collectives so far: the sequence of the group; last: of back */
    double bytes[TN_AXES];                       /* sent by this rank so far, counted as a ring would */
    struct tn_compare *compare;                  /* debug mode (run/compare.h); NULL: off */
    uint32_t way;                                /* TN_BY_HOST, ...: run/transfer.c */
    struct tn_stage *stage;                      /* owned, where it is TN_STAGED */
    const char *last;                            /* what was begun last; NULL: nothing since the last check */
    uint64_t last_sequence;
};
#define TN_BY_HOST 0u
#define TN_BY_STREAM 1u
#define TN_STAGED 2u

/* Takes the groups of the open world, which must outlive what is launched. Plans may be made before. */
tn_status tn_collectives_open(struct tn_collectives *c, struct tn_world *world, struct tn_device *device, uint32_t host_access);
void tn_collectives_close(struct tn_collectives *c);     /* after the plans */
/* Waits for what is on the queue. Where collectives are in its order: they went well, or this is the error, and names
 * who is at fault. */
tn_status tn_collectives_sync(struct tn_collectives *c, struct tn_queue *q);
/* Once the device is known, without communicating: what a launch of this function with this state takes of the stage or
 * gives back, where collectives are staged; or why it cannot be on this device. Nothing for launches that are no collective's. */
tn_status tn_collective_rehearse(tn_status (*launch)(void *state, const struct tn_launch *l), void *state, uint32_t slot);
/* For tn_plan_options.collective; ctx is the struct tn_collectives. */
tn_status tn_collective_prepare(void *ctx, const struct tn_node *n, const struct tn_problem *p, uint32_t slots, struct tn_plan_collective *out);
/* Bytes that one launch of the node sends from this rank: all_reduce 2(D-1)S/D, gathers and scatters (D-1)S/D of the
 * whole, others what they send. */
double tn_collective_bytes(const struct tn_node *n, const struct tn_mesh *m, struct tn_arena *arena);
#endif
