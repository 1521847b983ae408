/* pp - pipeline parallelism (GPipe, Huang et al. 2019; 1F1B and interleaved, Narayanan et al. 2021).
 *
 * The units of the model are dealt to stages, in order. A stage is a layout on the axis, so what crosses is a
 * conversion like any other and autodiff makes the way back. A parameter that two stages use gets a copy on
 * the second; the gradients of both are exchanged and added in one order, so the copies stay the same bits.
 * Stage s runs on rank s mod P. All schedules are one rule: how many forwards a rank is ahead of its
 * backwards. */
#include <stdlib.h>
#include "cut.h"

/* --- which schedule */

static int is_interleaved(struct tn_graph *g)
{
    return tn_is(tn_option_text(g, "schedule"), "interleaved");
}

static uint32_t stages_per_rank(struct tn_graph *g)
{
    double v = tn_option(g, "virtual");

    if (v != (double)(uint32_t)v || (v > 1 && !is_interleaved(g)))
        tn_fail(g, TN_ERR_CONFIG,
                "parallel.virtual = %g: a whole number of stages on each rank, and more than one only under "
                "parallel.schedule = interleaved, here it is %s",
                v, tn_option_text(g, "schedule"));
    return v > 0 ? (uint32_t)v : is_interleaved(g) ? 2 : 1;
}

/* --- the graph */

/* An input of the micro-batch is held where it is used, if that is one stage. */
static void place_input(struct tn_graph *g, struct tn_value *v, const struct pp_cut *c, const char *axis)
{
    const struct pp_unit *only = NULL;

    tn_each_user(v, n) {
        const struct pp_unit *u = pp_find(c, tn_unit(n));

        if (!u || tn_phase(n) != TN_FORWARD || (only && only->stage != u->stage))
            return;
        only = u;
    }
    if (only && tn_dim(v, "batch"))
        tn_set_layout(v, axis, tn_on(g, only->stage));
}

/* v for node n, on the stage of n. Positions are constants: each stage has its own. */
static void bring(struct tn_graph *g, struct tn_node *n, struct tn_value *v, const char *axis, tn_layout here)
{
    if (tn_producer(v))
        tn_convert_input(g, n, v, axis, here);
    else if (tn_is_param(v) || !tn_dim(v, "batch"))
        tn_set_input(n, v, tn_copy_param(v, axis, here));
}

static void forward(struct tn_graph *g, const char *axis)
{
    struct pp_cut c = pp_cut_units(g, axis, stages_per_rank(g));

    tn_each_node(g, n) {
        const struct pp_unit *u = pp_find(&c, tn_unit(n));

        if (!u)
            continue;
        tn_each_operand(n, v)
            bring(g, n, v, axis, tn_on(g, u->stage));
    }
    tn_each_input(g, v)
        place_input(g, v, &c, axis);
    free(c.unit);
}

static void train(struct tn_graph *g, const char *axis)
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

/* --- the schedule */

struct order {
    struct tn_graph *g;
    uint32_t ranks, virtual, micro;              /* ranks, stages on each, micro-batches */
};

/* The k-th forward or backward of a rank. Several stages on a rank take turns, as many micro-batches at a
 * time as there are ranks. */
static void put(const struct order *o, uint32_t rank, uint32_t phase, uint32_t k)
{
    uint32_t chunk = k / o->ranks % o->virtual, micro = k / (o->ranks * o->virtual) * o->ranks + k % o->ranks;

    tn_task(o->g, rank, phase, micro,
            (phase == TN_FORWARD ? chunk : o->virtual - 1 - chunk) * o->ranks + rank);
}

/* Forwards of a rank before its first backward. */
static uint32_t ahead(const struct order *o, uint32_t rank)
{
    uint32_t all = o->micro * o->virtual, n = o->ranks - rank - 1;

    if (is_interleaved(o->g))
        n = 2 * n + (o->virtual - 1) * o->ranks;
    return n > all || tn_is(tn_option_text(o->g, "schedule"), "afab") ? all : n;
}

static void schedule(struct tn_graph *g, const char *axis)
{
    const struct order o = {g, (uint32_t)tn_axis_size(g, axis), stages_per_rank(g), tn_micro_batches(g)};
    uint32_t all = o.micro * o.virtual, more = o.micro / o.ranks * o.ranks;

    if (is_interleaved(g) && o.micro % o.ranks)
        tn_fail(g, TN_ERR_CONFIG,
                "parallel.schedule = interleaved takes as many micro-batches at a time as there are ranks in "
                "the pipeline, %u, and an update has %u of them (train.global_batch / (micro_batch dp)): "
                "%.0u%s%u would do, or another schedule",
                o.ranks, o.micro, more, more ? " or " : "", more + o.ranks);
    for (uint32_t r = 0; r < o.ranks; r++)
        for (uint32_t k = 0, a = ahead(&o, r); k < all + a; k++) {
            if (k < all)
                put(&o, r, TN_FORWARD, k);
            if (k >= a)
                put(&o, r, TN_BACKWARD, k - a);
        }
}

static const struct tn_option options[] = {
    {"schedule", "1f1b", "order of the micro-batches", 0, 0},
    {"virtual", "0", "stages on each rank of the pipeline under schedule = interleaved; 0: 2 there, else 1",
     0, 64},
    {"stages", "", "blocks on each stage of the pipeline, such as 3,2; unset: stages of equal cost", 0, 0},
    {0},
};

static const struct tn_pass pp = {
    .struct_size = sizeof pp,
    .options = options,
    .forward = forward,
    .train = train,
    .schedule = schedule,
};

TN_PLUGIN("pp", "0.1.0", "pipeline parallelism: afab, 1f1b, interleaved", TN_PASS_ID, &pp);
