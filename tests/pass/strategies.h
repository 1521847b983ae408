/* strategies.h - the strategies that the tests of the graph run: dp (plain, and sharded by ZeRO), tp with sp,
 * cp, pp.
 *
 * They are written against <tenon/pass.h> alone, as plugins are, and are here to show that the graph offers
 * what a strategy needs and that its verifier, autodiff and finish agree with every combination. */
#ifndef TESTS_PASS_STRATEGIES_H
#define TESTS_PASS_STRATEGIES_H
#include <tenon/pass.h>

/* --- ddp: the batch is cut; gradients are summed once per update */

static void ddp_forward(struct tn_graph *g, const char *axis)
{
    tn_each_input(g, v)
        if (tn_dim(v, "batch"))
            tn_set_layout(v, axis, tn_shard(g, "batch"));
}

/* What the axis left partial is summed. */
static void sum_gradients(struct tn_graph *g, const char *axis)
{
    tn_each_param(g, w) {
        if (tn_layout_of(tn_grad(w), axis) != TN_P)
            continue;
        tn_at_end(g, TN_AFTER, "reduce");
        tn_set_role(g, "grad_reduce");
        tn_set_grad(w, tn_convert(tn_grad(w), axis, TN_R));
    }
}

static const struct tn_pass ddp = {.struct_size = sizeof ddp, .forward = ddp_forward, .train = sum_gradients};

/* --- shard: ZeRO 1 to 3 */

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

