/* ddp - data parallelism: the batch is cut, every rank has all parameters.
 *
 * What a rank computes of a parameter's gradient is then a part of a sum over the axis. It stays one over all
 * micro-batches and is closed once per update, where the gradients are complete. */
#include <tenon/pass.h>

static void forward(struct tn_graph *g, const char *axis)
{
    tn_each_input(g, v)
        if (tn_dim(v, "batch"))
            tn_set_layout(v, axis, tn_shard(g, "batch"));
}

static void train(struct tn_graph *g, const char *axis)
{
    tn_each_param(g, w) {
        if (tn_layout_of(tn_grad(w), axis) != TN_P)
            continue;
        tn_at_end(g, TN_AFTER, "reduce");
        tn_set_role(g, "grad_reduce");
        tn_set_grad(w, tn_convert(tn_grad(w), axis, TN_R));
    }
}

static const struct tn_pass ddp = {
    .struct_size = sizeof ddp,
    .forward = forward,
    .train = train,
};

TN_PLUGIN("ddp", "0.1.0", "data parallelism: replicas with batches of their own", TN_PASS_ID, &ddp);
