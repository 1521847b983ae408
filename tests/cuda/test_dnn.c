/* test_dnn.c - attention by cuDNN, with a library that computes graphs as they are written, compared with
 * ref.
 *
 * The graphs, the addresses, the workspace and the kernels around them are the plugin's; only the library is
 * not (fake/cudnn.c). Each case says how often a graph must be run for a launch, 0: the own kernel has to do
 * it. This proves what the graphs mean. Whether the real library has engines for them asks test_plans, what
 * those compute asks a GPU. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include "bench.h"
#include "dnn.h"

#define BACK "bthd bth bth"
struct entry {
    uint32_t executions;                         /* of one launch */
    struct tn_bench_case c;
};
#define C(n, ...)                                                                                            \
    {                                                                                                        \
        n,                                                                                                   \
        {                                                                                                    \
            __VA_ARGS__, .tolerance = 0                                                                      \
        }                                                                                                    \
    }

static const struct entry cases[] = {
    C(1, "attention", "b2 t7 s7 h3 d16", "bthd:h bshd:h bshd:h t:p0? s:p0?", "bthd:h bth",
      "scale=0.4 causal=1"),
    C(1, "attention", "b1 t33 s33 h2 d64", "bthd:f bshd:f bshd:f t:p0? s:p0?", "bthd:f bth",
      "scale=0.125 causal=1"),
    C(1, "attention", "b1 t1 s1 h1 d8", "bthd:h bshd:h bshd:h t:p0? s:p0?", "bthd:h bth",
      "scale=0.4 causal=1"),
    C(1, "attention", "b2 t5 s5 h2 d40", "bthd:h/tbhd bshd:h/bhsd bshd:h/hbsd t:p0? s:p0?",
      "bthd:h/htbd bth/bht", "scale=-0.3 causal=1"),
    C(1, "attention", "b2 t9 s9 h2 r3 d16", "bthrd:h bshd:h bshd:h t:p0? s:p0?", "bthrd:h bthr/rthb",
      "scale=0.4 causal=1"),
    C(1, "attention", "b1 t5 s5 h2 d256", "bthd:f bshd:f bshd:f t:p0? s:p0?", "bthd:f bth",
      "scale=0.06 causal=1"),
    C(1, "attention", "b1 t50 s50 h1 d16", "bthd:h bshd:h! bshd:h t:p0? s:p0?", "bthd:h bth",
      "scale=0.25 causal=1"),
    C(1, "attn_bwd", "b2 t7 s7 h3 d16", "bthd:h bshd:h bshd:h t:p0? s:p0? bth bth bthd:h",
      "bthd:h bshd:h bshd:h", "scale=0.4 causal=1"),
    C(1, "attn_bwd", "b1 t33 s33 h2 d64", "bthd:f bshd:f bshd:f t:p0? s:p0? bth bth bthd:f",
      "bthd:f bshd:f bshd:f", "scale=0.125 causal=1"),
    C(1, "attn_bwd", "b1 t1 s1 h1 d8", "bthd:h bshd:h bshd:h t:p0? s:p0? bth bth bthd:h",
      "bthd:h bshd:h bshd:h", "scale=0.4 causal=1"),
    C(1, "attn_bwd", "b2 t5 s5 h2 d40",
      "bthd:h/tbhd bshd:h/bhsd bshd:h/hbsd t:p0? s:p0? bth/tbh bth/htb bthd:h/bhtd",
      "bthd:h/hbtd bshd:h/shbd bshd:h/bhsd", "scale=-0.3 causal=1"),
    C(1, "attn_bwd", "b2 t9 s9 h2 r3 d16", "bthrd:h bshd:h bshd:h t:p0? s:p0? bthr/rthb bthr bthrd:h/tbhrd",
      "bthrd:h bshd:h bshd:h", "scale=0.4 causal=1"),
    C(1, "attn_bwd", "b1 t5 s5 h2 d256", "bthd:f bshd:f bshd:f t:p0? s:p0? bth bth bthd:f",
      "bthd:f bshd:f bshd:f", "scale=0.06 causal=1"),
    /* not for the library: positions, dropout, fp32, widths, views at odd distances, a mixture, added to */
    C(0, "attention", "b2 t7 s7 h3 d16", "bthd:h bshd:h bshd:h t:p0 s:p0", "bthd:h bth",
      "scale=0.4 causal=0"),
    C(0, "attention", "b2 t7 s7 h3 d16", "bthd:h bshd:h bshd:h t:p0? s:p0?", "bthd:h bth",
      "scale=0.4 causal=1 dropout=0.3 key=7 block=7 micro_dim=0"),
    C(0, "attention", "b2 t7 s7 h3 d16", "bthd bshd bshd t:p0? s:p0?", "bthd bth", "scale=0.4 causal=1"),
    C(0, "attention", "b2 t7 s7 h3 d12", "bthd:h bshd:h bshd:h t:p0? s:p0?", "bthd:h bth",
      "scale=0.4 causal=1"),
    C(0, "attention", "b2 t7 s7 h3 d16", "bthd:h bshd:h+ bshd:h t:p0? s:p0?", "bthd:h bth",
      "scale=0.4 causal=1"),
    C(0, "attention", "b2 t7 s7 h3 d16", "bthd:h/dbth bshd:h bshd:h t:p0? s:p0?", "bthd:h bth",
      "scale=0.4 causal=1"),
    C(0, "attention", "b2 t7 s7 h3 d16", "bthd:h bshd:h bshd:f t:p0? s:p0?", "bthd:h bth",
      "scale=0.4 causal=1"),
    C(0, "attention", "b2 t9 s9 h2 r3 d16", "bthrd:h/brthd bshd:h bshd:h t:p0? s:p0?", "bthrd:h bthr",
      "scale=0.4 causal=1"),
    C(0, "attention", "b2 t7 s9 h3 d16", "bthd:h bshd:h bshd:h t:p2 s:p0", "bthd:h bth",
      "scale=0.4 causal=0"),
    {0,
     {"attn_bwd", "b2 t7 s7 h3 d16", "bthd:h bshd:h bshd:h t:p0? s:p0? bth bth bthd:h",
      "bthd:h bshd:h bshd:h", "scale=0.4 causal=1", NULL, 2, 0}},
};
/* With dS in the workspace in parts: tiles of 16 KiB for each head. */
static const struct {
    uint64_t most;
    struct entry entry;
} parts[] = {
    {60000, C(2, "attn_bwd", "b2 t8 s8 h3 d16", "bthd:h bshd:h bshd:h t:p0? s:p0? bth bth bthd:h",
              "bthd:h bshd:h bshd:h", "scale=0.4 causal=1")},
    {40000, C(6, "attn_bwd", "b2 t8 s8 h3 d16", "bthd:h bshd:h bshd:h t:p0? s:p0? bth bth bthd:h",
              "bthd:h bshd:h bshd:h", "scale=0.4 causal=1")},
    {80000, C(4, "attn_bwd", "b2 t8 s8 h4 r2 d16", "bthrd:f bshd:f bshd:f t:p0? s:p0? bthr bthr bthrd:f",
              "bthrd:f bshd:f bshd:f", "scale=0.4 causal=1")},
    {40000, C(0, "attn_bwd", "b2 t7 s7 h3 d16", "bthd:h bshd:h bshd:h t:p0? s:p0? bth bth bthd:h",
              "bthd:h bshd:h bshd:h", "scale=0.4 causal=1")},
    {250, C(0, "attn_bwd", "b1 t8 s8 h1 d16", "bthd:h bshd:h bshd:h t:p0? s:p0? bth bth bthd:h",
            "bthd:h bshd:h bshd:h", "scale=0.4 causal=1")},
};

