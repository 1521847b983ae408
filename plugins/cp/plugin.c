/* cp - context parallelism: the sequence is cut, attention goes round a ring (Liu et al. 2023) or gathers all keys.
 *
 * Before autodiff attention is only marked with its ring; afterwards each direction there is is lowered: keys, values and their
 * positions travel, parts are merged by their log-sum-exp, and in backward, with the final log-sum-exp, parts add up while
 * dk and dv travel home. Positions are values, so zig-zag is only another pattern of the cut: it gives every rank the
 * same number of pairs under a causal mask. With gathered keys autodiff does the rest: dk and dv are reduce-scattered. */
#include <tenon/gradients.h>

static tn_layout part_of_seq(struct tn_graph *g, int64_t rot)
{
    return tn_host->graph->shard(g, "seq", tn_option(g, "zigzag") != 0 ? "zigzag" : "", (int32_t)rot);
}

/* The same attention, or its backward, of other inputs; as a part of a ring, unless axis is NULL. */
static struct tn_node *attention(struct tn_graph *g, const struct tn_node *n, struct tn_value *const *in, uint32_t n_in, const char *axis)
{
    static const char *const kept[] = {"scale", "dropout", "key", "block"};
    struct tn_attr attr[5] = {TN_TEXT("ring", axis)};
    uint32_t n_attr = axis != NULL;

    for (int i = 0; i < 4; i++)
        if (tn_host->graph->attr(n, kept[i]))
            attr[n_attr++] = *tn_host->graph->attr(n, kept[i]);
    return tn_producer(tn_add(g, tn_op(n), in, n_in, attr, n_attr));
}

/* Keys, values and their positions whole: what the own queries see of them needs no merging. */
static void gather_keys(struct tn_graph *g, struct tn_value **in, const char *axis)
{
    struct tn_value *whole[3];

    tn_set_role(g, "attn_keys");
    tn_convert_all((struct tn_value *const[]){in[1], in[2], in[4]}, 3, axis, TN_R, whole);
    in[1] = whole[0], in[2] = whole[1], in[4] = whole[2];
}

static void forward(struct tn_graph *g, const char *axis)
{
    int ring = tn_option(g, "ring") != 0;

    tn_each_input(g, v)
        if (tn_dim(v, "seq"))
            tn_set_layout(v, axis, part_of_seq(g, 0));
    tn_each_node(g, n) {
        if (tn_is(tn_op(n), "sum") && tn_is(tn_role(n), "visits"))           /* of experts by a sequence */
            tn_convert_output(g, tn_output(n, 0), axis, TN_R);
        if (tn_is(tn_op(n), "attention")) {
            struct tn_value *in[5];
            struct tn_node *now;

            for (uint32_t i = 0; i < 5; i++)
                in[i] = tn_input(n, i);
            tn_before(g, n);
            if (!ring)
                gather_keys(g, in, axis);
            tn_set_role(g, tn_role(n));
            now = attention(g, n, in, 5, ring ? axis : NULL);
            for (uint32_t o = 0; o < 2; o++)
                tn_replace(tn_output(n, o), tn_output(now, o));
            tn_remove(n);
        }
    }
}

/* Keys, values and their positions begin to travel to where they are needed at this step. */
static void pass_on(struct tn_graph *g, struct tn_value **in, const char *axis, int64_t step)
{
    static const uint32_t travels[] = {1, 2, 4};

    for (int i = 0; i < 3 && step < tn_axis_size(g, axis); i++)
        in[travels[i]] = tn_convert(in[travels[i]], axis, part_of_seq(g, step));
}

/* Parts are merged by their log-sum-exp. The first one is that of the own keys, of which every query sees
 * one. The next keys are on their way while a part is computed. */
static void ring_forward(struct tn_graph *g, struct tn_node *n, const char *axis, struct tn_value **out)
{
    struct tn_value *in[5], *now[5];

    for (uint32_t i = 0; i < 5; i++)
        in[i] = tn_input(n, i);
    for (int64_t step = 0; step < tn_axis_size(g, axis); step++) {
        struct tn_node *part;
        struct tn_value *o, *l, *sum;

        memcpy(now, in, sizeof now);
        pass_on(g, in, axis, step + 1);
        part = attention(g, n, now, 5, axis);
        o = tn_output(part, 0), l = tn_output(part, 1);
        if (step) {
            sum = tn_expr(g, "max(a, b) + log(exp(a - max(a, b)) + exp(b - max(a, b)))", TN_IN(out[1], l));
            o = tn_expr(g, "a*exp(b - e) + c*exp(d - e)", TN_IN(out[0], out[1], o, l, sum));
            l = sum;
        }
        out[0] = o, out[1] = l;
    }
}

/* With the final log-sum-exp the parts add up; dk and dv travel home with their keys, each while a part is computed. */
static void ring_backward(struct tn_graph *g, struct tn_node *n, const char *axis, struct tn_value **d)
{
    int64_t ranks = tn_axis_size(g, axis);
    struct tn_value *in[8], *now[8];

    for (uint32_t i = 0; i < 8; i++)
        in[i] = tn_input(n, i);
    for (int64_t step = 0; step < ranks; step++) {
        struct tn_node *part;

        memcpy(now, in, sizeof now);
        pass_on(g, in, axis, step + 1);
        for (int i = 1; i < 3 && step; i++)
            d[i] = tn_convert(d[i], axis, part_of_seq(g, step));
        part = attention(g, n, now, 8, axis);
        for (uint32_t i = 0; i < 3; i++)
            d[i] = step ? tn_expr(g, "a + b", TN_IN(d[i], tn_output(part, i))) : tn_output(part, i);
    }
    for (int i = 1; i < 3; i++)
        d[i] = tn_convert(d[i], axis, part_of_seq(g, 0));
}

static void lower(struct tn_graph *g, const char *axis)
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

static void train(struct tn_graph *g, const char *axis)
{
    tn_reduce_gradients(g, axis, TN_R, tn_option(g, "sync_every") != 0);
}

static const struct tn_option options[] = {
    {"ring", "yes", "whether keys and values go round a ring; if not every rank gathers all, which suits short sequences", 0, 1},
    {"zigzag", "yes", "whether each rank gets an early and a late part of the sequence", 0, 1},
    TN_BUCKET_OPTIONS,
    {0},
};

static const struct tn_pass cp = {
    .struct_size = sizeof cp,
    .options = options,
    .forward = forward,
    .train = train,
    .lower = lower,
};

TN_PLUGIN("cp", "0.1.0", "context parallelism: ring attention, or gathered keys", TN_PASS_ID, &cp);
