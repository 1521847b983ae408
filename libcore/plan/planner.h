/* planner.h - what the files of libcore/plan share while a plan is made. See plan.h for the order of things.
 *
 * The graph is only read: fusing works on steps, which begin as a copy of the nodes in program order. A step that
 * is fused into a later one dies; the later one keeps its place, so the order stays right.
 *
 * A value lies in a storage of its own or in that of another value (spot->into): as a part of it (views, stacks)
 * or as the same thing (accumulators, in-place updates). Such decisions may turn out to be refused by all
 * kernels, or by the better ones: then the spot is marked (whole, apart) and placing starts again. Marks are only
 * ever added, so that ends. */
#ifndef TN_PLAN_PLANNER_H
#define TN_PLAN_PLANNER_H
#include "graph/op.h"
#include "plan/plan.h"
#include "plan/timetable.h"

struct tn_step {
    const struct tn_node *node;
    const struct tn_op *op;
    struct tn_value **in, **out;
    uint32_t n_in, n_out;
    const struct tn_expr *expr;
    uint32_t list, part, once;                   /* as those of its rows */
    uint32_t dead;                               /* fused into another, or its results are written by others */
    uint32_t merged;
    double flops;
};

/* how a value lies in another */
#define TN_INTO_NONE 0u
#define TN_INTO_SAME 1u
#define TN_INTO_PART 2u                          /* part `part` of `cut`, a view */
#define TN_INTO_STACK 3u                         /* part `part` of `cut`, a stack that is put together in place */

struct tn_spot {
    const struct tn_value *into;
    const struct tn_step *cut;
    uint32_t how, part;
    uint32_t whole;                              /* must not be a part: kernels want it without gaps */
    uint32_t apart;                              /* must not be added up in place: no kernel does */
    uint32_t kept;
    uint32_t accumulates;                        /* adds up over the micro-batches */
    uint32_t adds;                               /* written straight into the accumulator `into` */
    uint32_t first_writer;                       /* of those that add: overwrites in the first micro-batch */
    uint32_t ready;                              /* the rest is known */
    const struct tn_value *root;
    int64_t offset, stride[TN_MAX_RANK];         /* elements, from the start of root's storage */
};

/* An operand of a launch, while it is only known in whose storage it will lie. */
struct tn_arg {
    const struct tn_value *value, *root;         /* root NULL: only the shape is used */
    int64_t offset, stride[TN_MAX_RANK];
};

/* A collective that was started and not yet waited for. */
struct tn_flight {
    const struct tn_step *step;
    uint32_t row;
    struct tn_plan_collective how;
};

struct tn_planner {
    struct tn_plan *plan;
    struct tn_timetable time;
    uint32_t in_sequence;                        /* one micro-batch after the other */
    struct tn_flight *flight, *send;             /* send: waited for when the slot is used again */
    uint32_t n_flight, n_send;
    struct tn_graph *graph;
    const struct tn_plan_options *o;
    struct tn_arena *arena;                      /* the plan's */
    struct tn_step *step;
    uint32_t n_step;
    struct tn_value *values;                     /* all: the graph's, and those that are made twice */
    /* index of steps: by value id */
    uint32_t *made;                              /* step that makes it, or TN_NOWHERE */
    uint32_t *use_first, *use_end, *use;         /* steps that read value v: use[use_first[v] .. use_end[v]-1] */
    uint32_t use_room;
    struct tn_spot *spot;                        /* by value id */
    struct tn_arg **arg;                         /* of each row */
    uint32_t row_room, kernel_room;
    uint32_t again;
    struct tn_problem_room *room;
};

/* program.c */
tn_status tn_planner_program(struct tn_planner *p);
void tn_planner_index(struct tn_planner *p);
/* Step a dies and step b becomes joined: the same as a new index, but only what they touch is looked at. */
void tn_planner_joined(struct tn_planner *p, uint32_t a, uint32_t b, const struct tn_step *joined);
uint32_t tn_planner_uses(const struct tn_planner *p, const struct tn_value *v, const uint32_t **steps);
int tn_step_reads(const struct tn_step *s, uint32_t input);         /* the data, not just the shape? */
int tn_list_repeats(uint32_t list);                                 /* once for each micro-batch? */
int tn_same_task(const struct tn_step *a, const struct tn_step *b); /* are they always walked together? */
uint32_t tn_part_stage(const struct tn_planner *p, uint32_t list, uint32_t part);   /* of FORWARD or BACKWARD: the stage */
uint32_t tn_part_slots(const struct tn_planner *p, uint32_t list, uint32_t part);

