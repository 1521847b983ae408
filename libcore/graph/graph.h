/* graph.h - one static graph for all ranks.
 *
 * Values have named dims with global sizes; per mesh axis a layout says what one rank holds of a value. Nodes
 * apply an operation of the op table (op.h); collectives are nodes. Models build it for one device, passes
 * rewrite it, autodiff and finish extend it, the plan turns it into a list of launches for one rank.
 *
 * The public side is tenon/pass.h: models, autodiff and the core's own passes use the same wrappers (tn_add,
 * tn_convert, tn_each_node, ...) as a strategy in a plugin. This header is what only the core may touch.
 *
 * Invariants
 *  - everything lives in the graph's arena and dies with the graph; names are interned, so == compares them;
 *  - program order is the order of the lists: prologue, forward, backward, after; an input is produced before
 *    its user;
 *  - a source (parameter, state, input, positions) has no producer and a writable layout; the layouts of all
 *    other values follow from rules and are settled whenever somebody looks;
 *  - the first error sticks: later calls do nothing; tn_graph_status says it. */
#ifndef TENON_GRAPH_GRAPH_H
#define TENON_GRAPH_GRAPH_H
#include <tenon/kernels.h>
#include <tenon/pass.h>
#include "base/arena.h"
#include "graph/expr.h"
#include "mesh/mesh.h"

#define TN_MAX_IN 24                             /* inputs of one node */
#define TN_MAX_OUT 24                            /* and of what one collective takes */
#define TN_PHASES 5                              /* 1 .. 4 are used */

/* kinds of value */
#define TN_VALUE_TMP 0u
#define TN_VALUE_PARAM 1u
#define TN_VALUE_STATE 2u                        /* an optimizer's slot: persistent, zero at start */
#define TN_VALUE_INPUT 3u                        /* filled by the host before each update */
#define TN_VALUE_POSITIONS 4u                    /* 0, 1, 2, ... along its only dim, or angles of such; constant */
#define TN_VALUE_CACHE 5u                        /* what store writes: persistent, zero at start, in no file */

/* Rotary positions (RoPE): pair i of a head of width D turns by position * theta^(-2i/D) radians, less where a model
 * was stretched to more positions than it was first trained for. */
#define TN_ROTARY_NONE 0u
#define TN_ROTARY_LINEAR 1u                      /* all by 1/factor of it */
#define TN_ROTARY_LLAMA3 2u                      /* slow pairs by 1/factor, fast ones as they are, a ramp between: a pair
                                                    is slow that turns less than low times in original positions,
                                                    fast if more than high times */
struct tn_rotary {
    uint32_t scaling;
    double theta, factor, low, high, original;
};

struct tn_op;
struct tn_param;

struct tn_value {
    struct tn_graph *graph;
    uint32_t id, kind, dtype, rank;
    const char *name;
    const char *dim[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];                   /* global */
    tn_layout layout[TN_AXES];                   /* 0: not known, an earlier node does not fit */
    struct tn_node *producer;                    /* NULL for sources */
    uint32_t output;                             /* which output of the producer */
    uint32_t per_micro;                          /* inputs: one part for each micro-batch */
    struct tn_node **user;                       /* distinct nodes, in no order */
    uint32_t n_user, user_room;
    struct tn_param *param;                      /* of parameters; of states: whose slot it is */
    const struct tn_rotary *rotary;              /* of positions: a table of angles; NULL: the numbers themselves */
    const struct tn_value *slice_of;             /* a slice (slice.c): of which value, at which index of its first dim */
    int64_t slice;
    struct tn_value *next;                       /* list of its kind */
    struct tn_value *next_value;                 /* list of all, newest first */
};

/* How a parameter starts. */
#define TN_INIT_ZERO 0u
#define TN_INIT_ONE 1u
#define TN_INIT_NORMAL 2u                        /* mean 0, deviation std; element i of the file's tensor */

struct tn_param_spec {
    const char *const *dim;
    const int64_t *size;
    uint32_t rank;
    uint32_t file_rank;                          /* shape in files; same elements, same order */
    int64_t file_shape[TN_MAX_RANK];
    uint32_t init;
    double std;
};

struct tn_param {
    struct tn_value *value, *grad;
    const char *name;
    struct tn_param_spec spec;                   /* copied into the arena */
    uint32_t number;                             /* in order of creation: the generator's stream */
    uint32_t decay;                              /* file_rank >= 2 */
    double lr_scale;
    struct tn_param *twin;                       /* the primary of which this is a copy, NULL for a primary */
    uint32_t n_state;
    struct tn_value *state[8];
    const char *state_name[8];                   /* of the slot */
};

struct tn_node {
    struct tn_graph *graph;
    const struct tn_op *op;
    uint32_t id, order, phase, removed, queued;
    const char *role, *unit;
    uint32_t n_in, n_out, n_attr;
    struct tn_value **in, **out;
    struct tn_attr *attr;
    const struct tn_expr *expr;                  /* expr, and einsum with an epilogue */
    struct tn_node *next, *prev;                 /* within the phase; a removed node keeps its next */
};

