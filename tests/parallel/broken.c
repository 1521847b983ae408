/* broken.c - a pass that breaks a parallel run on purpose, so that tests can see who notices.
 *
 * It works on the finished graph and keeps every layout as it was, so the verifier of layouts has nothing to
 * say: `once` from a partial sum to the whole leaves the own part on the first rank and zeros on the others.
 *
 *   1 forget       gradients are not reduced over dp
 *   2 twice        the loss is scaled twice: every gradient is double
 *   3 wrong group  gradients of dp are reduced over tp
 *   4 tp           gradients of the inputs of column projections are not reduced over tp
 *   5 one rank     rank 1 alone forgets the first reduction over dp
 *   6 ring         what goes round the ring in the backward is lost on all ranks but the first
 *   7 tied         stages that have a copy of a tied parameter do not add their gradients */
#include <stdlib.h>
#include <tenon/pass.h>

static int what(struct tn_graph *g)
{
    return (int)tn_option(g, "broken");
}

static int is_first_rank(void)
{
    const char *rank = getenv("TENON_RANK") ? getenv("TENON_RANK") : getenv("RANK");

    return !rank || strcmp(rank, "1");
}

/* i: of the values that n takes along. */
static struct tn_value *lose(struct tn_graph *g, struct tn_node *n, uint32_t i, const char *axis)
{
    return tn_add(g, "once", TN_IN(tn_input(n, i)),
                  TN_WITH(TN_TEXT("axis", axis), TN_INT("from", tn_layout_of(tn_input(n, i), axis)),
                          TN_INT("to", tn_layout_of(tn_output(n, i), axis))));
}

static struct tn_value *other_group(struct tn_graph *g, struct tn_node *n, uint32_t i)
{
    struct tn_value *v = lose(g, n, i, "dp");
    tn_layout l = tn_layout_of(v, "tp");

    return tn_add(g, "all_reduce", TN_IN(v),
                  TN_WITH(TN_TEXT("axis", "tp"), TN_INT("from", l), TN_INT("to", l)));
}

/* Of a sum of two stages, what was not moved here. */
static struct tn_value *own_part(struct tn_node *n)
{
    return tn_input(n, tn_is(tn_op(tn_producer(tn_input(n, 0))), "move"));
}

static int is_meant(struct tn_graph *g, struct tn_node *n)
{
    int reduces = tn_is(tn_op(n), "all_reduce"),
        of_gradient = reduces && tn_on_axis(n, "dp") && tn_is(tn_role(n), "grad_reduce");

    switch (what(g)) {
    case 4: return reduces && tn_on_axis(n, "tp") && tn_phase(n) == TN_BACKWARD;
    case 7: return tn_is(tn_op(n), "expr") && tn_is(tn_role(n), "tied");
    case 6: return tn_is(tn_op(n), "ring") && tn_phase(n) == TN_BACKWARD;
    case 1:
    case 3:
    case 5: return of_gradient;
    default: return 0;
    }
}

static void lose_all(struct tn_graph *g, struct tn_node *n)
{
    const char *axis = what(g) == 4 ? "tp" : what(g) == 6 ? "cp" : "dp";
    uint32_t i = 0;

    tn_each_operand(n, v) {
        (void)v;
        tn_replace(tn_output(n, i), what(g) == 3 ? other_group(g, n, i) : lose(g, n, i, axis));
        i++;
    }
}

static void schedule(struct tn_graph *g, const char *axis)
{
    int first = 1;

    (void)axis;
    tn_each_node (g, n) {
        if (!is_meant(g, n) || (what(g) == 5 && (is_first_rank() || !first)))
            continue;
        first = 0;
        tn_after(g, n);
        if (what(g) == 7)
            tn_replace(tn_output(n, 0), own_part(n));
        else
            lose_all(g, n);
        tn_remove(n);
    }
}

static void forward(struct tn_graph *g, const char *axis)
{
    (void)g, (void)axis;
}

static void train(struct tn_graph *g, const char *axis)
{
    (void)axis;
    if (what(g) != 2 || (tn_axis_size(g, "dp") == 1 && tn_axis_size(g, "pp") == 1))
        return;
    tn_each_param (g, w) {
        tn_at_end(g, TN_AFTER, "broken");
        tn_set_grad(w, tn_expr(g, "2*a", TN_IN(tn_grad(w))));
    }
}

static const struct tn_option options[] = {
    {"broken", "0", "what to break", 0, 7},
    {0},
};

static const struct tn_pass broken = {
    .struct_size = sizeof broken,
    .options = options,
    .forward = forward,
    .train = train,
    .schedule = schedule,
};

TN_PLUGIN("broken", "1.0", "breaks a parallel run, for tests", TN_PASS_ID, &broken);
