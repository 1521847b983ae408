/* test_emu.c - the kernels of plugin cuda, emulated on the host, compared with ref by the list of conformance.
 *
 * The kernels are those files of plugins/cuda that nvcc compiles, compiled with emu.h. Each run of a case draws another
 * order of threads. The list runs three times: with the kernels alone, with matrix products by a library (blas.c), and,
 * what has a program, with kernels made of the programs' source by the host's compiler (twin.c). What
 * would take long is left out, unless LARGE=1; V=1 says what was declined. Skipped if ref was not built. */
#include <stdlib.h>
#include <unistd.h>
#include "blas.h"
#include "conform.h"
#include "twin.h"

#define MOST_WORK 1700000                        /* turns of the innermost loop; in the third walk fewer */
#define MOST_ELEMENTS 500000                     /* of an operand */

void tn_emu_seed(uint64_t seed);

static int64_t most_work = MOST_WORK;
static uint32_t left_out;

#ifdef __SANITIZE_ADDRESS__                      /* leaks are looked for where the list of cases is not static */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=1:use_sigaltstack=0";
}
#endif

/* About how many times the innermost statement runs. */
static int64_t work(const struct tn_problem *p)
{
    int64_t n = 1, most = 0;

    for (uint32_t i = 0; i < p->n_loop; i++)
        n *= p->loop[i].size;
    for (uint32_t i = 0; i < p->n_in; i++)
        most = tn_count(&p->in[i]) > most ? tn_count(&p->in[i]) : most;
    if (most > MOST_ELEMENTS)
        return INT64_MAX;
    if (p->n_loop)
        return n;
    if (!strncmp(p->op, "head", 4))
        return tn_count(&p->in[0]) * p->in[1].size[0] * (p->n_in > 3 ? 4 : 1);
    if (!strncmp(p->op, "att", 3))
        return tn_count(&p->in[0]) * p->in[1].size[1] / 4;
    return most;
}

static int programs_only;                        /* what has no program is declined */

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    static uint64_t seed = 1;

    tn_emu_seed(seed++);
    if (programs_only && !p->program)
        return TN_DECLINED;
    if (work(p) > most_work && !getenv("LARGE")) {
        left_out++;
        return TN_DECLINED;
    }
    return tn_cuda_prepare(p, out);
}

static int run(const char *title, const char *const *ops, const struct tn_kernels *oracle)
{
    const struct tn_kernels emulated = {
        .struct_size = sizeof emulated,
        .device = "cpu",
        .ops = ops,
        .prepare = prepare,
    };
    struct tn_conform_report r;

    left_out = 0;
    tn_conform(&emulated, oracle, !!getenv("V"), &r);
    printf("%s: %u checked, %u declined or left out (%u launches for their size), %u not claimed, %u failed\n", title,
           r.checked, r.declined, left_out, r.absent, r.failed);
    return r.failed || !r.checked;
}

int main(void)
{
    static const char *const products[] = {"einsum", "head", "head_bwd", "head_train", NULL};
    static const char *const programs[] = {"expr", "einsum", NULL};
    const struct tn_plugin *p = tn_bench_plugin("ref");
    const struct tn_kernels *oracle;
    int failed;

    if (!p) {
        printf("skipped: plugin ref was not built\n");
        return 77;
    }
#ifdef __SANITIZE_THREAD__
    printf("skipped: the thread sanitizer does not know these fibers\n");
    return 77;
#endif
    tn_host = tn_bench_host();
    alarm(600);                                  /* a kernel that hangs fails */
    oracle = tn_bench_interface(p, TN_KERNELS_ID);
    failed = run("cuda, emulated", tn_cuda_ops, oracle);
    tn_cuda_blas = &tn_test_blas;
    failed |= run("cuda, products by a library", products, oracle);
    printf("%llu results were the library's\n", (unsigned long long)tn_test_blas_elements);
    tn_cuda_blas = NULL, programs_only = 1, most_work = MOST_WORK / 3;
    tn_test_twin_collect(prepare);
    tn_cuda_compiler = &tn_test_twin;
    if (!tn_test_twin_build())
        return 1;
    failed |= run("cuda, compiled programs", programs, oracle);
    printf("%u programs, launched %u times\n", tn_test_twin_programs, tn_test_twin_launches);
    return failed || !tn_test_blas_elements || !tn_test_twin_launches;
}