struct tn_layout_info {                          /* what an interned layout means */
    uint32_t kind;                               /* TN_R .. TN_V, or the two below */
    const char *dim, *pattern;                   /* TN_LAYOUT_SHARD */
    int32_t rot;                                 /* shard: held by a ring neighbour; stage: its number */
};
#define TN_LAYOUT_SHARD 6u
#define TN_LAYOUT_STAGE 7u
#define TN_LAYOUT_FIRST 8u                       /* first free number: the kinds are numbers themselves */

/* A step of a pipeline's schedule, tn_task. */
struct tn_task_entry {
    uint32_t rank, phase, micro, stage;
};

struct tn_output_entry {
    const char *name;
    struct tn_value *value;
    uint32_t whole;                              /* must be replicated: the verifier looks */
};

struct tn_graph {
    struct tn_arena *arena;
    struct tn_names *names;
    struct tn_mesh mesh;
    struct tn_node *first[TN_PHASES], *last[TN_PHASES];
    struct tn_node *newest;
    uint32_t n_node, n_value, n_param;
    struct tn_value *all_values;
    struct tn_value *params, *states, *inputs, *positions, *caches; /* lists, in order of creation */
    struct tn_value *last_param, *last_state, *last_input, *last_positions, *last_cache;
    struct tn_output_entry output[16];
    uint32_t n_output;
    /* where new nodes go */
    struct tn_node *cursor;
    uint32_t cursor_after, phase, when_last;
    const char *unit, *role;
    const char *close_axis;                      /* while decomposing: close partial sums on it */
    /* layouts */
    struct tn_layout_info *layout_info;
    uint32_t n_layout, layout_room;
    struct tn_node **queue;                      /* nodes whose layouts must be inferred again */
    uint32_t n_queue, queue_room;
    uint32_t order_stale;
    /* symbols of expressions that change from step to step: lr, t */
    const char *symbol[16];
    uint32_t n_symbol;
    struct tn_task_entry *task;
    uint32_t n_task, task_room;
    uint32_t n_micro;                            /* micro-batches of an update */
    double (*option)(void *ctx, const char *key);                   /* of the pass that runs */
    const char *(*option_text)(void *ctx, const char *key);         /* NULL while it is unset */
    void *option_ctx;
    const struct tn_value *updated;              /* may be assigned to although it is no storage: an optimizer's w; or NULL */
    tn_status status;
    char *error;
};

/* --- life */
struct tn_graph *tn_graph_new(const struct tn_mesh *mesh);
void tn_graph_free(struct tn_graph *g);
/* TN_OK, or records the graph's first error and returns its code. */
tn_status tn_graph_status(struct tn_graph *g);
__attribute__((format(printf, 3, 4))) void tn_graph_fail(struct tn_graph *g, tn_status code, const char *fmt, ...);
const char *tn_graph_name(struct tn_graph *g, const char *text);    /* interned */

/* --- sources, for models; the value is returned, NULL after an error */
struct tn_value *tn_graph_param(struct tn_graph *g, const char *name, const struct tn_param_spec *spec);
struct tn_value *tn_graph_input(struct tn_graph *g, const char *name, uint32_t dtype, uint32_t rank, const char *const *dim,
                                const int64_t *size, uint32_t per_micro);
struct tn_value *tn_graph_positions(struct tn_graph *g, const char *dim, int64_t size);
struct tn_value *tn_graph_positions_apart(struct tn_graph *g, const char *dim, int64_t size);    /* in another layout than those that there are */
/* f32 [positions, width]: in row t the cosines of position t's angles, width/2 of them, then their sines. */
struct tn_value *tn_graph_rotary(struct tn_graph *g, const char *const *dim, int64_t positions, int64_t width, const struct tn_rotary *r);
struct tn_value *tn_graph_copy_positions(const struct tn_value *v);  /* the same again, for another layout */
int tn_graph_same_positions(const struct tn_value *a, const struct tn_value *b);
struct tn_value *tn_graph_state(struct tn_graph *g, struct tn_param *p, const char *slot, uint32_t dtype, const struct tn_value *like);
struct tn_value *tn_graph_cache(struct tn_graph *g, const char *name, uint32_t dtype, uint32_t rank, const char *const *dim,
                                const int64_t *size);
void tn_graph_output(struct tn_graph *g, const char *name, struct tn_value *v);   /* sets or replaces */
void tn_graph_output_whole(struct tn_graph *g, const char *name);     /* from now on it must be replicated */
struct tn_value *tn_graph_find_output(const struct tn_graph *g, const char *name);
struct tn_value *tn_graph_find_input(const struct tn_graph *g, const char *name);
uint32_t tn_graph_symbol(struct tn_graph *g, const char *name);
int tn_graph_has_symbol(const struct tn_graph *g, const char *name);

