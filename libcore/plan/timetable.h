/* timetable.h - who does what when, on all ranks of a pipeline.
 *
 * A schedule is a list of turns for each rank: forward or backward of a micro-batch through a stage. From it, and from
 * the moves that the graph has between stages, all of this follows before anything runs:
 *  - is it complete, and does every rank get on (a schedule that would wait in a circle is refused);
 *  - do values arrive in the order in which they are expected (messages between two ranks have no names);
 *  - how many micro-batches a stage has in flight: the slots in which it keeps what backward needs;
 *  - how long it takes, given the length of a turn: the picture and the bubble.
 *
 * A slot is taken by a forward and given back by the backward of the same micro-batch. What was sent out of a slot may
 * still be under way then, so the next forward in it waits until it was received. */
#ifndef TN_PLAN_TIMETABLE_H
#define TN_PLAN_TIMETABLE_H
#include "graph/graph.h"

struct tn_turn {
    uint32_t phase, micro, stage, slot;          /* TN_FORWARD or TN_BACKWARD */
    double start, end;
};

struct tn_timetable {
    uint32_t n_rank, n_stage, n_micro;           /* of the axis; stage s is on rank s mod n_rank */
    uint32_t *n_turn;                            /* [rank] */
    struct tn_turn **turn;                       /* [rank][n_turn] */
    uint32_t *slots;                             /* [stage] */
    double length;                               /* when the last turn ends */
};

/* The schedule of a settled graph; where it has none, one micro-batch after the other. forward, backward: how long a turn
 * takes, in any unit. All lies in arena. TN_ERR_CONFIG: it is incomplete, or would never end. */
tn_status tn_timetable_make(struct tn_arena *arena, const struct tn_graph *g, uint32_t n_micro, double forward, double backward,
                            struct tn_timetable *out);
/* Does the rank finish each micro-batch before it begins the next? */
int tn_timetable_in_sequence(const struct tn_timetable *t, uint32_t rank);
/* The axis that has stages. */
int tn_stage_axis(void);
/* The stage on which v is, -1: none, it is the same everywhere. */
int64_t tn_stage_of_value(const struct tn_value *v);
/* The stage of a node, and whether it is a move: then it goes from *from to the result. -1: none. */
int64_t tn_stage_of_node(const struct tn_node *n, int64_t *from);
#endif
