/* halving.c - an optimizer in one file, as somebody would write it outside this tree: it remembers the last update
 * and adds half of it to the next. */
#include <tenon/optimizer.h>

static const struct tn_option options[] = {
    {"share", "0.5", "Share of the last update that is repeated", 0, 1},
    {0},
};

static const struct tn_slot slots[] = {
    {"last", TN_F32, 0},
    {0},
};

static const struct tn_optimizer optimizer = {
    .struct_size = sizeof optimizer,
    .options = options,
    .slots = slots,
    .update = "last = share*last - lr*g; w = w + last",
};

TN_PLUGIN("halving", "1.0", "Repeats a share of the last update", TN_OPTIMIZER_ID, &optimizer);