/* --- walking, for the core */
struct tn_node *tn_graph_first(const struct tn_graph *g);            /* of the first phase that has any */
struct tn_node *tn_node_next(const struct tn_node *n);               /* across phases */
int tn_node_before(const struct tn_node *a, const struct tn_node *b);
const struct tn_attr *tn_node_attr(const struct tn_node *n, const char *key);
const char *tn_node_text(const struct tn_node *n, const char *key);              /* "" if there is none */
int tn_node_last(const struct tn_node *n);                           /* in the last micro-batch alone: when = last */
double tn_node_float(const struct tn_node *n, const char *key, double otherwise);
int64_t tn_node_int(const struct tn_node *n, const char *key, int64_t otherwise);
int64_t tn_value_dim(const struct tn_value *v, const char *dim);     /* 0 if v has none */
int tn_value_find_dim(const struct tn_value *v, const char *dim);    /* -1 if v has none */
int64_t tn_value_count(const struct tn_value *v);                    /* global elements */
double tn_node_flops(const struct tn_node *n, const struct tn_mesh *m);          /* of the rank at m */

/* --- for shape functions of ops */
struct tn_value *tn_node_output(struct tn_node *n, uint32_t rank, const char *const *dim, const int64_t *size, uint32_t dtype);

/* --- layouts (layout.c) */
void tn_graph_settle(struct tn_graph *g);                            /* infers what is queued */
void tn_graph_queue(struct tn_node *n);                              /* to be inferred again */
const struct tn_layout_info *tn_layout_get(const struct tn_graph *g, tn_layout l);
tn_layout tn_layout_shard(struct tn_graph *g, const char *dim, const char *pattern, int32_t rot);
tn_layout tn_layout_stage(struct tn_graph *g, uint32_t stage);
const char *tn_layout_text(struct tn_graph *g, tn_layout l);         /* "R", "P", "S(heads)", "S(seq zigzag)", "@1" */
/* Infers everything again from the sources and checks order; the verifier. Error names node, axis and inputs. */
tn_status tn_graph_verify(struct tn_graph *g);

/* What a rank holds of a value: no elements where it lives on a stage that the rank does not run. index[d]: NULL where the local part is contiguous. */
struct tn_local {
    int64_t size[TN_MAX_RANK], origin[TN_MAX_RANK], count;
    const int64_t *index[TN_MAX_RANK];           /* in the arena given */
    uint32_t flat;                               /* a chunk [flat_start, flat_start + count) of the flattened local tensor */
    int64_t flat_start;
};
void tn_value_local(const struct tn_value *v, const struct tn_mesh *m, struct tn_arena *arena, struct tn_local *out);
void tn_rotary_fill(const struct tn_value *v, const struct tn_local *l, float *out);     /* what the rank holds of the table */
/* Does the rank hold anything of it? Not where the value lives on a stage that it does not run. */
int tn_value_here(const struct tn_value *v, const struct tn_mesh *m);
/* A parameter, state or gradient whose name has a * is several tensors in files, one for each index of its first dim: how
 * many; 0: it is one. */
int64_t tn_value_slices(const struct tn_value *v);
/* One of them, outside of the graph, with its own name; in the arena. And the element of what a rank holds of the whole at which
 * what it holds of the slice begins. */
struct tn_value *tn_value_slice(const struct tn_value *v, int64_t index, struct tn_arena *arena);
int64_t tn_value_slice_start(const struct tn_value *v, const struct tn_mesh *m);
uint64_t tn_dtype_bytes(uint32_t dtype);
int64_t tn_value_bytes(const struct tn_value *v);                    /* of the rank that holds most */

double tn_rotary_turn(const struct tn_rotary *r, int64_t pair, int64_t width);   /* radians from one position to the next */

/* --- text form (text.c): written and read back */
/* only: NULL or a unit's name. Text in the arena given. */
char *tn_graph_dump(struct tn_graph *g, struct tn_arena *arena, const char *only);
struct tn_graph *tn_graph_read(const char *text);                    /* NULL after tn_error with line and column */

/* --- gradients (autodiff.c) */
/* The backward of a graph that has this symbol is seeded with a multiple; its gradients are that multiple. */
#define TN_LOSS_SCALE "loss_scale"
/* Adds the backward of output "loss" seeded with output "seed", sets every parameter's grad, accumulated over the
 * micro-batches; removes dead nodes. */
tn_status tn_graph_autodiff(struct tn_graph *g);
void tn_graph_sweep(struct tn_graph *g);                             /* removes what no output, gradient or assign needs */
/* Replaces nodes by base operations whose op, or one of its gradient's, claims() refuses. */
tn_status tn_graph_lower(struct tn_graph *g, int (*claims)(void *ctx, const char *op), void *ctx);

extern const struct tn_graph_api tn_graph_api_table;
#endif
