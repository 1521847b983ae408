/* adam - Adam (Kingma, Ba) as in PyTorch: weight decay is part of the gradient. */
#include <tenon/optimizer.h>

static const struct tn_option options[] = {
    {"beta1", "0.9", "memory of the mean", 0, 1},
    {"beta2", "0.999", "memory of the mean square", 0, 1},
    {"eps", "1e-8", "added to the root", 0, 1},
    {"weight_decay", "0", "added to the gradient, times the weight", 0, 1},
    {0},
};
static const struct tn_slot slots[] = {{"m", TN_F32, 0}, {"v", TN_F32, 0}, {0}};

static const struct tn_optimizer adam = {
    .struct_size = sizeof adam,
    .options = options,
    .slots = slots,
    .update = "g = g + weight_decay*w;"
              "m = beta1*m + (1 - beta1)*g;"
              "v = beta2*v + (1 - beta2)*g*g;"
              "step = (m/(1 - beta1^t)) / (sqrt(v/(1 - beta2^t)) + eps);"
              "w = w - lr*step",
};

TN_PLUGIN("adam", "1.0", "Adam, weight decay within the gradient", TN_OPTIMIZER_ID, &adam);