static uint64_t *executed, *any_order, *live;
static const struct tn_kernels *oracle;
static int major = 9, odd;

/* --- what the plugin's device would say */
void *tn_cuda_stream(struct tn_queue *q)
{
    (void)q;
    return NULL;
}

int tn_cuda_major(void)
{
    return major;
}

/* --- the plugin's kernels, launched as they are or, if odd is set, with the first input at an odd address */
struct held {
    struct tn_kernel inner;
    size_t bytes;                                /* of the first input */
};

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct held *h = state;
    struct tn_launch copy = *l;
    void *buffer[TN_MAX_OPERANDS];
    char *room = malloc(h->bytes + 16);
    tn_status s;

    memcpy(buffer, l->buffer, 11 * sizeof *buffer);
    buffer[0] = memcpy(room + 2, l->buffer[0], h->bytes);
    copy.buffer = odd ? buffer : l->buffer;
    s = h->inner.launch(h->inner.state, &copy);
    free(room);
    return s;
}

static void release(void *state)
{
    struct held *h = state;

    h->inner.release(h->inner.state);
    free(h);
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    struct held *h = calloc(1, sizeof *h);
    tn_status s;

    h->inner.struct_size = sizeof h->inner, h->bytes = 2 * (size_t)tn_count(&p->in[0]);
    if (p->in[0].dtype == TN_F32 || !tn_contiguous(&p->in[0]))
        h->bytes = 0;
    if ((s = tn_cuda_prepare(p, &h->inner))) {
        free(h);
        return s;
    }
    *out = (struct tn_kernel){sizeof *out, 0, h, launch, release, h->inner.workspace};
    return TN_OK;
}

