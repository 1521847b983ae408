/* test_tsan.c - the emulated kernels under the thread sanitizer: one small problem for each kernel, for a switch of fibers
 * takes it tens of microseconds. The sanitizer ends the process at the first race. Built and run by tsan.sh. */
#include <stdlib.h>
#include "conform.h"
#include "cuda.h"

#define C(o, s, i, ...) {.op = o, .size = s, .in = i, .out = __VA_ARGS__}
const struct tn_bench_case tn_conform_cases[] = {
    C("einsum", "b2 t5 c17 o9", "btc oc", "bto"),
    C("einsum", "b1 t40 c17 o35", "btc oc o", "bto", NULL, "a + b"),
    C("sum", "b70 c24", "bc", "c"),
    C("sum", "b70 c7", "bc", "c"),
    C("sum", "b9 c40", "bc", "b"),
    C("sum", "b2 c1100", "bc", "b"),
    C("sumsq", "b9 c1001", "bc", "-"),
    C("rowmax", "b3 v17", "bv", "b"),
    C("expr", "b9 c33", "bc bc", "bc=a bc", NULL, "r0 = a + b; r1 = a - b"),
    C("copy", "b17 c40", "bc", "bc/cb"),
    C("cast", "b9 c32", "bc", "bc:h", "to=bf16"),
    C("dropout", "b3 c40", "bc", "bc", "p=0.25 key=5 micro_dim=0"),
    C("embed", "v7 b11 c8", "vc b:i7", "bc"),
    C("embed_bwd", "v7 b11 c40", "bc b:i7 vc?", "vc"),
    C("pick", "b9 v17", "bv b:i17", "b"),
    C("pick_bwd", "b9 v17", "b b:i17 bv?", "bv"),
    C("layernorm", "b9 c40", "bc c c", "bc b b", "eps=1e-5"),
    C("ln_dx", "b9 c40", "bc bc c b b>", "bc"),
    C("ln_dw", "b90 c40", "bc bc b b>", "c"),
    C("rmsnorm", "b9 c40", "bc c", "bc b", "eps=1e-5"),
    C("rms_dx", "b9 c40", "bc bc c b>", "bc"),
    C("rms_dw", "b90 c40", "bc bc b>", "c"),
    C("rope", "t5 h3 d16 r9", "thd t:p0 rd", "thd", "sign=1"),
    C("rope", "t5 h3 d6 r9", "thd t:i9 rd", "thd", "sign=-1"),
    C("attention", "b1 t40 s40 h1 d8", "bthd bshd bshd t:p0? s:p0?", "bthd bth", "scale=0.4 causal=1"),
    C("attn_bwd", "b1 t40 s40 h1 d8", "bthd bshd bshd t:p0? s:p0? bth bth bthd", "bthd bshd bshd", "scale=0.4 causal=1"),
    C("ce", "b3 v300", "bv b:i300", "b"),
    C("ce_bwd", "b3 v300", "b bv b:i300", "bv=b"),
    C("head", "b9 v17 c5", "bc vc b:i17", "b b"),
    C("head_bwd", "b9 v17 c5", "bc vc b:i17 b b b", "bc vc"),
    C("head_train", "b9 v17 c5", "bc:h vc:h b:i17 b b", "b b bc:h vc"),
    {.op = NULL},
};

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "halt_on_error=1:report_thread_leaks=0";
}

int main(void)
{
    const struct tn_kernels emulated = {
        .struct_size = sizeof emulated, .device = "cpu", .ops = tn_cuda_ops, .prepare = tn_cuda_prepare};
    const struct tn_plugin *p = tn_bench_plugin("ref");
    struct tn_conform_report r;

    if (!p) {
        printf("skipped: plugin ref was not built\n");
        return 77;
    }
    tn_host = tn_bench_host();
    tn_conform(&emulated, tn_bench_interface(p, TN_KERNELS_ID), 1, &r);
    printf("cuda, emulated, thread sanitizer: %u checked, %u declined, %u failed\n", r.checked, r.declined, r.failed);
    return r.failed || r.declined;
}
