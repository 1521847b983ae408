/* check_ref.h - what the tests of ref share: running a case on it, and comparing with numbers. */
#ifndef CHECK_REF_H
#define CHECK_REF_H
#include <check.h>
#include <math.h>
#include "bench.h"

extern const struct tn_kernels *ref;

/* A result of ref is a double rounded once to fp32. */
#define NEAR(mine, right)                                                                                    \
    ck_assert_msg(near_enough(mine, right), "%.9g, should be %.9g", (double)(mine), (double)(right))
static inline int near_enough(double mine, double right)
{
    return isnan(right)
               ? isnan(mine)
               : mine == right || (isfinite(right) && fabs(mine - right) <= 7e-8 * fabs(right) + 1e-11);
}

static inline void run(struct tn_bench *b)
{
    const tn_status s = tn_bench_run(b, ref);

    ck_assert_msg(s == TN_OK, "status %d: %s", (int)s, tn_bench_error(b));
}

/* A case that was built and run; freed by the caller. */
#define BUILD(...) tn_bench_new(&(const struct tn_bench_case){__VA_ARGS__}, 42)
static inline struct tn_bench *ran(struct tn_bench *b)
{
    run(b);
    return b;
}

static inline void set_all(struct tn_bench *b, uint32_t operand, const double *v)
{
    for (int64_t e = 0; e < tn_bench_count(b, operand); e++)
        tn_bench_set(b, operand, e, v[e]);
}
#define SET(b, operand, ...) set_all(b, operand, (const double[]){__VA_ARGS__})

static inline void expect_all(const struct tn_bench *b, uint32_t output, int64_t n, const double *v)
{
    for (int64_t e = 0; e < n; e++)
        NEAR(tn_bench_result(b, output, e), v[e]);
}
#define EXPECT(b, output, ...)                                                                               \
    expect_all(b, output, sizeof((const double[]){__VA_ARGS__}) / sizeof(double),                            \
               (const double[]){__VA_ARGS__})

TCase *tn_test_nest(void);
TCase *tn_test_expr(void);
TCase *tn_test_shaped(void);
TCase *tn_test_gradient(void);
TCase *tn_test_device(void);
#endif
