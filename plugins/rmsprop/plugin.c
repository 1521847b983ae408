/* rmsprop - steps divided by a running root mean square (Hinton), as in PyTorch, not centred. */
#include <tenon/optimizer.h>

enum { ALPHA, EPS, MOMENTUM, WEIGHT_DECAY };     /* places in options */

static const struct tn_option options[] = {
    [ALPHA] = {"alpha", "0.99", "memory of the mean square", 0, 1},
    [EPS] = {"eps", "1e-8", "added to the root", 0, 1},
    [MOMENTUM] = {"momentum", "0", "how much of the last step stays; 0 needs no memory", 0, 1},
    [WEIGHT_DECAY] = {"weight_decay", "0", "added to the gradient, times the weight", 0, 1},
    {0},
};
static const struct tn_slot slots[] = {{"v", TN_F32, 0}, {0}};
static const struct tn_slot momentum_slots[] = {{"v", TN_F32, 0}, {"b", TN_F32, 0}, {0}};

static const char plain[] = "g = g + weight_decay*w;"
                            "v = alpha*v + (1 - alpha)*g*g;"
                            "w = w - lr*g/(sqrt(v) + eps)";
static const char momentum[] = "g = g + weight_decay*w;"
                               "v = alpha*v + (1 - alpha)*g*g;"
                               "b = momentum*b + g/(sqrt(v) + eps);"
                               "w = w - lr*b";

static void choose(const double *value, const struct tn_slot **slot, const char **update)
{
    *slot = value[MOMENTUM] == 0 ? slots : momentum_slots;
    *update = value[MOMENTUM] == 0 ? plain : momentum;
}

static const struct tn_optimizer rmsprop = {
    .struct_size = sizeof rmsprop,
    .options = options,
    .choose = choose,
};

TN_PLUGIN("rmsprop", "1.0", "RMSProp, with momentum", TN_OPTIMIZER_ID, &rmsprop);
