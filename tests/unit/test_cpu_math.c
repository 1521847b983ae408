/* test_cpu_math.c - the plugin cpu's exp, log, tanh and erf against libm in double, over all of the floats.
 *
 * Every 331st bit pattern (a prime, so exponents and mantissas both vary), which is 13 million arguments, NaN,
 * infinities and subnormals among them. Compiled without vector code: plugins/cpu/vmath.h is what all levels
 * compile, and the functions are the same in each lane. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include "../../plugins/cpu/vmath.h"

#define STEP 331u
#define BOUND 2.0                                /* ulp */

static float from_bits(uint32_t u)
{
    return (union tn_bits){.u = u}.f;
}

/* Error of got in ulps of the float nearest to want. Where that is infinite, only infinity is right, or a result
 * that a hair less would round to. */
static double ulps(float got, double want)
{
    float near = (float)want, size = fabsf(near);

    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (got == near)
        return got == 0 && signbit(got) != signbit(near) && want != 0 ? INFINITY : fabs((double)got - want) > 0 ? 0.5 : 0;
    if (isinf(near) || isinf(got))
        return INFINITY;
    return fabs((double)got - want) / (double)(nextafterf(size, INFINITY) - size);
}

static void check_function(const char *name, float (*mine)(float), double (*exact)(double))
{
    double worst = 0;
    float at = 0;

    for (uint64_t u = 0; u <= UINT32_MAX; u += STEP) {
        float x = from_bits((uint32_t)u);
        double error = ulps(mine(x), exact((double)x));

        if (error > worst)
            worst = error, at = x;
    }
    ck_assert_msg(worst <= BOUND, "%s(%a) = %a is %g ulp off", name, (double)at, (double)mine(at), worst);
}

static float my_exp(float x)
{
    return tn_exp(x);
}
static float my_log(float x)
{
    return tn_log(x);
}
static float my_tanh(float x)
{
    return tn_tanh(x);
}
static float my_erf(float x)
{
    return tn_erf(x);
}

START_TEST(exp_within_two_ulp)
{
    check_function("exp", my_exp, exp);
}
END_TEST

START_TEST(log_within_two_ulp)
{
    check_function("log", my_log, log);
}
END_TEST

START_TEST(tanh_within_two_ulp)
{
    check_function("tanh", my_tanh, tanh);
}
END_TEST

START_TEST(erf_within_two_ulp)
{
    check_function("erf", my_erf, erf);
}
END_TEST

START_TEST(special_values)
{
    ck_assert(tn_exp(INFINITY) == INFINITY && tn_exp(-INFINITY) == 0 && isnan(tn_exp(NAN)));
    ck_assert(tn_exp(88.72283f) < INFINITY && tn_exp(88.72284f) == INFINITY);
    ck_assert(tn_exp(-103.27893f) > 0 && tn_exp(-104.0f) == 0);
    ck_assert(tn_log(INFINITY) == INFINITY && tn_log(0) == -INFINITY && tn_log(-0.0f) == -INFINITY);
    ck_assert(isnan(tn_log(-1)) && isnan(tn_log(-INFINITY)) && isnan(tn_log(NAN)) && tn_log(1) == 0);
    ck_assert(tn_tanh(INFINITY) == 1 && tn_tanh(-INFINITY) == -1 && isnan(tn_tanh(NAN)));
    ck_assert(tn_erf(INFINITY) == 1 && tn_erf(-INFINITY) == -1 && isnan(tn_erf(NAN)));
    ck_assert(isnan(tn_exp(-NAN)) && isnan(tn_log(-NAN)) && isnan(tn_tanh(-NAN)) && isnan(tn_erf(-NAN)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_math");
    TCase *tests = tcase_create("functions");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, exp_within_two_ulp);
    tcase_add_test(tests, log_within_two_ulp);
    tcase_add_test(tests, tanh_within_two_ulp);
    tcase_add_test(tests, erf_within_two_ulp);
    tcase_add_test(tests, special_values);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
