/* test_cpu_math.c - the plugin cpu's exp, log, tanh and erf against libm in double, over all of the floats;
 * its gelu; its conversions to and from bf16 and fp16, every number of these.
 *
 * Every 331st bit pattern (a prime, so exponents and mantissas both vary), which is 13 million arguments,
 * NaN, infinities and subnormals among them. Compiled without vector code: plugins/cpu/vmath.h is what all
 * levels compile, and the functions are the same in each lane. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../plugins/cpu/gelu.h"
#include "../../plugins/cpu/half.h"
#include "../../plugins/cpu/vexp.h"

#define STEP 331u
#define BOUND 2.0                                /* ulp */

static float from_bits(uint32_t u)
{
    return (union tn_bits){.u = u}.f;
}

/* Error of got in ulps of the float nearest to want. Where that is infinite, only infinity is right, or a
 * result that a hair less would round to. */
static double ulps(float got, double want)
{
    float near = (float)want, size = fabsf(near);

    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (got == near)
        return got == 0 && signbit(got) != signbit(near) && want != 0 ? INFINITY
               : fabs((double)got - want) > 0                         ? 0.5
                                                                      : 0;
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

/* The exponential of a register has the bits of the one that is tested below; sums and maxima have all lanes; a square
 * is turned over. */
START_TEST(registers_compute_the_same)
{
    float x[TN_W * TN_W], y[TN_W * TN_W];

    for (uint64_t u = 0; u <= UINT32_MAX - TN_W * 331; u += STEP * TN_W) {
        for (uint32_t k = 0; k < TN_W; k++)
            x[k] = from_bits((uint32_t)u + k * 331);
        tn_store(y, tn_exp_vec(tn_load(x)));
        for (uint32_t k = 0; k < TN_W; k++) {
            float want = tn_exp(x[k]);
            ck_assert_msg(!memcmp(&y[k], &want, 4) || (y[k] != y[k] && want != want), "exp(%a): %a in a register, else %a",
                          (double)x[k], (double)y[k], (double)want);
        }
    }
    for (int i = 0; i < TN_W * TN_W; i++)
        x[i] = (float)(i * i % 37 - 18);
    for (int i = 0; i < TN_W; i++) {
        float sum = 0, max = -INFINITY;
        for (int k = 0; k < TN_W; k++)
            sum += x[i * TN_W + k], max = fmaxf(max, x[i * TN_W + k]);
        ck_assert(tn_lanes_sum(tn_load(x + i * TN_W)) == sum);
        ck_assert(tn_lanes_max(tn_load(x + i * TN_W)) == max);
    }
    memset(y, 0xff, sizeof y);
    tn_transpose(x, TN_W, TN_W - 1, y, TN_W);
    for (int i = 0; i < TN_W; i++)
        for (int k = 0; k < TN_W; k++)
            ck_assert(k < TN_W - 1 ? y[k * TN_W + i] == x[i * TN_W + k] : isnan(y[k * TN_W + i]));
}
END_TEST

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

/* The error of a vector function; scaled: in units of |x| where that is above 1. */
static void check_vectors(const char *name, tn_vec (*mine)(tn_vec), double (*exact)(double), double bound,
                          int scaled)
{
    for (uint64_t u = 0; u + TN_W * STEP <= UINT32_MAX; u += TN_W * STEP) {
        float x[TN_W], y[TN_W];

        for (uint32_t i = 0; i < TN_W; i++)
            x[i] = from_bits((uint32_t)u + i * STEP);
        tn_store(y, mine(tn_load(x)));
        for (uint32_t i = 0; i < TN_W; i++) {
            double want = exact((double)x[i]), unit = scaled ? fmax(1, fabs((double)x[i])) : 1;
            double error = fabs((double)y[i] - want) / unit;

            if (isnan(want) || isinf(want) ? (isnan(want) ? !isnan(y[i]) : (double)y[i] != want) : error > bound)
                ck_abort_msg("%s(%a) = %a should be %a", name, (double)x[i], (double)y[i], want);
        }
    }
}

/* As the graph writes them, so that infinity becomes what it becomes there. */
static double exact_gelu(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
}
static double exact_slope(double x)
{
    return 0.5 * (1 + erf(x * 0.70710678118654752440)) + x * exp(-0.5 * x * x) * 0.39894228040143267794;
}

START_TEST(gelu_as_it_says)
{
    check_vectors("gelu", tn_gelu, exact_gelu, 7e-8, 1);
    check_vectors("gelu'", tn_gelu_derivative, exact_slope, 8e-8, 0);
}
END_TEST

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Its gradients are differences of it to 0 and to 1, so absolute near 1 and relative near 0 matters alike: 2 ulp. */
START_TEST(sigmoid_as_it_says)
{
    check_vectors("sigmoid", tn_sigmoid, exact_sigmoid, 1.2e-7, 0);
    for (float x = -86; x < 90; x += 0.0137f) {
        double want = exact_sigmoid((double)x);

        ck_assert_msg(fabs((double)tn_sigmoid(tn_splat(x))[0] - want) <= 2.4e-7 * want, "sigmoid(%a)", (double)x);
    }
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

/* What the bits h mean: exponent bits e, fraction bits f; finite ones only. */
static double meaning(uint32_t h, int e, int f)
{
    int bias = (1 << (e - 1)) - 1, exponent = (int)(h >> f & ((1u << e) - 1));
    double fraction = (double)(h & ((1u << f) - 1)), sign = h & 0x8000u ? -1 : 1;

    return sign *
           (exponent ? ldexp(fraction + (1 << f), exponent - bias - f) : ldexp(fraction, 1 - bias - f));
}

/* h and the next number, both finite: itself, what is nearer, and what lies between and goes to the even one.
 */
static void check_half(uint32_t h, int e, int f, uint16_t (*to)(float), float (*from)(uint16_t))
{
    double low = meaning(h, e, f), high = meaning(h + 1, e, f), middle = (low + high) / 2;
    uint32_t even = h & 1 ? h + 1 : h;

    ck_assert((double)from((uint16_t)h) == low && to((float)low) == h);
    ck_assert_msg(to((float)middle) == even, "%a becomes %x", middle, (unsigned)to((float)middle));
    ck_assert(to(nextafterf((float)middle, (float)low)) == h);
    ck_assert(to(nextafterf((float)middle, (float)high)) == h + 1);
}

static uint16_t to_f16(float x)
{
    return tn_to_f16(x);
}
static float from_f16(uint16_t h)
{
    return tn_from_f16(h);
}
static uint16_t to_bf16(float x)
{
    return tn_to_bf16(x);
}
static float from_bf16(uint16_t h)
{
    return tn_from_bf16(h);
}

START_TEST(every_fp16)
{
    for (uint32_t h = 0; h < 0x7bffu; h++) {
        check_half(h, 5, 10, to_f16, from_f16);
        check_half(h | 0x8000u, 5, 10, to_f16, from_f16);
    }
    ck_assert(to_f16(65519.996f) == 0x7bff && to_f16(65520) == 0x7c00 && to_f16(-1e30f) == 0xfc00);
    ck_assert(to_f16(INFINITY) == 0x7c00 && from_f16(0x7c00) == INFINITY && from_f16(0xfc00) == -INFINITY);
    ck_assert(isnan(from_f16(to_f16(NAN))) && isnan(from_f16(0x7c01)) && to_f16(-0.0f) == 0x8000);
}
END_TEST

START_TEST(every_bf16)
{
    for (uint32_t h = 0x80; h < 0x7f7fu; h++) {
        check_half(h, 8, 7, to_bf16, from_bf16);
        check_half(h | 0x8000u, 8, 7, to_bf16, from_bf16);
    }
    ck_assert(to_bf16(3.4e38f) == 0x7f80 && to_bf16(INFINITY) == 0x7f80 && to_bf16(-INFINITY) == 0xff80);
    ck_assert(isnan(from_bf16(to_bf16(NAN))) && isnan(from_bf16(to_bf16(from_bits(0x7f800001u)))));
    ck_assert(to_bf16(0) == 0 && to_bf16(-0.0f) == 0x8000 && from_bf16(1) > 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_math");
    TCase *tests = tcase_create("functions");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, registers_compute_the_same);
    tcase_add_test(tests, exp_within_two_ulp);
    tcase_add_test(tests, log_within_two_ulp);
    tcase_add_test(tests, tanh_within_two_ulp);
    tcase_add_test(tests, erf_within_two_ulp);
    tcase_add_test(tests, gelu_as_it_says);
    tcase_add_test(tests, sigmoid_as_it_says);
    tcase_add_test(tests, special_values);
    tcase_add_test(tests, every_fp16);
    tcase_add_test(tests, every_bf16);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
