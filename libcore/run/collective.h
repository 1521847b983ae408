/* collective.h - collectives of the graph on a communicator.
 *
 * To the plan a collective is a launch like any other. Here each becomes at most three things, prepared once: boxes
 * copied into the order of ranks, one group of transfers, boxes copied out. What a rank holds follows from layouts and
 * mesh (graph/layout.c), so uneven parts, zig-zag and flat chunks need no case of their own. */
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
    uint64_t started[TN_AXES];                   /* collectives so far: the sequence of the group */
    uint64_t bytes[TN_AXES];                     /* sent by this rank so far, counted as a ring would */
    const char *running;                         /* what is being waited for, in words; NULL */
};

/* Takes the groups of the open world, which must outlive what is launched. Plans may be made before. */
tn_status tn_collectives_open(struct tn_collectives *c, struct tn_world *world);
/* For tn_plan_options.collective; ctx is the struct tn_collectives. */
tn_status tn_collective_prepare(void *ctx, const struct tn_node *n, const struct tn_problem *p, struct tn_kernel *out);
/* Bytes that one launch of the node sends from this rank: all_reduce 2(D-1)S/D, gathers and scatters (D-1)S/D of the
 * whole, others what they send. */
double tn_collective_bytes(const struct tn_node *n, const struct tn_mesh *m, struct tn_arena *arena);
#endif
