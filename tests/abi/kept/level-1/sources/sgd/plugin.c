/* sgd - stochastic gradient descent with momentum, as in PyTorch without dampening.
 *
 * PyTorch begins the momentum with the first gradient; v = momentum*v + g from v = 0 does the same. */
#include <tenon/optimizer.h>

enum { MOMENTUM, NESTEROV, WEIGHT_DECAY };       /* places in options */

static const struct tn_option options[] = {
    [MOMENTUM] = {"momentum", "0", "how much of the last step stays; 0 needs no memory", 0, 1},
    [NESTEROV] = {"nesterov", "no", "look ahead along the momentum", 0, 1},
    [WEIGHT_DECAY] = {"weight_decay", "0", "added to the gradient, times the weight", 0, 1},
    {0},
};
static const struct tn_slot no_slots[] = {{0}};
static const struct tn_slot slots[] = {{"v", TN_F32, 0}, {0}};

static const char plain[] = "w = w - lr*(g + weight_decay*w)";
static const char momentum[] = "g = g + weight_decay*w;"
                               "v = momentum*v + g;"
                               "w = w - lr*v";
static const char nesterov[] = "g = g + weight_decay*w;"
                               "v = momentum*v + g;"
                               "w = w - lr*(g + momentum*v)";

static void choose(const double *value, const struct tn_slot **slot, const char **update)
{
    *slot = value[MOMENTUM] == 0 ? no_slots : slots;
    *update = value[MOMENTUM] == 0 ? plain : value[NESTEROV] != 0 ? nesterov : momentum;
}

static const struct tn_optimizer sgd = {
    .struct_size = sizeof sgd,
    .options = options,
    .choose = choose,
};

TN_PLUGIN("sgd", "1.0", "stochastic gradient descent, with momentum", TN_OPTIMIZER_ID, &sgd);
