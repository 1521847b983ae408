/* @NAME@ - a strategy: data parallelism on one axis of the mesh.
 *
 * Every rank of the axis has all parameters and a part of the batch. Before autodiff the pass says so, by the layout of
 * the inputs; the layouts of everything else follow, and what a rank then has of a parameter's gradient is a part of a
 * sum (TN_P). After autodiff it closes these sums, once per update: in the backward of the last micro-batch, when all
 * gradients are there, in as few collectives as the host can make of them. A size of 1 skips the pass.
 *
 * Errors stick to the graph and the host looks once, so there are no error paths here. */
#include <tenon/pass.h>

#define TOGETHER 24                              /* gradients that are converted by one call */

static void forward(struct tn_graph *g, const char *axis)
{
    tn_each_input(g, v)
        if (tn_dim(v, "batch"))
            tn_set_layout(v, axis, tn_shard(g, "batch"));
}

/* The sums of n gradients, and the parameters that take them as theirs. */
static void close_sums(struct tn_value **param, struct tn_value **sum, uint32_t n, const char *axis)
{
    struct tn_value *whole[TOGETHER];

    if (n)
        tn_convert_all(sum, n, axis, TN_R, whole);
    for (uint32_t i = 0; i < n; i++)
        tn_set_grad(param[i], whole[i]);
}

static void train(struct tn_graph *g, const char *axis)
{
    struct tn_value *param[TOGETHER], *sum[TOGETHER];
    uint32_t n = 0;

    tn_at_end(g, TN_BACKWARD, "");
    tn_set_role(g, "grad_reduce");
    tn_when_last(g, 1);
    tn_each_gradient(g, w) {
        if (tn_layout_of(tn_grad(w), axis) != TN_P)
            continue;
        param[n] = w, sum[n++] = tn_grad(w);
        if (n == TOGETHER) {
            close_sums(param, sum, n, axis);
            n = 0;
        }
    }
    close_sums(param, sum, n, axis);
}

static const struct tn_pass pass = {
    .struct_size = sizeof pass,
    .reserved0 = 0,
    .options = NULL,
    .forward = forward,
    .train = train,
    .schedule = NULL,
    .lower = NULL,
};

TN_PLUGIN("@NAME@", "0.1", "data parallelism: replicas with batches of their own", TN_PASS_ID, &pass);
