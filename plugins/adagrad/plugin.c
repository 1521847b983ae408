/* adagrad - steps that shrink with the sum of all squares so far (Duchi, Hazan, Singer), as in PyTorch. */
#include <tenon/optimizer.h>

static const struct tn_option options[] = {
    {"eps", "1e-10", "added to the root", 0, 1},
    {"weight_decay", "0", "added to the gradient, times the weight", 0, 1},
    {0},
};
static const struct tn_slot slots[] = {{"sum", TN_F32, 0}, {0}};

static const struct tn_optimizer adagrad = {
    .struct_size = sizeof adagrad,
    .options = options,
    .slots = slots,
    .update = "g = g + weight_decay*w;"
              "sum = sum + g*g;"
              "w = w - lr*g/(sqrt(sum) + eps)",
};

TN_PLUGIN("adagrad", "1.0", "AdaGrad", TN_OPTIMIZER_ID, &adagrad);
