// kthrows - kernels for cpu whose prepare lets an exception out
#include <stdexcept>
#include <tenon/kernels.h>

static tn_status probe(uint32_t *score, char *, uint64_t)
{
    *score = 50;
    return TN_OK;
}
static tn_status prepare(const struct tn_problem *, struct tn_kernel *)
{
    throw std::runtime_error("out of registers");
}
static const char *const ops[] = {"expr", NULL};
static const struct tn_kernels kernels = {sizeof kernels, 0, "cpu", ops, probe, prepare};
TN_PLUGIN("kthrows", "1", "throws at work", TN_KERNELS_ID, &kernels);