static const struct tn_kernels mine = {
    .struct_size = sizeof mine, .device = "cpu", .ops = tn_cuda_ops, .prepare = prepare};

/* --- a case */
/* Of output o: by its dtype, as the case writes it. */
static double rounding(const struct tn_bench_case *c, uint32_t o)
{
    const char *word = c->out;

    while (o--)
        word = strchr(word, ' ') + 1;
    word += strcspn(word, " :");
    return *word != ':' ? 2e-5 : word[1] == 'f' ? 0x1p-9 : 0x1p-6;
}

/* The worst difference by the tolerance, which is of the output's largest number; infinite if a NaN is
 * elsewhere. */
static double compare(const struct tn_bench_case *c, const struct tn_bench *a, const struct tn_bench *b)
{
    uint32_t n_in, n = tn_bench_operands(a, &n_in);
    double worst = 0;

    for (uint32_t o = 0; o < n - n_in; o++) {
        const double tolerance = rounding(c, o);
        double most = 1e-30, far = 0;

        for (int64_t e = 0; e < tn_bench_count(a, n_in + o); e++) {
            const double x = tn_bench_result(a, o, e), y = tn_bench_result(b, o, e);

            if (isnan(x) != isnan(y))
                return INFINITY;
            if (isnan(x))
                continue;
            most = fabs(y) > most ? fabs(y) : most;
            far = fabs(x - y) > far ? fabs(x - y) : far;
        }
        worst = far / most / tolerance > worst ? far / most / tolerance : worst;
    }
    return worst;
}

static int run(const char *title, const struct entry *e, uint32_t executions)
{
    struct tn_bench *a = tn_bench_new(&e->c, 5), *b = tn_bench_new(&e->c, 5);
    const uint64_t before = *executed;
    const tn_status s = tn_bench_run(a, &mine), r = tn_bench_run(b, oracle);
    const double worst = s || r ? INFINITY : compare(&e->c, a, b);
    const uint64_t ran = *executed - before;     /* the bench launches twice */
    const int failed = !(worst <= 1) || ran != 2 * executions;

    if (failed)
        fprintf(
            stderr,
            "FAIL %s: %s (%s) %s: %.3g of the tolerance, %llu executions in two launches, should be %u: %s\n",
            title, e->c.op, e->c.size, e->c.in, worst, (unsigned long long)ran, 2 * executions,
            s ? tn_bench_error(a) : "");
    else if (getenv("V"))
        printf("%s: %s (%s): %.3g\n", title, e->c.op, e->c.size, worst);
    tn_bench_free(a), tn_bench_free(b);
    return failed;
}

