/* lists.c - an optimizer, kernels and a communicator whose lists and words are wrong in one way: -DATTACK=n. */
#include <tenon/comm.h>
#include <tenon/kernels.h>
#include <tenon/optimizer.h>

#define IS(n) (ATTACK == (n))

/* An unmapped page follows none of these: what has no end runs into the next one, or into nothing. */
static const struct tn_option options[] = {
    {IS(1) ? "" : IS(2) ? "a.b\n[train]" : IS(3) ? "t" : IS(4) ? (const char *)8 : "beta", "0.9", "memory", IS(5) ? 1.5 : 0, 1},
    {IS(6) ? "beta" : NULL, "0.9", "memory", 0, 1},
    {0},
};
static const struct tn_slot slots[] = {
    {IS(7) ? "../m" : IS(8) ? "w" : IS(9) ? "beta" : "m", IS(10) ? TN_I32 : TN_F32, 0},
    {IS(11) ? "m" : NULL, TN_F32, 0},
    {0},
};
static void choose(const double *value, const struct tn_slot **out, const char **update)
{
    static const struct tn_slot twice[] = {{"m", TN_F32, 0}, {"m", TN_F32, 0}, {0}};

    (void)value, (void)update;
    *out = IS(12) ? twice : slots;
}
static const struct tn_optimizer optimizer = {
    .struct_size = sizeof optimizer, .options = options, .slots = slots, .choose = choose,
    .update = IS(13) ? "m = beta*m + nosuch; w = w - lr*m" : IS(19) ? "w = m" : "m = beta*m + g; w = w - lr*m"};

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "always");
    return TN_OK;
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    (void)p, (void)out;
    return TN_DECLINED;
}
static const char *const ops[] = {IS(14) ? "ex\033pr" : IS(15) ? (const char *)8 : "expr", NULL};
static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels, .device = IS(16) ? "cpu\n" : "cpu", .ops = ops, .probe = probe, .prepare = prepare};

TN_PLUGIN2("lists", "1", "an attack", TN_OPTIMIZER_ID, &optimizer, TN_KERNELS_ID, &kernels);
