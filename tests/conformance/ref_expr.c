/* ref_expr.c - tests of element-wise programs and number formats. */
#include "check_ref.h"

static double relu(double x)
{
    return x > 0 ? x : 0;
}

/* Every instruction, on inputs of both signs. */
START_TEST(instructions)
{
    struct tn_bench *b =
        ran(BUILD("expr", "b3 c30", "bc bc>", "bc bc bc bc bc bc", NULL,
                  "r0 = -a + exp(b) - log(b)*sqrt(b); r1 = tanh(a)/b; r2 = erf(a)^2; r3 = b^a;"
                  "r4 = min(a, 0.25) + max(a, 0); r5 = select(ge(a, 0), b, u0)",
                  0, 0));

    for (int e = 0; e < 90; e++) {
        const double x = tn_bench_get(b, 0, e), z = tn_bench_get(b, 1, e);

        NEAR(tn_bench_result(b, 0, e), -x + exp(z) - log(z) * sqrt(z));
        NEAR(tn_bench_result(b, 1, e), tanh(x) / z);
        NEAR(tn_bench_result(b, 2, e), erf(x) * erf(x));
        NEAR(tn_bench_result(b, 3, e), exp(x * log(z)));
        NEAR(tn_bench_result(b, 4, e), (x < 0.25 ? x : 0.25) + relu(x));
        if (x >= 0)
            NEAR(tn_bench_result(b, 5, e), z);
    }
    tn_bench_free(b);
}
END_TEST

START_TEST(instructions_on_nan_and_equals)
{
    struct tn_bench *b = BUILD("expr", "c5", "c c", "c c c c", NULL,
                               "r0 = min(a, b); r1 = max(a, b); r2 = ge(a, b); r3 = select(a, b, 7)", 0, 0);

    SET(b, 0, NAN, 1, NAN, 0, 3);
    SET(b, 1, 1, NAN, NAN, 2, 3);
    run(b);
    EXPECT(b, 0, NAN, NAN, NAN, 0, 3);
    EXPECT(b, 1, NAN, NAN, NAN, 2, 3);
    EXPECT(b, 2, 0, 0, 0, 0, 1);
    EXPECT(b, 3, 1, NAN, NAN, 7, 3);
    tn_bench_free(b);
}
END_TEST

/* Broadcast by name, an int32 input, a scalar, and outputs that lie in the inputs' buffers. */
START_TEST(expressions)
{
    struct tn_bench *b = ran(BUILD("expr", "b3 c70", "b:i9 c -", "bc/cb+", NULL, "a*b + c", 1, 0));
    struct tn_bench *s =
        ran(BUILD("expr", "b3 c70", "bc bc", "bc=b bc=a", NULL, "r0 = a + 1; r1 = b - 1", 0, 0));

    for (int e = 0; e < 210; e++) {
        NEAR(tn_bench_result(b, 0, e), tn_bench_get(b, 0, e / 70) * tn_bench_get(b, 1, e % 70) +
                                           tn_bench_get(b, 2, 0) + tn_bench_get(b, 3, e));
        NEAR(tn_bench_result(s, 0, e), tn_bench_get(s, 0, e) + 1);
        NEAR(tn_bench_result(s, 1, e), tn_bench_get(s, 1, e) - 1);
    }
    tn_bench_free(b), tn_bench_free(s);
}
END_TEST

/* The first update of Adam with gradient -13: lr 0.1, betas 0.9 0.999. */
START_TEST(adam_by_hand)
{
    struct tn_bench *b = BUILD("expr", "c1", "c c c c", "c=a c=c c=d", NULL,
                               "t0 = 0.9*c + 0.1*b; t1 = 0.999*d + 0.001*b*b;"
                               "r0 = a - 0.1*(t0/u0)/(sqrt(t1/u1) + 1e-8); r1 = t0; r2 = t1", 0, 0);

    tn_bench_set_uniform(b, 0, 0.1), tn_bench_set_uniform(b, 1, 0.001);
    SET(b, 0, 0);
    SET(b, 1, -13);
    SET(b, 2, 0);
    SET(b, 3, 0);
    run(b);
    ck_assert(fabs(tn_bench_result(b, 0, 0) - 0.1 * 13 / (13 + 1e-8)) < 1e-8);
    EXPECT(b, 1, -1.3);
    EXPECT(b, 2, 0.169);
    tn_bench_free(b);
}
END_TEST

