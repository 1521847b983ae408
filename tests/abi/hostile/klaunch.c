/* klaunch - kernels for cpu that prepare well and crash when launched */
#include "hostile.h"

#include <tenon/kernels.h>

SAY(50)
static tn_status launch(void *state, const struct tn_launch *l)
{
    (void)state;
    (void)l;
    raise(SIGSEGV);
    return TN_OK;
}
static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    (void)p;
    out->launch = launch;
    return TN_OK;
}
static const char *const ops[] = {"expr", NULL};
static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels, .device = "cpu", .ops = ops, .probe = probe, .prepare = prepare};
TN_PLUGIN("klaunch", "1", "crashes at work", TN_KERNELS_ID, &kernels);
