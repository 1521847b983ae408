/* plan.h - everything that is decided before step 0, for one rank.
 *
 * A plan is made of a finished graph, a place in the mesh and tables of kernels: which launches there are, in
 * which order, with which kernel, and where each of their buffers lies. Nothing of it changes afterwards, and it
 * holds no memory of the device: the peak is known before anything is allocated (report.h). Runs (run/) bind it.
 *
 *   graph -> steps (program.c) -> fused steps (both.c, remake.c, fuse.c) -> who lies in whose storage (storage.c)
 *         -> rows: launches with kernels (row.c, kernel.c, nest.c) -> lifetimes and offsets (lifetime.c, offset.c)
 *
 * Lists and tasks. Rows belong to lists; a run walks tasks, each of which is one list for one micro-batch. The
 * lists FORWARD and BACKWARD are walked once for each micro-batch, in the same memory. What the prologue makes of
 * inputs that differ between micro-batches is walked like that too (PER_MICRO), so that it can count over the
 * whole update. UPDATE begins with the first launch that overwrites something persistent: a run can stop before.
 *
 * Pipelines. A rank with several stages has a part of FORWARD and of BACKWARD for each, and the tasks follow the
 * schedule (timetable.h), so several micro-batches are in flight. What lives from one task to another then has a
 * place in each slot of its stage; what lives within a task is shared by all.
 *
 * Collectives run beside the launches that follow them: a row starts one, and another, before the first launch that
 * touches what it makes, waits for it (wait.c). What it reads and writes is left alone between the two.
 *
 * The plan borrows the graph and the kernel tables; both must outlive it. */
#ifndef TN_PLAN_PLAN_H
#define TN_PLAN_PLAN_H
#include "graph/graph.h"

#define TN_LIST_PROLOGUE 0u
#define TN_LIST_PER_MICRO 1u
#define TN_LIST_READY 2u                         /* the rest of the prologue */
#define TN_LIST_FORWARD 3u
#define TN_LIST_BACKWARD 4u
#define TN_LIST_AFTER 5u
#define TN_LIST_UPDATE 6u
#define TN_LISTS 7u

#define TN_NOWHERE UINT32_MAX

/* where storage is */
#define TN_AT_ARENA 0u                           /* of the memory, shared by all runs; offset in it */
#define TN_AT_PERSISTENT 1u                      /* by name, shared by all runs */
#define TN_AT_RUN 2u                             /* of the run: inputs, positions; offset in its block */

struct tn_plan_kernels {
    const char *name;                            /* of the plugin */
    const struct tn_kernels *table;
};

/* What a collective is to a plan: l->micro of its launches is the slot, 0 where there are none. */
struct tn_plan_collective {
    struct tn_kernel kernel;                     /* starts it, and owns the state */
    /* Waits for what was started in the slot; all of them, whatever the slot. NULL, both: it is done when it has started. */
    tn_status (*wait)(void *state, const struct tn_launch *l);
    tn_status (*wait_all)(void *state, const struct tn_launch *l);
};

struct tn_plan_options {
    const struct tn_plan_kernels *kernels;       /* in order of preference */
    uint32_t n_kernels;
    uint32_t n_micro;                            /* micro-batches of an update; 0 counts as 1 */
    struct tn_value *const *keep;                /* readable after the step; those made anew in each micro-batch */
    uint32_t n_keep;                             /* are kept for all of them. Scalar outputs are kept anyway. */
    /* Prepares a collective like a kernel; NULL: there is no communicator, a collective is an error. */
    tn_status (*collective)(void *ctx, const struct tn_node *n, const struct tn_problem *p, uint32_t slots, struct tn_plan_collective *out);
    void *collective_ctx;
    uint32_t no_fuse, no_inplace, no_alias, no_remake;           /* optimizations off, one by one, for tests and doubts */
};

struct tn_storage {
    uint32_t where;
    uint32_t first, last;                        /* rows between which it is needed */
    uint64_t offset, bytes;                      /* all parts */
    uint64_t micro_stride;                       /* bytes between the parts of two micro-batches, or 0 */
    uint64_t slot_stride;                        /* bytes between the parts of two slots, or 0 */
    const struct tn_value *value;                /* whose it is: the source, or the first to be written here */
};

