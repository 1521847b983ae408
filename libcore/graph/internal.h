/* internal.h - what the files of libcore/graph share among themselves. */
#ifndef TENON_GRAPH_INTERNAL_H
#define TENON_GRAPH_INTERNAL_H
#include "base/status.h"
#include "graph/graph.h"

/* The graph that is being worked on, for calls that got nothing to find it by; NULL: none. */
extern _Thread_local struct tn_graph *graph_current;

struct tn_value *graph_value_new(struct tn_graph *g, const char *name, uint32_t kind, uint32_t dtype, uint32_t rank,
                                 const char *const *dim, const int64_t *size);
int graph_sizes_fit(struct tn_graph *g, const char *name, uint32_t rank, const char *const *dim, const int64_t *size);    /* 0 after an error */
void graph_user_add(struct tn_value *v, struct tn_node *n);
void graph_user_drop(struct tn_value *v, struct tn_node *n);        /* unless n still has it as an input */
void graph_link(struct tn_graph *g, struct tn_node *n);             /* at the cursor */
void graph_unlink(const struct tn_node *n);
int graph_same_shape(const struct tn_value *a, const struct tn_value *b);
void *graph_grow(void *p, size_t bytes);         /* realloc that exits with a sentence */
struct tn_node *graph_add_node(struct tn_graph *g, const char *name, struct tn_value *const *in, uint32_t n_in,
                               const struct tn_attr *attr, uint32_t n_attr);
struct tn_value *graph_add(struct tn_graph *g, const char *name, struct tn_value *const *in, uint32_t n_in,
                           const struct tn_attr *attr, uint32_t n_attr);
void graph_set_input(struct tn_node *n, struct tn_value *old, struct tn_value *now);
void graph_replace(struct tn_value *old, struct tn_value *now);
void graph_remove(struct tn_node *n);
void graph_move(struct tn_node *n);
struct tn_value *graph_convert(struct tn_value *v, const char *axis, tn_layout to);
void graph_convert_all(struct tn_value *const *v, uint32_t n, const char *axis, tn_layout to, struct tn_value **out);
struct tn_value *graph_convert_rows(struct tn_value *v, struct tn_value *before, struct tn_value *after, const char *axis, tn_layout to);
int64_t graph_slice_local(const struct tn_value *s, const struct tn_mesh *m, struct tn_arena *arena, struct tn_local *out);
int graph_experts_dense(struct tn_graph *g, int (*claims)(void *ctx, const char *op), void *ctx);   /* 0 after an error */
void graph_decompose(struct tn_node *n, const char *axis);          /* axis: where sums close, or NULL */
tn_layout graph_layout_on(struct tn_value *v, const char *axis);    /* settled */
int graph_verify_node(struct tn_node *n);        /* 0 after an error on the graph */
void graph_layouts_init(struct tn_graph *g);
#endif
