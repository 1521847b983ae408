/* tp - tensor parallelism, with sequence parallelism (Shoeybi et al. 2019, Korthikanti et al. 2022).
 *
 * Weights with a heads, mlp or vocab dim are cut there. What is then summed over the cut dim comes out partial and is
 * closed where it arises: to whole, or with sp to a cut along the sequence, so that norms and dropout between the
 * projections work on a part of it and the column projections gather it again. Columns and rows are found by role.
 *
 * Where groups of rep query heads share a key head, heads are those of the keys. More ranks than those cut each group instead:
 * every rank has all keys and values, and their gradients are partial. */
#include <tenon/gradients.h>

static int64_t most_of(int64_t n, int64_t ranks)
{
    return (n + ranks - 1) / ranks;
}

/* Does a cut of the groups leave the busiest rank fewer query heads than one of the key heads? */
static int cuts_groups(struct tn_graph *g, const char *axis)
{
    int64_t ranks = tn_axis_size(g, axis);

    tn_each_param(g, w) {
        int64_t heads = tn_dim(w, "heads"), rep = tn_dim(w, "rep");

        if (rep && ranks > heads && heads * most_of(rep, ranks) < most_of(heads, ranks) * rep)
            return 1;
    }
    return 0;
}

static void cut_weights(struct tn_graph *g, const char *axis)
{
    const char *const cut[] = {cuts_groups(g, axis) ? "rep" : "heads", "mlp", "vocab"};

    tn_each_param(g, w)
        for (int i = 0; i < 3; i++)
            if (tn_dim(w, cut[i]))
                tn_set_layout(w, axis, tn_shard(g, cut[i]));
}

/* The fused head leaves the log-sum-exp of its own part of the vocabulary: exp(lse - max) adds up. */
static void join_head(struct tn_graph *g, struct tn_node *head, const char *axis)
{
    struct tn_value *lse = tn_output(head, 0), *picked = tn_output(head, 1), *max, *sum;

    tn_convert_input(g, head, tn_input(head, 0), axis, TN_R);
    tn_after(g, head);
    max = tn_convert(tn_add(g, "as_max", TN_IN(lse), TN_NONE), axis, TN_R);
    sum = tn_convert(tn_add(g, "lse_open", TN_IN(lse, max), TN_NONE), axis, TN_R);
    tn_replace(lse, tn_expr(g, "log(a) + b", TN_IN(sum, max)));
    tn_convert_output(g, picked, axis, TN_R);
}

static void forward(struct tn_graph *g, const char *axis)
{
    int sp = tn_option(g, "sp") != 0;
    tn_layout stream = sp ? tn_shard(g, "seq") : TN_R;       /* of the residual stream */

    cut_weights(g, axis);
    tn_each_node(g, n) {
        const char *op = tn_op(n), *role = tn_role(n);

        if (tn_is(op, "ce"))
            tn_decompose(n, axis);
        else if (tn_is(op, "head"))
            join_head(g, n, axis);
        else if (tn_is(op, "einsum", "embed", "dispatch", "combine")) {
            if (sp && tn_is(role, "attn_qkv", "router", "mlp_in", "mlp_fc", "lm_head"))
                tn_convert_input(g, n, tn_input(n, 0), axis, TN_R);
            if (sp && tn_is(role, "pos_embed"))
                tn_convert_input(g, n, tn_input(n, 1), axis, stream);
            if (tn_is(role, "attn_out", "mlp_out", "tok_embed"))
                tn_convert_output(g, tn_output(n, 0), axis, stream);
        }
    }
}

/* Weights that saw a part of the sequence (norms, row biases, positions) have partial gradients. */
static void train(struct tn_graph *g, const char *axis)
{
    tn_reduce_gradients(g, axis, TN_R, 0);
}

static const struct tn_option options[] = {
    {"sp", "no", "whether the sequence is cut too between the projections", 0, 1},
    TN_BUCKET_OPTIONS,
    {0},
};

static const struct tn_pass tp = {
    .struct_size = sizeof tp,
    .options = options,
    .forward = forward,
    .train = train,
};

TN_PLUGIN("tp", "0.1.0", "tensor parallelism, with sp", TN_PASS_ID, &tp);