/* Where one value lies. storage TN_NOWHERE: it has no data of its own. */
struct tn_plan_place {
    uint32_t storage;
    uint32_t kept;                               /* may be read after the step; then contiguous */
    uint64_t offset;                             /* bytes, in a part of the storage */
    int64_t stride[TN_MAX_RANK];                 /* elements */
    struct tn_local local;
};

struct tn_ref {
    uint32_t storage;                            /* TN_NOWHERE: NULL */
    uint32_t reserved0;
    uint64_t offset;
};

#define TN_ROW_COMPUTE 0u                        /* done, in the queue's order, when the next is launched */
#define TN_ROW_START 1u                          /* goes on beside what follows, until the row `wait` */
#define TN_ROW_WAIT 2u                           /* has the node and the operands of its start */
#define TN_ROW_SEND 3u                           /* waited for when its slot is used again, and before AFTER */
#define TN_ROW_SENT 4u                           /* waits for sends; without operands */

/* One launch. */
struct tn_row {
    const struct tn_node *node;
    const char *op;                              /* of the problem: "copy" where a node needs one, else the node's */
    uint32_t list, queue, n_in, n_out;
    uint32_t merged;                             /* nodes in it */
    uint32_t uniform;                            /* offset in the uniform block, or TN_NOWHERE */
    const struct tn_expr *expr;                  /* of expr and of fused nodes */
    const struct tn_value *const *value;         /* inputs, then outputs */
    const struct tn_ref *ref;
    int32_t kernel[2];                           /* for the first micro-batch and the later ones; -1: no launch */
    uint32_t part;                               /* of FORWARD and BACKWARD: the how manieth stage of this rank to run it */
    uint32_t once;                               /* in these lists: with the last micro-batch only */
    uint32_t way;                                /* TN_ROW_… */
    uint32_t wait;                               /* TN_ROW_START: the row that waits for it */
    uint32_t work;                               /* storage of its own for the kernel's workspace, or TN_NOWHERE: the shared one */
    double flops, bytes;                         /* of one launch; bytes it must read and write */
};

struct tn_plan_kernel {
    struct tn_kernel kernel;
    const char *by;                              /* the plugin */
};

/* Rows first .. end - 1: a list, or of FORWARD and BACKWARD what belongs to one stage. */
struct tn_plan_part {
    uint32_t list, part, first, end;
};

struct tn_task {
    uint32_t list, micro, slot;
    uint32_t part;                               /* number of a tn_plan_part */
    uint32_t later, last;                        /* not the first task of its part; the last one */
};

/* Numbers that the host computes before each step. */
struct tn_uniform {
    const struct tn_expr *expr;                  /* NULL: seed and step, four uint32_t */
    uint32_t offset;
};

struct tn_plan {
    struct tn_arena *arena;
    const struct tn_graph *graph;
    struct tn_mesh mesh;
    uint32_t n_micro, n_row, n_storage, n_task, n_update_task, n_kernel, n_uniform, n_value, n_part;
    uint32_t n_stage;                            /* of this rank */
    struct tn_row *row;                          /* in program order */
    uint32_t list_first[TN_LISTS + 1];           /* rows of list l: list_first[l] .. list_first[l + 1] - 1 */
    struct tn_storage *storage;
    struct tn_plan_place *place;                 /* by value id */
    struct tn_plan_part *part;
    struct tn_task *task;                        /* the last n_update_task ones update */
    struct tn_plan_kernel *kernel;
    struct tn_uniform *uniform;
    uint64_t uniform_bytes;
    uint64_t arena_bytes, workspace_bytes;       /* workspace: one region behind the arena */
    uint64_t run_bytes;                          /* block of the run, without uniforms */
    uint64_t live_peak;                          /* bytes of the arena alive at once, at most */
};

/* Kernels are prepared here, so plugins must have been started. Main thread. */
tn_status tn_plan_new(struct tn_graph *g, const struct tn_mesh *m, const struct tn_plan_options *o, struct tn_plan **out);
void tn_plan_free(struct tn_plan *plan);         /* takes; NULL is fine */

/* Local elements of the value; bytes of them without gaps. */
int64_t tn_plan_count(const struct tn_plan *plan, const struct tn_value *v);
uint64_t tn_plan_bytes(const struct tn_plan *plan, const struct tn_value *v);
#endif