static void shard_forward(struct tn_graph *g, const char *axis)
{
    ddp_forward(g, axis);
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

static void shard_train(struct tn_graph *g, const char *axis)
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

static const struct tn_pass shard = {
    .struct_size = sizeof shard, .forward = shard_forward, .train = shard_train};

/* --- tp, with sp */

static void tp_weights(struct tn_graph *g, const char *axis)
{
    static const char *const cut[] = {"heads", "mlp", "vocab"};

    tn_each_param(g, w)
        for (int i = 0; i < 3; i++)
            if (tn_dim(w, cut[i]))
                tn_set_layout(w, axis, tn_shard(g, cut[i]));
}

/* The fused head leaves the log-sum-exp of its own part of the vocabulary: exp(lse - max) adds up. */
static void tp_head(struct tn_graph *g, struct tn_node *head, const char *axis)
{
    struct tn_value *lse = tn_output(head, 0), *picked = tn_output(head, 1), *max, *sum;

    tn_convert_input(g, head, tn_input(head, 0), axis, TN_R);
    tn_after(g, head);
    max = tn_convert(tn_add(g, "as_max", TN_IN(lse), TN_NONE), axis, TN_R);
    sum = tn_convert(tn_add(g, "lse_open", TN_IN(lse, max), TN_NONE), axis, TN_R);
    tn_replace(lse, tn_expr(g, "log(a) + b", TN_IN(sum, max)));
    tn_convert_output(g, picked, axis, TN_R);
}

static void tp_forward(struct tn_graph *g, const char *axis)
{
    int sp = tn_option(g, "sp") != 0;
    tn_layout stream = sp ? tn_shard(g, "seq") : TN_R;       /* of the residual stream */

    tp_weights(g, axis);
    tn_each_node(g, n) {
        const char *op = tn_op(n), *role = tn_role(n);

        if (tn_is(op, "ce"))
            tn_decompose(n, axis);
        else if (tn_is(op, "head"))
            tp_head(g, n, axis);
        else if (tn_is(op, "einsum", "embed")) {
            if (sp && tn_is(role, "attn_qkv", "mlp_fc", "lm_head"))
                tn_convert_input(g, n, tn_input(n, 0), axis, TN_R);
            if (sp && tn_is(role, "pos_embed"))
                tn_convert_input(g, n, tn_input(n, 1), axis, stream);
            if (tn_is(role, "attn_out", "mlp_out", "tok_embed"))
                tn_convert_output(g, tn_output(n, 0), axis, stream);
        }
    }
}

static const struct tn_pass tp = {.struct_size = sizeof tp, .forward = tp_forward, .train = sum_gradients};

/* --- cp: the sequence is cut, attention goes round a ring */

static tn_layout part_of_seq(struct tn_graph *g, int64_t rot)
{
    return tn_host->graph->shard(g, "seq", tn_option(g, "zigzag") != 0 ? "zigzag" : "", (int32_t)rot);
}

/* The same attention, or its backward, of other inputs, marked as a part of a ring. */
static struct tn_node *ring_part(struct tn_graph *g, const struct tn_node *n, struct tn_value *const *in,
                                 uint32_t n_in, const char *axis)
{
    static const char *const kept[] = {"scale", "dropout", "key", "block"};
    struct tn_attr attr[5] = {TN_TEXT("ring", axis)};
    uint32_t n_attr = 1;

    for (int i = 0; i < 4; i++)
        if (tn_host->graph->attr(n, kept[i]))
            attr[n_attr++] = *tn_host->graph->attr(n, kept[i]);
    return tn_producer(tn_add(g, tn_op(n), in, n_in, attr, n_attr));
}

static void cp_forward(struct tn_graph *g, const char *axis)
{
    tn_each_input(g, v)
        if (tn_dim(v, "seq"))
            tn_set_layout(v, axis, part_of_seq(g, 0));
    tn_each_node(g, n)
        if (tn_is(tn_op(n), "attention")) {
            struct tn_node *ring;

            tn_before(g, n);
            ring = ring_part(g, n, tn_host->graph->operands(n), 5, axis);
            for (uint32_t o = 0; o < 2; o++)
                tn_replace(tn_output(n, o), tn_output(ring, o));
            tn_remove(n);
        }
}

/* Parts are merged by their log-sum-exp. The first one is that of the own keys, of which every query sees
 * one. */
static void ring_forward(struct tn_graph *g, struct tn_node *n, const char *axis, struct tn_value **out)
{
    struct tn_value *in[5], *o, *l, *sum;
    struct tn_node *part;

    for (uint32_t i = 0; i < 5; i++)
        in[i] = tn_input(n, i);
    part = ring_part(g, n, in, 5, axis);
    o = tn_output(part, 0), l = tn_output(part, 1);
    for (int64_t step = 1; step < tn_axis_size(g, axis); step++) {
        static const uint32_t travels[] = {1, 2, 4};

        for (int i = 0; i < 3; i++)
            in[travels[i]] = tn_convert(in[travels[i]], axis, part_of_seq(g, step));
        part = ring_part(g, n, in, 5, axis);
        sum = tn_expr(g, "max(a, b) + log(exp(a - max(a, b)) + exp(b - max(a, b)))",
                      TN_IN(l, tn_output(part, 1)));
        o = tn_expr(g, "a*exp(b - e) + c*exp(d - e)",
                    TN_IN(o, l, tn_output(part, 0), tn_output(part, 1), sum));
        l = sum;
    }
    out[0] = o, out[1] = l;
}

/* With the final log-sum-exp the parts add up; dk and dv travel home with their keys. */
static void ring_backward(struct tn_graph *g, struct tn_node *n, const char *axis, struct tn_value **d)
{
    int64_t ranks = tn_axis_size(g, axis);
    struct tn_value *in[8];
    struct tn_node *part;

    for (uint32_t i = 0; i < 8; i++)
        in[i] = tn_input(n, i);
    part = ring_part(g, n, in, 8, axis);
    for (uint32_t i = 0; i < 3; i++)
        d[i] = tn_output(part, i);
    for (int64_t step = 1; step < ranks; step++) {
        tn_layout now = part_of_seq(g, step);

        for (int i = 1; i < 5; i++)
            if (i != 3)
                in[i] = tn_convert(in[i], axis, now);
        part = ring_part(g, n, in, 8, axis);
        d[0] = tn_expr(g, "a + b", TN_IN(d[0], tn_output(part, 0)));
        for (uint32_t i = 1; i < 3; i++)
            d[i] = tn_expr(g, "a + b", TN_IN(tn_convert(d[i], axis, now), tn_output(part, i)));
    }
    for (int i = 1; i < 3; i++)
        d[i] = tn_convert(d[i], axis, part_of_seq(g, 0));
}

static void cp_lower(struct tn_graph *g, const char *axis)
{
    tn_each_node(g, n) {
        const struct tn_attr *ring = tn_host->graph->attr(n, "ring");
        struct tn_value *out[3];
        uint32_t back = tn_is(tn_op(n), "attn_bwd");

        if (!ring || strcmp(ring->as.s, axis))
            continue;
        tn_before(g, n);
        if (back)
            ring_backward(g, n, axis, out);
        else
            ring_forward(g, n, axis, out);
        for (uint32_t o = 0; o < 2 + back; o++)
            tn_replace(tn_output(n, o), out[o]);
        tn_remove(n);
    }
}

static const struct tn_pass cp = {
    .struct_size = sizeof cp, .forward = cp_forward, .train = sum_gradients, .lower = cp_lower};

/* --- pp */

static uint32_t pp_stages(struct tn_graph *g, const char *axis)
{
    return (uint32_t)tn_axis_size(g, axis) * (uint32_t)tn_option(g, "virtual");
}

/* The first L mod N stages get one block more; what is before the blocks goes to the first, after to the
 * last. */
static uint32_t pp_stage_of(const struct tn_node *n, uint32_t count)
{
    uint32_t blocks, i = tn_unit_index(n, &blocks), each = blocks / count, more = blocks % count;

    if (!tn_is_unit(n, "block"))
        return tn_is_unit(n, "embed") ? 0 : count - 1;
    return i < more * (each + 1) ? i / (each + 1) : more + (i - more * (each + 1)) / each;
}

static void pp_forward(struct tn_graph *g, const char *axis)
{
    uint32_t count = pp_stages(g, axis);

    tn_each_node(g, n) {
        tn_layout here = tn_on(g, pp_stage_of(n, count));

        tn_each_operand(n, v)
            if (tn_is_param(v))
                tn_set_input(n, v, tn_copy_param(v, axis, here));
            else if (tn_producer(v))                        /* inputs are at every stage */
                tn_convert_input(g, n, v, axis, here);
    }
}

static void pp_train(struct tn_graph *g, const char *axis)
{
    tn_each_param(g, w) {
        struct tn_value *first = tn_primary(w), *a = tn_grad(first), *b = tn_grad(w);

        if (first == w)
            continue;
        tn_at_end(g, TN_AFTER, "reduce");
        tn_set_role(g, "tied");
        tn_set_grad(first, tn_expr(g, "a + b", TN_IN(a, tn_convert(b, axis, tn_layout_of(a, axis)))));
        tn_set_grad(w, tn_expr(g, "a + b", TN_IN(tn_convert(a, axis, tn_layout_of(b, axis)), b)));
    }
}

/* Megatron's order in general: k-th forward or backward of a rank; V = 1 is plain 1f1b. */
static void pp_put(struct tn_graph *g, uint32_t rank, uint32_t phase, uint32_t k, uint32_t P, uint32_t V)
{
    uint32_t chunk = k / P % V, micro = k / (P * V) * P + k % P;

    if (V == 1)
        chunk = 0, micro = k;
    tn_task(g, rank, phase, micro, (phase == TN_FORWARD ? chunk : V - 1 - chunk) * P + rank);
}

static void pp_schedule(struct tn_graph *g, const char *axis)
{
    uint32_t P = (uint32_t)tn_axis_size(g, axis), V = (uint32_t)tn_option(g, "virtual");
    uint32_t n = (uint32_t)tn_option(g, "micro_batches") * V;

    for (uint32_t r = 0; r < P; r++) {
        uint32_t ahead = V > 1 ? (P - r - 1) * 2 + (V - 1) * P : P - 1 - r;

        if (ahead > n)
            ahead = n;
        for (uint32_t k = 0; k < n + ahead; k++) {
            if (k < n)
                pp_put(g, r, TN_FORWARD, k, P, V);
            if (k >= ahead)
                pp_put(g, r, TN_BACKWARD, k - ahead, P, V);
        }
    }
}

static const struct tn_pass pp = {
    .struct_size = sizeof pp, .forward = pp_forward, .train = pp_train, .schedule = pp_schedule};
#endif
