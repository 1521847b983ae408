/* test_cpu.c - the kernels of plugin cpu, compared with ref. Skipped where one of the two was not built.
 *
 * An argument names another plugin of the build tree: tests/conformance/test_cpu cuda. */
#include <stdlib.h>
#include <unistd.h>
#include "conform.h"

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    const struct tn_plugin *mine = tn_bench_plugin(name), *ref = tn_bench_plugin("ref");
    const struct tn_kernels *kernels, *oracle;
    struct tn_conform_report r;

    if (!mine || !ref) {
        printf("skipped: plugin %s was not built\n", mine ? "ref" : name);
        return 77;
    }
    alarm(300);                                  /* a kernel that hangs fails */
    kernels = tn_bench_interface(mine, TN_KERNELS_ID), oracle = tn_bench_interface(ref, TN_KERNELS_ID);
    if (!kernels || !oracle || strcmp(kernels->device, oracle->device))
        tn_bench_stop("%s has no kernels for the device of ref", name);
    tn_conform(kernels, oracle, !!getenv("V"), &r);
    printf("%s: %u checked, %u declined, %u not claimed, %u failed\n", name, r.checked, r.declined, r.absent,
           r.failed);
    return r.failed || !r.checked ? 1 : 0;
}
