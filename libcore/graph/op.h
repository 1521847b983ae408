/* op.h - the table of operations: everything the graph knows about one.
 *
 * An operation is a row: how many inputs, what shape comes out, what layouts fit and follow, its gradient as
 * graph nodes, its way back to base operations, and its FLOPs. Nothing else in the core switches on the name of
 * an operation. docs/ops.md has the formulas. */
#ifndef TENON_GRAPH_OP_H
#define TENON_GRAPH_OP_H
#include "graph/graph.h"

#define TN_OP_NEST 1u                            /* kernels get a nest of loops */
#define TN_OP_INPLACE 2u                         /* an output may take the buffer of an input of the same shape */
#define TN_OP_VIEW 4u                            /* outputs are strided views of input 0 */
#define TN_OP_STACK 8u                           /* inputs are strided views of output 0 */
#define TN_OP_COLLECTIVE 16u                     /* made by tn_convert only; has an axis */
#define TN_OP_EFFECT 32u                         /* writes something persistent: never dead */
#define TN_OP_ACCUM 64u                          /* adds up over the micro-batches */
#define TN_OP_STORE 256u                         /* output 0 is input 0, a cache, with a part of it written anew: never dead */
#define TN_OP_RANDOM 128u                        /* draws when it has a dropout probability: needs seed and step */

struct tn_op {
    const char *name;
    uint32_t flags;
    uint32_t n_in_min, n_in_max;
    uint8_t least[5];                            /* dims that the first inputs have at least */
    uint32_t unread;                             /* bit i: the data of input i is not read, only its shape */
    void (*shape)(struct tn_node *n);            /* makes the outputs with tn_node_output */
    /* Layouts of the outputs on one axis, or NULL and why in a sentence's part. */
    const char *(*layout)(const struct tn_node *n, int axis, tn_layout *out);
    /* dx[i]: gradient of input i, same dims in the same order, NULL for none. dy[i] may be NULL. */
    void (*grad)(struct tn_node *n, struct tn_value *const *dy, struct tn_value **dx);
    /* out[i] takes the place of output i. */
    void (*decompose)(struct tn_node *n, struct tn_value **out);
    double (*flops)(const struct tn_node *n, const struct tn_mesh *m);   /* of one rank; NULL: elements of output 0 */
    const char *as;                              /* kernels see the node as this operation; NULL: by its own name */
    const char *const *back;                     /* operations that its gradient is made of and a kernel plugin that
                                                    lacks one cannot train with; ends with NULL; may be NULL */
    const char *both;                            /* this and back[0] at once, for a gradient that depends on none of its results.
                                                    back[0] reads this one's inputs, its first output, then what comes
                                                    from above; both reads the inputs and what comes from above, and
                                                    gives this one's outputs, then back[0]'s; its FLOPs are back[0]'s,
                                                    which makes this one again. NULL: there is none */
};

/* NULL if there is none of that name. */
const struct tn_op *tn_op_find(const char *name);
/* Operation number i, NULL past the last. */
const struct tn_op *tn_op_at(uint32_t i);

/* The general rule: a cut travels by the name of its dim; all inputs that have the dim must be cut alike; an
 * output that lacks it becomes partial. linear: which sets of inputs may be partial.
 * forbid: dims that the operation needs whole, ends with NULL; may be NULL. */
#define TN_LINEAR_NONE 0
#define TN_LINEAR_ONE 1                          /* one partial input, the others whole */
#define TN_LINEAR_ALL 2                          /* all partial, or the only one */
const char *tn_layout_named(const struct tn_node *n, int axis, const char *const *forbid, int linear, tn_layout reduced, tn_layout *out);

extern const struct tn_op tn_ops_nest[], tn_ops_index[], tn_ops_norm[], tn_ops_rope[], tn_ops_attention[], tn_ops_loss[], tn_ops_experts[], tn_ops_collective[], tn_ops_update[];
extern const uint32_t tn_n_ops_nest, tn_n_ops_index, tn_n_ops_norm, tn_n_ops_rope, tn_n_ops_attention, tn_n_ops_loss, tn_n_ops_experts, tn_n_ops_collective, tn_n_ops_update;
#endif
