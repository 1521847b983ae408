/* ddp - data parallelism: the batch is cut, every rank has all parameters.
 *
 * What a rank computes of a parameter's gradient is then a part of a sum over the axis. It stays one over all
 * micro-batches and is closed once per update, in the backward of the last one, in buckets. */
#include <tenon/gradients.h>

static void forward(struct tn_graph *g, const char *axis)
{
    tn_each_input(g, v)
        if (tn_dim(v, "batch"))
            tn_set_layout(v, axis, tn_shard(g, "batch"));
}

static void train(struct tn_graph *g, const char *axis)
{
    tn_reduce_gradients(g, axis, TN_R, tn_option(g, "sync_every") != 0);
}

static const struct tn_option options[] = {TN_BUCKET_OPTIONS, {0}};

static const struct tn_pass ddp = {
    .struct_size = sizeof ddp,
    .options = options,
    .forward = forward,
    .train = train,
};

TN_PLUGIN("ddp", "0.1.0", "data parallelism: replicas with batches of their own", TN_PASS_ID, &ddp);
