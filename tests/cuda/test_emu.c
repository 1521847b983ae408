/* test_emu.c - the kernels of plugin cuda, emulated on the host, compared with ref by the list of conformance.
 *
 * The kernels are those files of plugins/cuda that nvcc compiles, compiled with emu.h. Each run of a case draws
 * another order of threads. Skipped if ref was not built; V=1 says what was declined. */
#include <stdlib.h>
#include <unistd.h>
#include "conform.h"
#include "cuda.h"

void tn_emu_seed(uint64_t seed);

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    static uint64_t seed = 1;

    tn_emu_seed(seed++);
    return tn_cuda_prepare(p, out);
}

int main(void)
{
    const struct tn_plugin *p = tn_bench_plugin("ref");
    const struct tn_kernels *oracle;
    const struct tn_kernels emulated = {
        .struct_size = sizeof emulated,
        .device = "cpu",
        .ops = tn_cuda_ops,
        .prepare = prepare,
    };
    struct tn_conform_report r;

    if (!p) {
        printf("skipped: plugin ref was not built\n");
        return 77;
    }
    tn_host = tn_bench_host();
    alarm(600);                                  /* a kernel that hangs fails */
    oracle = tn_bench_interface(p, TN_KERNELS_ID);
    tn_conform(&emulated, oracle, !!getenv("V"), &r);
    printf("cuda, emulated: %u checked, %u declined, %u not claimed, %u failed\n", r.checked, r.declined,
           r.absent, r.failed);
    return r.failed || !r.checked ? 1 : 0;
}
