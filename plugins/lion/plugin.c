/* lion - steps of one size along the sign of a mean of gradients (Chen and others, "Symbolic Discovery of Optimization
 * Algorithms", 2023). One number of state for each parameter, half of Adam's.
 *
 * The direction takes beta1 of the mean, the mean itself beta2: so a step sees more of the newest gradient than the memory
 * does. ge(x, 0) - ge(0, x) is the sign of x, and 0 of 0; 0*x keeps a NaN. */
#include <tenon/optimizer.h>

static const struct tn_option options[] = {
    {"beta1", "0.9", "memory of the direction", 0, 1},
    {"beta2", "0.99", "memory of the mean", 0, 1},
    {"weight_decay", "0", "share of the weight taken per unit of lr", 0, 1},
    {0},
};
static const struct tn_slot slots[] = {{"m", TN_F32, 0}, {0}};

static const struct tn_optimizer lion = {
    .struct_size = sizeof lion,
    .options = options,
    .slots = slots,
    .update = "c = beta1*m + (1 - beta1)*g;"
              "m = beta2*m + (1 - beta2)*g;"
              "w = w*(1 - lr*weight_decay) - lr*(ge(c, 0) - ge(0, c) + 0*c)",
};

TN_PLUGIN("lion", "1.0", "Steps along the sign of a mean of gradients", TN_OPTIMIZER_ID, &lion);