static int run_all(const char *title, uint32_t (*executions)(const struct entry *e))
{
    int failed = 0;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        failed += run(title, &cases[i], executions(&cases[i]));
    return failed;
}

static uint32_t as_written(const struct entry *e)
{
    return e->executions;
}

static uint32_t forward_only(const struct entry *e)
{
    return strcmp(e->c.op, "attention") ? 0 : e->executions;
}

static uint32_t none(const struct entry *e)
{
    (void)e;
    return 0;
}

static int run_parts(void)
{
    const uint64_t usual = tn_dnn_most;
    int failed = 0;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        tn_dnn_most = parts[i].most;
        failed += run("in parts", &parts[i].entry, parts[i].entry.executions);
    }
    tn_dnn_most = usual;
    return failed;
}

static int check(int right, const char *what)
{
    if (!right)
        fprintf(stderr, "FAIL %s\n", what);
    return !right;
}

/* grad 0 and delta not: there is no such o. */
static int run_impossible(void)
{
    struct tn_bench *b = tn_bench_new(&cases[7].c, 5);
    int failed;

    for (int64_t e = 0; e < 16; e++)
        tn_bench_set(b, 7, e, 0);
    tn_bench_run(b, &mine);
    failed = check(isnan(tn_bench_result(b, 0, 0)), "a gradient that cannot be said is not NaN");
    for (int64_t e = 0; e < 2 * 7 * 3; e++)
        tn_bench_set(b, 6, e, 0);
    tn_bench_run(b, &mine);
    failed += check(!isnan(tn_bench_result(b, 0, 0)), "a gradient of 0 is NaN");
    tn_bench_free(b);
    return failed;
}

static int skip(const char *why)
{
    printf("skipped: %s\n", why);
    return 77;
}

int main(void)
{
    const struct tn_plugin *ref = tn_bench_plugin("ref");
    void *so = dlopen(FAKE_CUDNN, RTLD_NOW | RTLD_LOCAL);
    uint64_t held;
    int failed;

    if (!ref)
        return skip("plugin ref was not built");
    if (!so)
        return fprintf(stderr, "FAIL %s\n", dlerror()), 1;
#ifdef __SANITIZE_THREAD__
    return skip("the thread sanitizer does not know these fibers");
#endif
    executed = dlsym(so, "tn_fake_cudnn_executed"), any_order = dlsym(so, "tn_fake_cudnn_any_order");
    live = dlsym(so, "tn_fake_cudnn_live");
    tn_host = tn_bench_host();
    oracle = tn_bench_interface(ref, TN_KERNELS_ID);
    tn_cuda_dnn = &tn_cuda_dnn_attention;
    unsetenv("TENON_CUDA_DNN");
    failed = run_all("cuDNN", as_written) + run_parts() + run_impossible();
    held = *live;
    failed += run_all("cuDNN again", as_written);
    failed += check(*live == held, "kernels leave descriptors behind, or plans are made again");
    odd = 1, failed += run("odd addresses", &cases[0], 0) + run("odd addresses", &cases[7], 0), odd = 0;
    major = 10, failed += run_all("a newer GPU", forward_only), major = 9;
    setenv("TENON_FAKE_CUDNN_VERSION", "91002", 1);
    failed += run_all("an older library", none);
    unsetenv("TENON_FAKE_CUDNN_VERSION");
    failed += check(!*any_order, "an engine without an order of sums was taken");
    setenv("TENON_CUDA_DNN", "fast", 1);
    failed += run_all("in any order", as_written);
    failed += check(*any_order, "no engine without an order of sums was taken");
    printf("%llu graphs were run, %d failures\n", (unsigned long long)*executed, failed);
    return failed > 0;
}
