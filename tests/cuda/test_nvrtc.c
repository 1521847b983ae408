/* test_nvrtc.c - the programs of the conformance list by NVRTC, as plugin cuda gives them to it: machine code for
 * compute capability 9.0 and 8.0, and PTX, as for a GPU that the compiler does not know. What it computes is checked by
 * test_emu, with the same sources; here that it is taken, and that 16 bytes are moved at once. A part of them, unless ALL=1. Skipped without NVRTC. */
#include <cuda_runtime_api.h>                    /* CUDART_VERSION */
#include <dlfcn.h>
#include <stdlib.h>
#include "conform.h"
#include "rtc.h"
#include "twin.h"

static uint32_t taken[3], failed, wide;

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    return p->program ? tn_cuda_prepare(p, out) : TN_DECLINED;
}

static void compile(const char *source, const char *name)
{
    static const int arch[] = {90, 80, 81};      /* there is no 8.1: PTX for 8.0 */
    static uint32_t nth;
    const uint32_t targets = getenv("ALL") || nth % 16 == 0 ? 3 : nth % 4 == 0;

    nth++;
    for (uint32_t i = 0; i < targets; i++) {
        char *code;
        size_t size;

        if (tn_cuda_nvrtc(source, name, arch[i], &code, &size)) {
            printf("not taken for %d: %s\n", arch[i], strstr(source, "extern"));
            failed++;
            return;
        }
        taken[i]++;
        if (i == 2) {
            wide += strstr(code, "ld.global.v4") && strstr(code, "st.global.v4");
            failed += !strstr(code, name);
        } else
            failed += size < 4 || memcmp(code, "\177ELF", 4);
        free(code);
    }
}

int main(void)
{
    char path[400], *code;
    size_t size;

    tn_host = tn_bench_host();
    /* The address sanitizer's dlopen does not look where the library would: beside itself. */
    snprintf(path, sizeof path, TN_CUDA_LIBDIR "/libnvrtc-builtins.so.%d.%d", CUDART_VERSION / 1000,
             CUDART_VERSION / 10 % 100);
    (void)dlopen(path, RTLD_NOW);
    if (tn_cuda_nvrtc("", "nothing", 90, &code, &size)) {
        printf("skipped: NVRTC is not here\n");
        return 77;
    }
    free(code);
    if (!tn_cuda_nvrtc("extern \"C\" __global__ void k(float *x) { *x = y; }", "wrong", 90, &code, &size))
        printf("a wrong program is taken\n"), failed++;
    tn_test_twin_collect(prepare);
    tn_test_twin_each(compile);
    printf("%u programs for 9.0, %u for 8.0, %u as PTX, %u of them with moves of 16 bytes; %u failed\n", taken[0], taken[1],
           taken[2], wide, failed);
    return failed || !taken[2] || wide != taken[2];
}
