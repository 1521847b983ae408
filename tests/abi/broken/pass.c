/* pass.c - data parallelism, right without BROKEN; with -DBROKEN=n one mistake that tenon plugins check finds.
 *
 *    1  forgets to add up the gradients              3  rank 1 alone forgets the first sum
 *    2  adds them up twice */
#include <stdlib.h>
#include <tenon/gradients.h>

#ifndef BROKEN
#define BROKEN 0
#endif
#define IS(n) (BROKEN == (n))

static void forward(struct tn_graph *g, const char *axis)
{
    tn_each_input(g, v)
        if (tn_dim(v, "batch"))
            tn_set_layout(v, axis, tn_shard(g, "batch"));
}

/* The own part in place of the sum: all layouts are as before. */
static void lose(struct tn_graph *g, const char *axis, int all)
{
    int left = all ? 1000 : 1;

    tn_each_node(g, n) {
        uint32_t i = 0;

        if (!tn_is(tn_op(n), "all_reduce") || !tn_is(tn_role(n), "grad_reduce") || left-- <= 0)
            continue;
        tn_after(g, n);
        tn_each_operand(n, v) {
            tn_replace(tn_output(n, i), tn_add(g, "once", TN_IN(v), TN_WITH(TN_TEXT("axis", axis), TN_INT("from", TN_P), TN_INT("to", TN_R))));
            i++;
        }
        tn_remove(n);
    }
}

static void train(struct tn_graph *g, const char *axis)
{
    const char *rank = getenv("TENON_RANK");

    tn_reduce_gradients(g, axis, TN_R, 0);
    if (IS(1))
        lose(g, axis, 1);
    if (IS(3) && rank && !strcmp(rank, "1"))
        lose(g, axis, 0);
    if (IS(2))
        tn_each_param(g, w) {
            tn_at_end(g, TN_AFTER, "");
            tn_set_grad(w, tn_expr(g, "2*a", TN_IN(tn_grad(w))));
        }
}

static const struct tn_option options[] = {TN_BUCKET_OPTIONS, {0}};
static const struct tn_pass pass = {.struct_size = sizeof pass, .options = options, .forward = forward, .train = train};

TN_PLUGIN("toydp", "1.0", "data parallelism", TN_PASS_ID, &pass);
