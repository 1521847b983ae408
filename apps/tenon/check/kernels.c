/* kernels.c - a set of kernels against ref, one problem a test, and inside a recording; and what a set of kernels has to
 * refuse. */
#include "base/status.h"
#include "suite.h"
#include "conform.h"

static const char *const dtype_name[] = {
    [TN_F32] = "fp32", [TN_BF16] = "bf16", [TN_F16] = "fp16", [TN_I32] = "int32", [TN_F64] = "fp64", [TN_I64] = "int64",
    [TN_U8] = "uint8",
};

static int claimed(const struct check_subject *s, const char *op)
{
    for (uint32_t i = 0; i < s->claims.claims; i++)
        if (!strcmp(s->claims.op[i], op))
            return 1;
    return 0;
}

/* NULL: host memory. Skips what the device has no numbers for. */
static const struct tn_bench_device *memory(struct check_run *r, const struct tn_bench_case *c, struct tn_bench_device *d)
{
    const int remote = check_device(r, r->subject->claims.kernels_kind, d);
    struct tn_bench *b = tn_bench_new(c, 1);
    const uint32_t lacks = tn_bench_dtypes(b) & ~d->dtypes;

    tn_bench_free(b);
    for (uint32_t dtype = TN_F32; dtype <= TN_U8; dtype++)
        if (lacks >> dtype & 1)
            check_skip(r, "the device has no %s", dtype_name[dtype]);
    return remote ? d : NULL;
}

static void problem(struct check_run *r)
{
    const struct tn_bench_case *c = r->test->with;
    const struct tn_kernels *mine = check_table(r, TN_KERNELS_ID), *ref = check_ref(r, TN_KERNELS_ID);
    struct tn_conform_result out;
    struct tn_bench_device d;
    const struct tn_bench_device *remote = memory(r, c, &d);
    const int failed = tn_conform_case(c, mine, ref, remote, &out);

    r->result->variants = out.ran, r->result->worst = out.worst;
    if (failed)
        check_fail(r, "%s", out.what);
    if (!out.ran)
        check_decline(r);
}

/* In the queue's recording; host memory too goes by the device's copies. */
static void recorded(struct check_run *r)
{
    const struct tn_kernels *mine = check_table(r, TN_KERNELS_ID);
    struct tn_bench_device d;
    struct tn_bench *b;
    tn_status s;

    memory(r, r->test->with, &d);
    if (!d.capture)
        check_skip(r, "the device %s records nothing", r->subject->claims.kernels_kind);
    b = tn_bench_new(r->test->with, 2);
    tn_bench_on(b, &d);
    s = tn_bench_run_recorded(b, mine);
    if (s < 0)
        check_fail(r, "%s", tn_bench_error(b));
    tn_bench_free(b);
    if (s == TN_DECLINED)
        check_decline(r);
    r->result->variants = 1;
}

/* Reads, changes nothing, says why. */
static void probe(struct check_run *r)
{
    const struct tn_kernels *k = check_table(r, TN_KERNELS_ID);
    uint32_t score[2] = {0};
    char why[2][256];

    for (int i = 0; i < 2; i++) {
        memset(why[i], '?', sizeof why[i]);
        check_must(r, k->probe(&score[i], why[i], 128) >= 0);
        check_must(r, memchr(why[i], 0, 128));
        check_must(r, why[i][128] == '?');
    }
    check_must(r, score[0] == score[1]);
    check_must(r, score[0] || *why[0]);
}

/* Dtypes that it cannot know are declined: no error. */
static void declines(struct check_run *r)
{
    const struct tn_kernels *k = check_table(r, TN_KERNELS_ID);
    struct tn_bench *b;

    for (const struct tn_bench_case *c = tn_conform_cases; c->op; c++) {
        const int first = c == tn_conform_cases || strcmp(c->op, c[-1].op);

        if (!first || !tn_conform_claims(k, c->op))
            continue;
        b = tn_bench_new(c, 1);
        tn_bench_set_dtype(b, 0, 77);
        if (!tn_bench_declines(b, k))
            check_fail(r, "%s with an input of dtype 77, which there is not: it was not declined", c->op);
        tn_bench_free(b);
    }
}

static void each_op_once(struct check_run *r)
{
    const struct tn_kernels *k = check_table(r, TN_KERNELS_ID);

    for (const char *const *a = k->ops; *a; a++)
        for (const char *const *b = a + 1; *b; b++)
            if (!strcmp(*a, *b))
                check_fail(r, "its list of operations has %s twice", *a);
    check_must(r, k->ops[0]);
}

void check_list_kernels(struct check_list *l, const struct check_subject *s)
{
    struct check_test *t;
    char text[600];
    uint32_t n;

    if (!*s->claims.kernels_kind)
        return;
    check_add(l, probe, "asking twice gives the same score and a reason", "kernels/probe");
    check_add(l, each_op_once, "the list of operations", "kernels/claims");
    check_add(l, declines, "dtypes that it cannot know are declined", "kernels/declines");
    for (const struct tn_bench_case *c = tn_conform_cases; c->op; c++) {
        n = 1;
        for (const struct tn_bench_case *b = tn_conform_cases; b < c; b++)
            n += !strcmp(b->op, c->op);
        if (!claimed(s, c->op))
            continue;
        t = check_add(l, problem, tn_conform_text(c, text, sizeof text), "kernels/%s/%u", c->op, n);
        t->with = c, t->shared = 1;
        if (s->claims.records) {
            t = check_add(l, recorded, text, "recorded/%s/%u", c->op, n);
            t->with = c, t->shared = 1;
        }
    }
}
