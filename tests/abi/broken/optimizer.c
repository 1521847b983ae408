/* optimizer.c - momentum, right without BROKEN; with -DBROKEN=n one mistake that tenon plugins check finds.
 *
 *    1  goes up                                      4  another formula each time it is asked
 *    2  a NaN is taken for 0                         5  words that nobody understands
 *    3  a slot that is never written */
#include <tenon/optimizer.h>

#ifndef BROKEN
#define BROKEN 0
#endif
#define IS(n) (BROKEN == (n))

static const struct tn_option options[] = {
    {"momentum", "0.9", "how much of the last step stays", 0, 1},
    {"weight_decay", "0", "added to the gradient, times the weight", 0, 1},
    {0},
};
static const struct tn_slot slots[] = {{"v", TN_F32, 0}, {IS(3) ? "u" : NULL, IS(3) ? TN_F32 : 0, 0}, {0}};

static void choose(const double *value, const struct tn_slot **slot, const char **update)
{
    static int asked;

    (void)value, (void)slot;
    *update = IS(1)                 ? "v = momentum*v + g + weight_decay*w; w = w + lr*v"
              : IS(2)               ? "g = select(ge(g*g, 0), g, 0); v = momentum*v + g + weight_decay*w; w = w - lr*v"
              : IS(4) && asked++ % 2 ? "v = momentum*v + g; w = w - lr*v"
              : IS(5)               ? "v = momentum*v + gradient; w = w - lr*v"
                                    : "v = momentum*v + g + weight_decay*w; w = w - lr*v";
}

static const struct tn_optimizer optimizer = {
    .struct_size = sizeof optimizer, .options = options, .slots = slots, .choose = choose};

TN_PLUGIN("toyopt", "1.0", "momentum", TN_OPTIMIZER_ID, &optimizer);