/* fuse.c */
tn_status tn_planner_fuse(struct tn_planner *p);
tn_status tn_planner_join(struct tn_planner *p, const struct tn_step *a, const struct tn_step *b, uint32_t keep,
                          struct tn_step *out);
tn_status tn_planner_accepts(struct tn_planner *p, const struct tn_step *plain, const struct tn_step *other);

/* both.c */
tn_status tn_planner_both(struct tn_planner *p);

/* remake.c */
tn_status tn_planner_remake(struct tn_planner *p);

/* storage.c */
void tn_planner_alias(struct tn_planner *p);
const struct tn_spot *tn_planner_spot(struct tn_planner *p, const struct tn_value *v);     /* with the rest known */
int tn_planner_part(struct tn_planner *p, const struct tn_step *cut, uint32_t part, int64_t *stride, int64_t *offset,
                    const struct tn_value **root);
void tn_planner_contiguous(const struct tn_planner *p, const struct tn_value *v, int64_t *stride);
int tn_planner_same_shape(const struct tn_planner *p, const struct tn_value *a, const struct tn_value *b);
int tn_local_rank(const struct tn_value *v, const struct tn_local *l);       /* 1 for a flat chunk */
int tn_expr_is_sum(const struct tn_expr *e, uint32_t n_in);          /* of all inputs, each once */

/* row.c */
tn_status tn_planner_rows(struct tn_planner *p);
void tn_planner_release(struct tn_planner *p);

struct tn_row *tn_planner_add_row(struct tn_planner *p, const struct tn_step *s, const char *op, const struct tn_arg *arg, uint32_t n_in,
                                  uint32_t n_out);
struct tn_row *tn_planner_put_row(struct tn_planner *p, const struct tn_row *row, struct tn_arg *arg);
int32_t tn_planner_keep_kernel(struct tn_planner *p, const struct tn_kernel *k, const char *by);

/* wait.c */
void tn_planner_started(struct tn_planner *p, const struct tn_step *s, uint32_t row, const struct tn_plan_collective *how);
void tn_planner_wait_for(struct tn_planner *p, const struct tn_step *next);         /* NULL: the end */
void tn_planner_wait_for_sends(struct tn_planner *p);             /* before AFTER */
void tn_planner_wait_in_forward(struct tn_planner *p);            /* when all rows are there */

/* kernel.c */
struct tn_ask {
    const struct tn_step *step;
    const char *op;                              /* NULL: the step's, with its attributes and program */
    const struct tn_arg *arg;                    /* inputs, then outputs */
    uint32_t n_in, n_out, accumulate;
    uint32_t table;                              /* number of the kernel table */
};
tn_status tn_planner_ask(struct tn_planner *p, const struct tn_ask *ask, struct tn_kernel *out);
tn_status tn_planner_ask_collective(struct tn_planner *p, const struct tn_ask *ask, struct tn_plan_collective *out);
tn_status tn_planner_nobody(struct tn_planner *p, const struct tn_ask *ask);
void tn_planner_arg(struct tn_planner *p, const struct tn_value *v, int contiguous, struct tn_arg *out);
void tn_step_args(struct tn_planner *p, const struct tn_step *s, int contiguous, struct tn_arg *arg);
void tn_planner_room_new(struct tn_planner *p);

/* nest.c */
tn_status tn_nest(const struct tn_operand *in, uint32_t n_in, const struct tn_operand *out, uint32_t n_out, int merge,
                  struct tn_loop *loop, uint32_t room, uint32_t *n_loop, uint32_t *n_reduced);

/* lifetime.c */
void tn_planner_lifetimes(struct tn_planner *p);
#endif
