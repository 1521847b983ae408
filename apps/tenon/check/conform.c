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
#define DENORMAL 1.2e-38                         /* numbers below may be taken as 0 */
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
                                        "accum", "pick", "pick_bwd", "embed",
                                        "store"};

    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (!strcmp(c->op, exact[i]))
            return 0;
    if (c->tolerance > 0)
        return c->tolerance;
    if (!strcmp(c->op, "head_bwd") || !strcmp(c->op, "head_train")) /* gradients of the logits: rounded as x is */
        return USUAL + rounding(c->out, o) + rounding(c->in, 0);
    return USUAL + rounding(c->out, o);
}

/* Of the case alone, so that it has the same numbers wherever it stands in the list. */
static uint64_t seed_of(const struct tn_bench_case *c)
{
    uint64_t h = 1469598103934665603u;
    char text[600];

    for (const char *s = tn_conform_text(c, text, sizeof text); *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

int tn_conform_claims(const struct tn_kernels *k, const char *op)
{
    for (const char *const *o = k->ops; *o; o++)
        if (!strcmp(*o, op))
            return 1;
    return 0;
}

const char *tn_conform_text(const struct tn_bench_case *c, char *out, size_t room)
{
    int n = snprintf(out, room, "%s (%s) %s -> %s", c->op, c->size, c->in, c->out);

    if (c->attr && (size_t)n < room)
        n += snprintf(out + n, room - (size_t)n, " [%s]", c->attr);
    if (c->f && (size_t)n < room)
        n += snprintf(out + n, room - (size_t)n, ", %s", c->f);
    if (c->accumulate && (size_t)n < room)
        snprintf(out + n, room - (size_t)n, ", accumulate %u", c->accumulate);
    return out;
}

static int complain(struct tn_conform_result *out, const char *variant, const char *what)
{
    if (!*out->what)
        snprintf(out->what, sizeof out->what, "%s%s%s", variant, *variant ? ": " : "", what);
    return 1;
}

/* --- numbers */

/* How far the first element that is too far off is, and which; -1: none is. *worst is a part of what is allowed. */
static int64_t differs(const struct tn_bench *mine, const struct tn_bench *ref, uint32_t output, int64_t n,
                       double tol, double *worst)
{
    const int each = tn_bench_extreme(ref);      /* numbers of all sizes: each against itself */
    double scale = 0;

    for (int64_t e = 0; e < n; e++) {
        const double r = fabs(tn_bench_result(ref, output, e));

        scale = isfinite(r) && r > scale ? r : scale;
    }
    for (int64_t e = 0; e < n; e++) {
        const double r = tn_bench_result(ref, output, e), m = tn_bench_result(mine, output, e);
        const double most = tol > 0 ? tol * (each ? fabs(r) : scale) + (each ? DENORMAL : TINY) : 0;

        if (isnan(r) || isnan(m) ? !(isnan(r) && isnan(m)) : m != r && !(fabs(m - r) <= most))
            return e;
        if (m != r && most > 0 && fabs(m - r) / most > *worst)
            *worst = fabs(m - r) / most;
    }
    return -1;
}

/* Of numbers of two bytes a few may be rounded the other way, for what was rounded differs a little. Where many are, and
 * all of them are smaller, it was not to nearest. */
static int truncates(const struct tn_bench *mine, const struct tn_bench *ref, uint32_t output, int64_t n)
{
    int64_t other = 0, smaller = 0;

    for (int64_t e = 0; e < n; e++) {
        const double r = tn_bench_result(ref, output, e), m = tn_bench_result(mine, output, e);

        other += m != r && !isnan(m), smaller += fabs(m) < fabs(r);
    }
    return other >= 16 && 8 * other > n && 50 * smaller >= 49 * other;
}

static int compare(const struct tn_bench_case *c, const char *variant, const struct tn_bench *mine,
                   const struct tn_bench *ref, int exact, struct tn_conform_result *out)
{
    uint32_t n_in, n = tn_bench_operands(ref, &n_in);
    char text[200];

    for (uint32_t o = 0; o < n - n_in; o++) {
        const int64_t e = differs(mine, ref, o, tn_bench_count(ref, n_in + o), exact ? 0 : tolerance(c, o), &out->worst);

        if (e < 0 && !exact && rounding(c->out, o) > 0 && truncates(mine, ref, o, tn_bench_count(ref, n_in + o))) {
            snprintf(text, sizeof text, "output %u is rounded towards zero, not to nearest", o);
            return complain(out, variant, text);
        }
        if (e < 0)
            continue;
        snprintf(text, sizeof text, "output %u, element %lld: %.9g, should be %.9g", o, (long long)e,
                 tn_bench_result(mine, o, e), tn_bench_result(ref, o, e));
        return complain(out, variant, text);
    }
    return 0;
}

/* --- runs */

static struct tn_bench *new_bench(const struct tn_bench_case *c, int merged)
{
    struct tn_bench *b = tn_bench_new(c, 1000 + seed_of(c));

    if (merged)
        tn_bench_merge(b);
    tn_bench_set_micro(b, MICRO);
    return b;
}

/* Returns failures; one that is declined is counted. */
static int run_mine(const struct tn_bench_case *c, struct tn_bench *b, const char *variant,
                    const struct tn_kernels *mine, const struct tn_bench *oracle, struct tn_conform_result *out)
{
    const tn_status s = tn_bench_run(b, mine);

    if (s == TN_DECLINED) {
        out->declined++;
        return 0;
    }
    out->ran++;
    return s != TN_OK ? complain(out, variant, tn_bench_error(b)) : compare(c, variant, b, oracle, 0, out);
}

static int run_variant(const struct tn_bench_case *c, int merged, const struct tn_kernels *mine,
                       const struct tn_bench *oracle, const struct tn_bench_device *device,
                       struct tn_conform_result *out)
{
    static const uint32_t threads[] = {1, 3};
    static const char *const name[2][2] = {{"", "3 threads"}, {"loops merged", "loops merged, 3 threads"}};
    struct tn_bench *b[2] = {new_bench(c, merged), new_bench(c, merged)};
    const uint32_t before = out->ran;
    int failed = 0;

    tn_bench_front(b[1]);
    for (int i = 0; i < 2 && !failed; i++) {
        tn_bench_on(b[i], device);
        tn_bench_threads(threads[i]);
        failed = run_mine(c, b[i], name[merged][i], mine, oracle, out);
    }
    if (out->ran == before + 2 && !failed)
        failed = compare(c, "other bits with 3 threads than with 1", b[1], b[0], 1, out);
    tn_bench_free(b[0]), tn_bench_free(b[1]);
    return failed;
}

/* The oracle is slow: it runs once, and only where there is something to compare. */
static int run_oracle(struct tn_bench *oracle, int merges, const struct tn_bench_case *c, const struct tn_kernels *mine,
                      const struct tn_kernels *ref, struct tn_conform_result *out)
{
    struct tn_bench *merged = new_bench(c, 1);
    const int wanted = !tn_bench_declines(oracle, mine) || (merges && !tn_bench_declines(merged, mine));

    tn_bench_free(merged);
    tn_bench_threads(1);
    tn_bench_once(oracle);
    if (wanted && tn_bench_run(oracle, ref) != TN_OK)
        complain(out, "the oracle", tn_bench_error(oracle));
    if (!wanted)
        out->declined += 1 + (merges != 0);
    return wanted && !*out->what;
}

int tn_conform_case(const struct tn_bench_case *c, const struct tn_kernels *mine, const struct tn_kernels *ref,
                    const struct tn_bench_device *device, struct tn_conform_result *out)
{
    struct tn_bench *oracle = new_bench(c, 0), *merged = tn_bench_new(c, 1);
    const int merges = tn_bench_merge(merged);
    int failed = 0;

    tn_bench_free(merged);
    *out = (struct tn_conform_result){0};
    if (run_oracle(oracle, merges, c, mine, ref, out)) {
        failed = run_variant(c, 0, mine, oracle, device, out);
        if (!failed && merges)
            failed = run_variant(c, 1, mine, oracle, device, out);
    }
    tn_bench_free(oracle);
    return failed || *out->what;
}

int tn_conform(const struct tn_kernels *mine, const struct tn_kernels *ref, int say,
               struct tn_conform_report *out)
{
    char text[600];

    *out = (struct tn_conform_report){0};
    for (const struct tn_bench_case *c = tn_conform_cases; c->op; c++) {
        struct tn_conform_result r;

        if (!tn_conform_claims(mine, c->op)) {
            out->absent++;
            continue;
        }
        if (tn_conform_case(c, mine, ref, NULL, &r))
            fprintf(stderr, "FAIL %s: %s\n", tn_conform_text(c, text, sizeof text), r.what), out->failed++;
        out->checked += !r.declined, out->declined += !!r.declined;
        if (r.declined && say)
            fprintf(stderr, "declined %s\n", tn_conform_text(c, text, sizeof text));
    }
    return (int)out->failed;
}
