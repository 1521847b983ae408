/* shard - ZeRO on one axis, on top of a cut batch (Rajbhandari et al. 2020).
 *
 * 1: gradients are reduce-scattered once per update. 2: in every micro-batch, so that only chunks accumulate.
 * 3: parameters live as flat chunks and are gathered where a unit uses them, in backward again; autodiff turns the gather
 * into a reduce-scatter. The update follows the layout of the gradient by itself, so the optimizer's state is a chunk in
 * all three. */
#include <tenon/pass.h>

/* Gather the cast rather than the master copy: half the bytes. */
static struct tn_value *last_cast(struct tn_value *v)
{
    struct tn_node *only = NULL;

    tn_each_user(v, u) {
        if (only || !tn_is(tn_op(u), "cast"))
            return v;
        only = u;
    }
    return only ? last_cast(tn_output(only, 0)) : v;
}

static void forward(struct tn_graph *g, const char *axis)
{
    tn_each_input(g, v)
        if (tn_dim(v, "batch"))
            tn_set_layout(v, axis, tn_shard(g, "batch"));
    if (tn_option(g, "zero") < 3)
        return;
    tn_each_param(g, w) {
        struct tn_value *held = last_cast(w);

        tn_set_layout(w, axis, TN_F);
        tn_each_user(held, u) {                              /* one gather per unit: convert uses it again */
            tn_before(g, u);
            tn_set_role(g, "gather");
            tn_set_input(u, held, tn_convert(held, axis, TN_R));
        }
    }
}

/* Backward gathers anew, so that what forward gathered can be freed. */
static void gather_again(struct tn_graph *g, struct tn_node *gather)
{
    struct tn_value *old = tn_output(gather, 0), *again = NULL;

    tn_each_user(old, u) {
        if (tn_phase(u) != TN_BACKWARD)
            continue;
        if (!again) {
            tn_before(g, u);
            tn_set_role(g, "regather");
            again = tn_clone(gather);
        }
        tn_set_input(u, old, again);
    }
}

static void reduce_each_micro_batch(struct tn_graph *g, struct tn_value *w, const char *axis)
{
    struct tn_node *accum = tn_producer(tn_grad(w));
    struct tn_value *part = tn_input(accum, 0);

    tn_before(g, accum);
    tn_set_role(g, "grad_reduce");
    tn_set_input(accum, part, tn_convert(part, axis, TN_F));
}

static void reduce_once(struct tn_graph *g, struct tn_value *w, const char *axis)
{
    tn_at_end(g, TN_AFTER, "reduce");
    tn_set_role(g, "grad_reduce");
    tn_set_grad(w, tn_convert(tn_grad(w), axis, TN_F));
}

static void train(struct tn_graph *g, const char *axis)
{
    double zero = tn_option(g, "zero");

    if (zero == 3) {
        tn_each_node(g, n)
            if (tn_is(tn_op(n), "all_gather") && tn_is(tn_role(n), "gather") && tn_phase(n) == TN_FORWARD
                && tn_on_axis(n, axis))
                gather_again(g, n);
        return;
    }
    tn_each_param(g, w)
        if (tn_layout_of(tn_grad(w), axis) == TN_P) {
            if (zero == 2)
                reduce_each_micro_batch(g, w, axis);
            else
                reduce_once(g, w, axis);
        }
}

static const struct tn_option options[] = {
    {"zero", "0", "what is sharded over dp: 1 the optimizer's state, 2 gradients too, 3 parameters too", 0, 3},
    {0},
};

static const struct tn_pass shard = {
    .struct_size = sizeof shard,
    .options = options,
    .forward = forward,
    .train = train,
};

TN_PLUGIN("shard", "0.1.0", "ZeRO 1 to 3: state, gradients and parameters in chunks", TN_PASS_ID, &shard);
