/* ep - expert parallelism (Lepikhin et al. 2020): the axis is a part of data parallelism, and its ranks share the experts.
 *
 * Batches are cut as in dp, experts' weights along the experts. So packed rows must go from the ranks that have the tokens
 * to those that have the experts, and back: the map of choices goes first, as what it is, and from it both sides count what
 * will come. All else follows: weights of experts are nobody's replica here, so their gradients are not added; what dp
 * does with the others' (plugins/ddp, plugins/shard) the host has done on this axis too. */
#include <tenon/pass.h>

static int64_t cut_sources(struct tn_graph *g, const char *axis)
{
    int64_t experts = 0;

    tn_each_input(g, v)
        if (tn_dim(v, "batch"))
            tn_set_layout(v, axis, tn_shard(g, "batch"));
    tn_each_param(g, w)
        if (tn_dim(w, "expert") && tn_dim(w, "mlp")) {       /* the router has the dim expert too */
            tn_set_layout(w, axis, tn_shard(g, "expert"));
            experts = tn_dim(w, "expert");
        }
    return experts;
}

/* Who comes here is counted from the choices of all ranks; products count that. */
static void send_rows(struct tn_graph *g, struct tn_node *dispatch, const char *axis)
{
    struct tn_node *arrange = tn_producer(tn_input(dispatch, 1));
    struct tn_value *x = tn_output(dispatch, 0), *count = tn_output(arrange, 1), *choice, *there;

    tn_after(g, arrange);
    choice = tn_convert(tn_input(arrange, 0), axis, tn_shard(g, "expert"));
    there = tn_output(tn_producer(tn_add(g, "arrange", TN_IN(choice), TN_WITH(TN_INT("blocks", tn_axis_size(g, axis))))), 1);
    tn_after(g, dispatch);
    tn_replace(x, tn_convert_rows(x, count, there, axis, tn_shard(g, "expert")));
    tn_each_user(count, n)
        if (tn_is(tn_op(n), "grouped"))
            tn_set_input(n, count, there);
}

static void fetch_rows(struct tn_graph *g, struct tn_node *combine, const char *axis)
{
    struct tn_value *z = tn_input(combine, 0), *there = tn_input(tn_producer(z), 2);
    struct tn_value *count = tn_output(tn_producer(tn_input(combine, 1)), 1);

    tn_before(g, combine);
    tn_set_input(combine, z, tn_convert_rows(z, there, count, axis, tn_shard(g, "batch")));
}

static void forward(struct tn_graph *g, const char *axis)
{
    int64_t ranks = tn_axis_size(g, axis), experts = cut_sources(g, axis);

    if (experts < ranks)
        tn_fail(g, TN_ERR_CONFIG, experts ? "parallel.ep = %lld: the model has %lld experts, and each rank needs one"
                                          : "parallel.ep = %lld: the model has %lld experts to share; model.arch = mixtral has some",
                (long long)ranks, (long long)experts);
    tn_each_node(g, n) {
        if (tn_is(tn_op(n), "dispatch"))
            send_rows(g, n, axis);
        else if (tn_is(tn_op(n), "combine"))
            fetch_rows(g, n, axis);
    }
}

static const struct tn_pass ep = {
    .struct_size = sizeof ep,
    .forward = forward,
};

TN_PLUGIN("ep", "0.1.0", "expert parallelism: experts over ranks that have batches of their own", TN_PASS_ID, &ep);
