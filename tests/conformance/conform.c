/* conform.c - runs every case on two sets of kernels and compares.
 *
 * An element may differ from the oracle's by the tolerance times the largest magnitude of that output (in bf16 and
 * fp16 by the distance of two neighbours, for what lies near the middle may be rounded up or down), unless
 * the operation only moves numbers: then by nothing. NaN and infinity must be where the oracle has them. The
 * kernels under test must give the same bits with any number of threads. */
#include <math.h>
#include <stdlib.h>
#include "conform.h"

#define USUAL 2e-5
#define TINY 1e-30
#define MICRO 2                                  /* not the first, so that it is seen */

/* Operand number o of these words, as the case writes it. */
static double rounding(const char *word, uint32_t o)
{
    size_t length;

    for (; o && word; o--)
        word = strchr(word, ' ') ? strchr(word, ' ') + 1 : NULL;
    length = word ? strcspn(word, " ") : 0;
    for (size_t i = 0; i + 1 < length; i++)
        if (word[i] == ':')
            return word[i + 1] == 'h' ? 0x1p-7 : word[i + 1] == 'f' ? 0x1p-10 : 0;
    return 0;
}

static double tolerance(const struct tn_bench_case *c, uint32_t o)
{
    static const char *const exact[] = {"copy",  "cast", "expand",   "rowmax",
                                        "accum", "pick", "pick_bwd", "embed"};

    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (!strcmp(c->op, exact[i]))
            return 0;
    if (c->tolerance > 0)
        return c->tolerance;
    if (!strcmp(c->op, "head_bwd") || !strcmp(c->op, "head_train")) /* gradients of the logits: rounded as x is */
        return USUAL + rounding(c->out, o) + rounding(c->in, 0);
    return USUAL + rounding(c->out, o);
}

static int claims(const struct tn_kernels *k, const char *op)
{
    for (const char *const *o = k->ops; *o; o++)
        if (!strcmp(*o, op))
            return 1;
    return 0;
}

static void complain(const struct tn_bench_case *c, const char *variant, const char *what)
{
    fprintf(stderr, "FAIL %s (%s) %s -> %s [%s] %s%s%s: %s\n", c->op, c->size, c->in, c->out,
            c->attr ? c->attr : "", c->f ? c->f : "", c->accumulate ? " accumulate" : "", variant, what);
}

/* The first element of an output that is not as the oracle has it; -1: none. */
static int64_t differs(const struct tn_bench *mine, const struct tn_bench *ref, uint32_t output, int64_t n,
                       double tol)
{
    double scale = 0;

    for (int64_t e = 0; e < n; e++) {
        const double r = fabs(tn_bench_result(ref, output, e));

        scale = isfinite(r) && r > scale ? r : scale;
    }
    for (int64_t e = 0; e < n; e++) {
        const double r = tn_bench_result(ref, output, e), m = tn_bench_result(mine, output, e);

        if (isnan(r) || isnan(m) ? !(isnan(r) && isnan(m))
                                 : m != r && !(fabs(m - r) <= tol * scale + (tol > 0 ? TINY : 0)))
            return e;
    }
    return -1;
}

static int compare(const struct tn_bench_case *c, const char *variant, const struct tn_bench *mine,
                   const struct tn_bench *ref, int exact)
{
    uint32_t n_in, n = tn_bench_operands(ref, &n_in);
    char text[200];

    for (uint32_t o = 0; o < n - n_in; o++) {
        const int64_t e = differs(mine, ref, o, tn_bench_count(ref, n_in + o), exact ? 0 : tolerance(c, o));

        if (e < 0)
            continue;
        snprintf(text, sizeof text, "output %u, element %lld: %.9g, should be %.9g", o, (long long)e,
                 tn_bench_result(mine, o, e), tn_bench_result(ref, o, e));
        complain(c, variant, text);
        return 1;
    }
    return 0;
}

/* Returns failures; *declined counts runs that were. */
static int run_variant(const struct tn_bench_case *c, uint64_t seed, int merged,
                       const struct tn_kernels *mine, const struct tn_kernels *ref, uint32_t *declined)
{
    static const uint32_t threads[] = {1, 3};
    struct tn_bench *oracle = tn_bench_new(c, seed), *b[2] = {tn_bench_new(c, seed), tn_bench_new(c, seed)};
    int failed = 0, ran = 0;

    if (merged && !tn_bench_merge(oracle))
        goto out;
    if (tn_bench_declines(oracle, mine)) {       /* the oracle is slow, so this is asked first */
        *declined += 1;
        goto out;
    }
    tn_bench_set_micro(oracle, MICRO);
    tn_bench_threads(1);
    if (tn_bench_run(oracle, ref) != TN_OK)
        complain(c, " by the oracle", tn_bench_error(oracle)), failed++;
    for (int i = 0; i < 2 && !failed; i++) {
        const char *variant = merged ? i ? " merged, 3 threads" : " merged" : i ? " 3 threads" : "";
        tn_status s;

        if (merged)
            tn_bench_merge(b[i]);
        tn_bench_set_micro(b[i], MICRO);
        tn_bench_threads(threads[i]);
        if ((s = tn_bench_run(b[i], mine)) == TN_DECLINED) {
            *declined += 1;
            continue;
        }
        ran++;
        if (s != TN_OK)
            complain(c, variant, tn_bench_error(b[i])), failed++;
        else
            failed += compare(c, variant, b[i], oracle, 0);
    }
    if (ran == 2 && !failed)
        failed += compare(c, " other bits with 3 threads than with 1", b[1], b[0], 1);
out:
    tn_bench_free(oracle), tn_bench_free(b[0]), tn_bench_free(b[1]);
    return failed;
}

int tn_conform(const struct tn_kernels *mine, const struct tn_kernels *ref, int say,
               struct tn_conform_report *out)
{
    *out = (struct tn_conform_report){0};
    for (const struct tn_bench_case *c = tn_conform_cases; c->op; c++) {
        const uint64_t seed = 1000 + (uint64_t)(c - tn_conform_cases);
        uint32_t declined = 0;
        int failed = 0;

        if (!claims(mine, c->op)) {
            out->absent++;
            continue;
        }
        for (int merged = 0; merged < 2; merged++)
            failed += run_variant(c, seed, merged, mine, ref, &declined);
        out->checked += !declined, out->declined += !!declined, out->failed += !!failed;
        if (declined && say)
            fprintf(stderr, "declined %s (%s) %s -> %s %s%s\n", c->op, c->size, c->in, c->out,
                    c->f ? c->f : "", c->accumulate ? " accumulate" : "");
    }
    return (int)out->failed;
}
