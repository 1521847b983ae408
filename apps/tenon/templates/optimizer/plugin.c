/* @NAME@ - an optimizer: gradient descent with momentum and decoupled weight decay. */
#include <tenon/optimizer.h>

static const struct tn_option options[] = {
    {"momentum", "0.9", "share of the step before that is kept", 0, 1},
    {"weight_decay", "0", "share of the weight taken per unit of lr", 0, 1},
    {NULL, NULL, NULL, 0, 0},
};
static const struct tn_slot slots[] = {{"last", TN_F32, 0}, {NULL, 0, 0}};

static const struct tn_optimizer optimizer = {
    .struct_size = sizeof optimizer,
    .reserved0 = 0,
    .options = options,
    .slots = slots,
    .update = "last = momentum*last + g; w = w*(1 - lr*weight_decay) - lr*last",
    .choose = NULL,
    .build = NULL,
};

TN_PLUGIN("@NAME@", "0.1", "gradient descent with momentum", TN_OPTIMIZER_ID, &optimizer);
