/* adamw - Adam with decoupled weight decay (Loshchilov, Hutter), as in PyTorch; the defaults are nanoGPT's. */
#include <tenon/optimizer.h>

static const struct tn_option options[] = {
    {"beta1", "0.9", "memory of the mean", 0, 1},
    {"beta2", "0.95", "memory of the mean square", 0, 1},
    {"eps", "1e-8", "added to the root", 0, 1},
    {"weight_decay", "0.1", "share of the weight taken per unit of lr", 0, 1},
    {0},
};
static const struct tn_slot slots[] = {{"m", TN_F32, 0}, {"v", TN_F32, 0}, {0}};

static const struct tn_optimizer adamw = {
    .struct_size = sizeof adamw,
    .options = options,
    .slots = slots,
    .update = "m = beta1*m + (1 - beta1)*g;"
              "v = beta2*v + (1 - beta2)*g*g;"
              "step = (m/(1 - beta1^t)) / (sqrt(v/(1 - beta2^t)) + eps);"
              "w = w*(1 - lr*weight_decay) - lr*step",
};

TN_PLUGIN("adamw", "1.0", "Adam with decoupled weight decay", TN_OPTIMIZER_ID, &adamw);
