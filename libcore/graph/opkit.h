/* opkit.h - what the rows of the op table are written with. For libcore/graph/op*.c and autodiff only. */
#ifndef TENON_GRAPH_OPKIT_H
#define TENON_GRAPH_OPKIT_H
#include "graph/internal.h"
#include "graph/op.h"

void op_like(struct tn_node *n, uint32_t input);                     /* an output like that input */
void op_shape_like0(struct tn_node *n);
void op_shape_out(struct tn_node *n);                                /* fp32, or the attribute to */
void op_shape_out_as(struct tn_node *n, uint32_t dtype);
uint32_t op_to(const struct tn_node *n, uint32_t otherwise);         /* the attribute to: the dtype of the result */
int op_is_low(uint32_t dtype);                                       /* bf16 or fp16 */
struct tn_value *op_as(struct tn_value *v, uint32_t dtype);          /* v, or its cast */
struct tn_value *op_with(struct tn_graph *g, const char *op, struct tn_value *const *in, size_t n_in,
                         const struct tn_attr *attr, size_t n_attr, uint32_t to);
uint32_t op_grad_dtype(const struct tn_value *v);
int64_t op_dim(const struct tn_node *n, const char *dim);            /* size, from the first input that has it; 0 */
int op_sizes_agree(struct tn_node *n);
double op_local_count(const struct tn_value *v, const struct tn_mesh *m);
double op_local_volume(const struct tn_node *n, const struct tn_mesh *m);

/* The dims of v as attribute out. */
#define OP_DIMS_OF(v) ((struct tn_attr){"out", TN_ATTR_NAMES, (v)->rank, {.names = (v)->dim}})
#define OP_COUNT(rows) ((uint32_t)(sizeof(rows) / sizeof *(rows)))
#endif
