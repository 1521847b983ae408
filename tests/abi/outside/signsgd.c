/* signsgd - an optimizer from outside of the tree: steps of one size along the sign of the gradient. */
#include <tenon/optimizer.h>

static const struct tn_option options[] = {
    {"weight_decay", "0", "share of the weight taken per unit of lr", 0, 1},
    {0},
};

static const struct tn_optimizer signsgd = {
    .struct_size = sizeof signsgd,
    .options = options,
    .update = "w = w*(1 - lr*weight_decay) - lr*(ge(g, 0) - ge(0, g) + 0*g)",
};

TN_PLUGIN("signsgd", "0.1", "steps along the sign of the gradient", TN_OPTIMIZER_ID, &signsgd);
