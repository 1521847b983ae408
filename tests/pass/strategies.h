/* strategies.h - the strategies that the tests of the graph run: the shipped plugins ddp, shard, tp and cp, loaded from the
 * build tree, and pp, which is here until the plan can hold several micro-batches in flight.
 *
 * pp is written against <tenon/pass.h> alone, as plugins are, and shows that the graph offers what it needs and that
 * verifier, autodiff and finish agree with every combination. */
#ifndef TESTS_PASS_STRATEGIES_H
#define TESTS_PASS_STRATEGIES_H
#include <stdlib.h>
#include <tenon/pass.h>
#include "base/status.h"
#include "plugin/load.h"

/* The pass of a plugin that was just built. */
static const struct tn_pass *shipped(const char *name)
{
    const char *top = getenv("top_builddir");
    const struct tn_loaded *plugin;
    char path[1024];

    snprintf(path, sizeof path, "%s/plugins/%s/.libs/%s.so", top ? top : ".", name, name);
    if (tn_plugin_open(path, &plugin)) {
        fprintf(stderr, "%s\n", tn_error_text());
        exit(99);
    }
    return tn_plugin_table(plugin, TN_PASS_ID);
}

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
