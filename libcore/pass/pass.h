/* pass.h - from a model to a finished graph: the order of the passes, verified after each.
 *
 *   model -> precision -> forward passes -> lower -> autodiff -> recompute -> train passes -> finish -> schedule
 *
 * A strategy's pass comes from a plugin, one for each mesh axis of more than one rank; an axis of size 1 skips its
 * pass, so the graph of one process is the reference. finish is the core's: norm, clipping, optimizer. */
#ifndef TENON_PASS_PASS_H
#define TENON_PASS_PASS_H
#include <tenon/optimizer.h>
#include "graph/graph.h"

#define TN_FINISH_OPTIONS 24                     /* most options of an optimizer */

/* An optimizer as finish needs it. Borrowed for the call. */
struct tn_finish {
    const char *name;                            /* of the optimizer, for sentences */
    const struct tn_option *option;              /* n_option of them; value[i] is the configured one */
    const double *value;
    uint32_t n_option;
    const struct tn_slot *slots;                 /* ends with {0}; NULL: none */
    const char *update;                          /* NULL: build */
    void (*build)(struct tn_graph *g, struct tn_value *w, struct tn_value *grad, struct tn_value *const *slot);
    double clip;                                 /* largest global norm; 0: no clipping */
};

/* Adds norm (output "gnorm"), clipping and updates; output "loss" becomes whole. */
tn_status tn_graph_finish(struct tn_graph *g, const struct tn_finish *f);

/* For a graph without a backward: every output becomes whole, once all stages of a pipeline are through. */
tn_status tn_graph_close_outputs(struct tn_graph *g);

/* Between the model and the forward passes: compute and activations in dtype, TN_BF16 or TN_F16. */
tn_status tn_graph_precision(struct tn_graph *g, uint32_t dtype);

/* Between autodiff and the train passes: blocks ("blockN") make again for their backward what they made in their
 * forward. The gradients stay the same bits. */
tn_status tn_graph_recompute(struct tn_graph *g);

/* A strategy, as found for an axis, or an extra pass (axis ""). */
struct tn_pass_entry {
    const char *name, *axis;
    const struct tn_pass *pass;
    double (*option)(void *ctx, const char *key);
    void *option_ctx;
    const char *(*option_text)(void *ctx, const char *key);      /* NULL while it is unset */
    uint32_t early;                              /* its train comes before all others': between hosts go chunks only */
};

struct tn_pipeline {
    const struct tn_pass_entry *pass;            /* in the order of the forward passes */
    uint32_t n_pass;
    const struct tn_finish *finish;              /* NULL: a graph without a backward (evaluation, generation) */
    uint32_t dtype;                              /* of compute and activations; 0 or TN_F32: as the model writes it */
    uint32_t recompute;                          /* of activations, in each block */
    int (*claims)(void *ctx, const char *op);    /* does a kernel plugin know this operation? */
    void *claims_ctx;
    /* Called after each step with its name ("model", "precision", "forward:tp", "lower", "autodiff", ...); may be NULL. */
    void (*after)(void *ctx, const char *step, struct tn_graph *g);
    void *after_ctx;
};

/* Runs all that follows the model. An error names the pass. */
tn_status tn_pipeline_run(const struct tn_pipeline *p, struct tn_graph *g);
#endif