/* softmax(2, 1, -1), by its base operations. */
START_TEST(softmax_by_hand)
{
    struct tn_bench *m = BUILD("rowmax", "b1 c3", "bc", "b", NULL, NULL, 0, 0);
    struct tn_bench *e = BUILD("expr", "b1 c3", "bc b", "bc", NULL, "exp(a - b)", 0, 0);
    struct tn_bench *s = BUILD("sum", "b1 c3", "bc", "b", NULL, NULL, 0, 0);

    SET(m, 0, 2, 1, -1);
    run(m);
    SET(e, 0, 2, 1, -1);
    SET(e, 1, tn_bench_result(m, 0, 0));
    run(e);
    SET(s, 0, tn_bench_result(e, 0, 0), tn_bench_result(e, 0, 1), tn_bench_result(e, 0, 2));
    run(s);
    for (int i = 0; i < 3; i++)
        ck_assert(fabs(tn_bench_result(e, 0, i) / tn_bench_result(s, 0, 0) -
                       (const double[]){0.7054, 0.2595, 0.0351}[i]) < 5e-5);
    tn_bench_free(m), tn_bench_free(e), tn_bench_free(s);
}
END_TEST

static void exactly(struct tn_bench *b, const double (*pair)[2], int n)
{
    for (int i = 0; i < n; i++)
        tn_bench_set(b, 0, i, pair[i][0]);
    run(b);
    for (int i = 0; i < n; i++) {
        const double r = tn_bench_result(b, 0, i);

        ck_assert_msg(r == pair[i][1] || (isnan(r) && isnan(pair[i][1])), "%g became %.17g, should be %.17g",
                      pair[i][0], r, pair[i][1]);
    }
    tn_bench_free(b);
}

/* Nearest, ties to even, subnormals and overflow included. */
START_TEST(formats)
{
    static const double bf16[][2] = {{70000, 70144},
                                     {1.0 / 3, 0.333984375},
                                     {3.4e38, INFINITY},
                                     {1.00390625, 1},
                                     {1.01171875, 1.015625},
                                     {-2, -2},
                                     {NAN, NAN},
                                     {0x1.6p-133, 0x1p-133},
                                     {0x1.ap-133, 0x1p-132},
                                     {0x1.01p-133, 0x1p-133}};
    static const double f16[][2] = {{70000, INFINITY},
                                    {1e-8, 0},
                                    {65504, 65504},
                                    {65519, 65504},
                                    {65520, INFINITY},
                                    {1 + 0x1p-11, 1},
                                    {1 + 0x1.8p-10, 1 + 0x1p-9},
                                    {0x1p-24, 0x1p-24},
                                    {-0x1.8p-24, -0x1p-23},
                                    {-0x1.6p-24, -0x1p-24},
                                    {0x1.ffep-15, 0x1p-14},
                                    {NAN, NAN}};
    static const double back[][2] = {
        {-0x1p-24, -0x1p-24}, {0.333251953125, 0.333251953125}, {NAN, NAN}, {-INFINITY, -INFINITY}};

    exactly(BUILD("cast", "c10", "c", "c:h", "to=bf16", NULL, 0, 0), bf16, 10);
    exactly(BUILD("cast", "c12", "c", "c:f", "to=fp16", NULL, 0, 0), f16, 12);
    exactly(BUILD("cast", "c4", "c:f", "c", "to=fp32", NULL, 0, 0), back, 4);
}
END_TEST

TCase *tn_test_expr(void)
{
    TCase *t = tcase_create("expr");

    tcase_add_test(t, instructions);
    tcase_add_test(t, instructions_on_nan_and_equals);
    tcase_add_test(t, expressions);
    tcase_add_test(t, adam_by_hand);
    tcase_add_test(t, softmax_by_hand);
    tcase_add_test(t, formats);
    return t;
}
