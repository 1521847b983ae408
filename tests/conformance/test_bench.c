/* test_bench.c - is the checker right? A kernel with a known fault must be found, and found for that fault.
 *
 * The kernel is a copy by loops; without a fault it passes all cases of copy. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "conform.h"

enum fault {
    NONE,
    SILENT,
    OVERRUN,
    UNDERRUN,
    GAP,
    INPUT,
    VARIES,
    ADDS,
    BORROWS,
    THREADS,
    INACCURATE,
    HIDES_NAN,
    FAILS,
    WORK
};
static enum fault fault;                         /* of the next kernel prepared */

struct copy {
    struct tn_loop loop[16];
    uint32_t n, dtype;
    enum fault fault;
    const struct tn_problem *problem;            /* borrowed too long */
};

static void element(const struct copy *k, const char *x, char *y)
{
    static int count;
    float f;

    if (k->dtype == TN_BF16 || k->dtype == TN_F16) {
        memcpy(y, x, 2);
        return;
    }
    memcpy(&f, x, 4);
    if (k->dtype == TN_F32) {
        if (k->fault == VARIES)
            f *= 1 + 1e-7f * (float)(count++ % 4);
        if (k->fault == THREADS)
            f *= 1 + 2e-7f * (float)(tn_bench_host()->threads() - 1);
        if (k->fault == INACCURATE)
            f *= 1.0001f;
        if (k->fault == HIDES_NAN && isnan(f))
            f = 0;
        if (k->fault == ADDS)
            f += *(float *)y;
    }
    if (k->fault != SILENT)
        memcpy(y, &f, 4);
}

static void walk(const struct copy *k, uint32_t depth, const char *x, char *y)
{
    const int64_t width = k->dtype == TN_BF16 || k->dtype == TN_F16 ? 2 : 4;
    const struct tn_loop *l =
        k->fault == BORROWS && depth < k->n ? &k->problem->loop[depth] : &k->loop[depth];

    if (depth == k->n) {
        element(k, x, y);
        return;
    }
    for (int64_t i = 0; i < l->size; i++)
        walk(k, depth + 1, x + i * l->stride[0] * width, y + i * l->stride[1] * width);
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct copy *k = state;
    int64_t last = 0;

    if (k->fault == FAILS)
        return TN_ERR;
    for (uint32_t i = 0; i < k->n; i++)
        last += (k->loop[i].size - 1) * k->loop[i].stride[1];
    walk(k, 0, l->buffer[0], l->buffer[1]);
    if (k->fault == OVERRUN)                        /* at most 64 bytes of alignment lie between */
        memset((float *)l->buffer[1] + last, 0, 4096);
    if (k->fault == UNDERRUN)
        ((char *)l->buffer[1])[-9] = 0;
    if (k->fault == GAP)
        ((char *)l->buffer[1])[(last + 1) * 4] = 0;
    if (k->fault == INPUT)
        *(float *)l->buffer[0] += 1;
    if (k->fault == WORK)
        ((char *)l->workspace)[-1] = 0;
    return TN_OK;
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    struct copy *k = calloc(1, sizeof *k);

    memcpy(k->loop, p->loop, p->n_loop * sizeof *p->loop);
    k->n = p->n_loop, k->dtype = p->in[0].dtype, k->problem = p, k->fault = fault;
    out->state = k, out->launch = launch, out->release = free, out->workspace = 100;
    return TN_OK;
}

static tn_status prepare_right(const struct tn_problem *p, struct tn_kernel *out)
{
    const enum fault saved = fault;

    fault = NONE;
    prepare(p, out);
    fault = saved;
    return TN_OK;
}

static const char *const ops[] = {"copy", NULL};
static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels, .device = "cpu", .ops = ops, .prepare = prepare};

/* One case, by itself. */
static const char *found(const char *in, const char *out)
{
    static char text[700];
    struct tn_bench *b = tn_bench_new(
        &(const struct tn_bench_case){.op = "copy", .size = "b3 c17", .in = in, .out = out}, 7);

    snprintf(text, sizeof text, "%s", tn_bench_run(b, &kernels) == TN_OK ? "" : tn_bench_error(b));
    tn_bench_free(b);
    return text;
}

START_TEST(faults_of_one_run)
{
    static const struct {
        enum fault fault;
        const char *in, *out, *says;
    } f[] = {
        {NONE, "bc/cb+", "bc+", ""},
        {UNDERRUN, "bc", "bc", "wrote in front of output 0"},
        {GAP, "bc", "bc+", "wrote between or behind the elements of output 0"},
        {GAP, "bc", "bc", "wrote between or behind the elements of output 0"},
        {INPUT, "bc", "bc", "changed input 0"},
        {INPUT, "bc+", "bc", "changed input 0"},
        {VARIES, "bc", "bc", "a second launch gives other bits in output 0"},
        {FAILS, "bc", "bc", "launch: status -1: "},
        {WORK, "bc", "bc", "wrote in front of its workspace"},
    };

#ifdef __SANITIZE_ADDRESS__
    if (_i == 3)                                 /* it ends the process at the write */
        return;
#endif
    fault = f[_i].fault;
    ck_assert_str_eq(found(f[_i].in, f[_i].out), f[_i].says);
}
END_TEST

#ifdef __SANITIZE_ADDRESS__
/* What the address sanitizer finds ends like a crash. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "exitcode=3";
}
#endif

static void crashed(int signal_number)
{
    (void)signal_number;
    _exit(3);
}

/* The page behind the buffer, and what prepare was lent, end the process. */
START_TEST(faults_that_crash)
{
    signal(SIGSEGV, crashed), signal(SIGBUS, crashed);
    fault = _i ? OVERRUN : BORROWS;
    found("bc", "bc");
}
END_TEST

/* Only the comparison sees these. A copy is exact, so one bit is enough. */
START_TEST(faults_of_numbers)
{
    static const enum fault f[] = {NONE, SILENT, ADDS, INACCURATE, HIDES_NAN, THREADS};
    struct tn_kernels right = kernels;
    struct tn_conform_report r;

    fault = f[_i];
    right.prepare = prepare_right;
    ck_assert_int_eq(tn_conform(&kernels, &right, 0, &r) > 0, fault != NONE);
    ck_assert_uint_gt(r.absent, 200);
    ck_assert_uint_eq(r.declined, 0);
    if (fault == NONE)
        ck_assert_uint_ge(r.checked, 8);
    if (fault == HIDES_NAN)
        ck_assert_uint_eq(r.failed, 2);         /* the cases with NaN among their numbers */
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bench");
    TCase *t = tcase_create("faults");
    SRunner *r;
    int failed;

    tcase_add_loop_test(t, faults_of_one_run, 0, 9);
    tcase_add_loop_exit_test(t, faults_that_crash, 3, 0, 2);
    tcase_add_loop_test(t, faults_of_numbers, 0, 6);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
