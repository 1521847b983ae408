/* builder - an optimizer that makes its nodes itself: a step of one length for each tensor, along its gradient. What a norm of a
 * whole tensor needs is not element-wise, so words do not do. */
#include <tenon/optimizer.h>
#include <tenon/pass.h>

static const struct tn_option options[] = {
    {"length", "1", "of the step, in learning rates", 0, 100},
    {"weight_decay", "0", "share of the weight taken per unit of lr", 0, 1},
    {0},
};

/* Each rank has the part of the sum that it holds the gradient of. */
static struct tn_value *whole(struct tn_graph *g, struct tn_value *sum)
{
    static const char *const axis[] = {"tp", "cp", "ep", "pp", "dp"};

    for (int i = 0; i < 5; i++)
        if (tn_axis_size(g, axis[i]) > 1)
            sum = tn_convert(sum, axis[i], TN_R);
    return sum;
}

static void build(struct tn_graph *g, struct tn_value *w, struct tn_value *grad, struct tn_value *const *slot)
{
    struct tn_value *norm = whole(g, tn_add(g, "sumsq", TN_IN(grad), TN_NONE));
    struct tn_attr step[] = {
        TN_TEXT("f", "a*(1 - lr*lr_scale*weight_decay) - lr*lr_scale*length*b/(sqrt(c) + 1e-12)"),
        TN_NAMES("uniform", "lr"),
        {"lr_scale", TN_ATTR_FLOAT, 1, {.f = tn_option(g, "lr_scale")}},
        {"length", TN_ATTR_FLOAT, 1, {.f = tn_option(g, "length")}},
        {"weight_decay", TN_ATTR_FLOAT, 1, {.f = tn_option(g, "weight_decay")}},
    };

    (void)slot;
    tn_add(g, "assign", TN_IN(w, tn_add(g, "expr", TN_IN(w, grad, norm), step, 5)), TN_NONE);
}

static const struct tn_optimizer builder = {
    .struct_size = sizeof builder,
    .options = options,
    .build = build,
};

TN_PLUGIN("builder", "0.1", "a step of one length for each tensor", TN_OPTIMIZER_ID, &builder);
