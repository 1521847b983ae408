/* ref_nest.c - tests of the operations that come as a nest of loops, and of dropout. */
#include <tenon/philox.h>
#include "check_ref.h"

/* y[b,t,o] = sum x[b,t,c] w[o,c], in every layout the same. */
START_TEST(contraction)
{
    static const struct tn_bench_case layouts[] = {
        {"einsum", "b3 t7 c17 o5", "btc oc", "bto", NULL, NULL, 0, 0},
        {"einsum", "b3 t7 c17 o5", "btc+ oc/co+", "bto/otb+", NULL, NULL, 0, 0},
        {"einsum", "b3 t1 c1 o70", "btc/tcb oc", "bto", NULL, NULL, 0, 0},
        {"einsum", "b3 t7 c17 o5", "btc oc", "bto+", NULL, NULL, 1, 0},
        {"einsum", "b1 t2 c0 o3", "btc oc", "bto", NULL, NULL, 0, 0},
    };
    struct tn_bench *b = tn_bench_new(&layouts[_i], 3);
    const int64_t O = _i == 4   ? 3
                      : _i == 2 ? 70
                                : 5,
                  C = _i == 4   ? 0
                      : _i == 2 ? 1
                                : 17,
                  rows = tn_bench_count(b, 2) / O;

    run(b);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < O; o++) {
            double y = _i == 3 ? tn_bench_get(b, 2, r * O + o) : 0;

            for (int64_t c = 0; c < C; c++)
                y += tn_bench_get(b, 0, r * C + c) * tn_bench_get(b, 1, o * C + c);
            NEAR(tn_bench_result(b, 0, r * O + o), y);
        }
    tn_bench_free(b);
}
END_TEST

/* With heads: y[b,q,h,t,d] = sum over c of x[b,t,c] w[q,h,d,c]. */
START_TEST(contraction_by_heads)
{
    struct tn_bench *b = ran(BUILD("einsum", "b2 t3 c7 q3 h2 d5", "btc qhdc", "bqhtd", NULL, NULL, 0, 0));

    for (int i = 0, n = 0; i < 2; i++)
        for (int qh = 0; qh < 6; qh++)
            for (int t = 0; t < 3; t++)
                for (int d = 0; d < 5; d++, n++) {
                    double y = 0;

                    for (int c = 0; c < 7; c++)
                        y += tn_bench_get(b, 0, (i * 3 + t) * 7 + c) *
                             tn_bench_get(b, 1, (qh * 5 + d) * 7 + c);
                    NEAR(tn_bench_result(b, 0, n), y);
                }
    tn_bench_free(b);
}
END_TEST

/* Two outputs, one of them added to, from the contraction, a bias, a residual and a uniform. */
START_TEST(epilogue)
{
    struct tn_bench *b = BUILD("einsum", "b3 c17 o70", "bc oc o bo/ob", "bo+ bo", NULL,
                               "t0 = a + b; r0 = max(t0, 0)*u1 + c; r1 = t0", 2, 0);

    tn_bench_set_uniform(b, 1, 3.5);
    run(b);
    for (int r = 0; r < 3; r++)
        for (int o = 0; o < 70; o++) {
            double a = tn_bench_get(b, 2, o);

            for (int c = 0; c < 17; c++)
                a += tn_bench_get(b, 0, r * 17 + c) * tn_bench_get(b, 1, o * 17 + c);
            NEAR(tn_bench_result(b, 0, r * 70 + o), (a > 0 ? a : 0) * 3.5 + tn_bench_get(b, 3, r * 70 + o));
            NEAR(tn_bench_result(b, 1, r * 70 + o), a + tn_bench_get(b, 5, r * 70 + o));
        }
    tn_bench_free(b);
}
END_TEST

/* The two-layer network whose every number is known. */
START_TEST(two_layers_by_hand)
{
    struct tn_bench *h =
        BUILD("einsum", "b2 c3 o2", "bc co o", "bo bo", NULL, "r0 = max(a + b, 0); r1 = a + b", 0, 0);
    struct tn_bench *y = BUILD("einsum", "b2 c2 o1", "bc co o", "bo", NULL, "a + b", 0, 0);
    struct tn_bench *dh = BUILD("einsum", "b2 c2 o1", "bo co bc", "bc", NULL, "select(ge(b, 0), a, 0)", 0, 0);
    struct tn_bench *dw = BUILD("einsum", "b2 c3 o2", "bo bc", "co", NULL, NULL, 0, 0);
    struct tn_bench *db = BUILD("sum", "b2 o2", "bo", "o", NULL, NULL, 0, 0);

    SET(h, 0, 1, 2, 3, 4, 5, 6);
    SET(h, 1, 1, 0, 0, 1, 1, 1);
    SET(h, 2, -5, -6);
    run(h);
    EXPECT(h, 0, 0, 0, 5, 5);
    EXPECT(h, 1, -1, -1, 5, 5);
    SET(y, 0, 0, 0, 5, 5);
    SET(y, 1, 1, -0.5);
    SET(y, 2, 0.5);
    run(y);
    EXPECT(y, 0, 0.5, 3);
    SET(dh, 0, -0.5, -1);                        /* 2 (pred - y) / 2 */
    SET(dh, 1, 1, -0.5);
    SET(dh, 2, -1, -1, 5, 5);
    run(dh);
    EXPECT(dh, 0, 0, 0, -1, 0.5);
    SET(dw, 0, 0, 0, -1, 0.5);
    SET(dw, 1, 1, 2, 3, 4, 5, 6);
    run(dw);
    EXPECT(dw, 0, -4, 2, -5, 2.5, -6, 3);
    SET(db, 0, 0, 0, -1, 0.5);
    run(db);
    EXPECT(db, 0, -1, 0.5);
    tn_bench_free(h), tn_bench_free(y), tn_bench_free(dh), tn_bench_free(dw), tn_bench_free(db);
}
END_TEST

START_TEST(reductions)
{
    struct tn_bench *s = ran(BUILD("sum", "b3 t7 c17", "btc/cbt+", "cb", NULL, NULL, 1, 0));
    struct tn_bench *m = ran(BUILD("rowmax", "b3 t7 c17", "btc", "tb", NULL, NULL, 0, 0));
    struct tn_bench *q = ran(BUILD("sumsq", "b3 t7 c17", "btc+", "-", NULL, NULL, 1, 0));
    double squares = tn_bench_get(q, 1, 0);

    for (int b = 0; b < 3; b++)
        for (int c = 0; c < 17; c++) {
            double sum = tn_bench_get(s, 1, c * 3 + b);

            for (int t = 0; t < 7; t++)
                sum += tn_bench_get(s, 0, (b * 7 + t) * 17 + c);
            NEAR(tn_bench_result(s, 0, c * 3 + b), sum);
        }
    for (int r = 0; r < 21; r++) {
        double max = tn_bench_get(m, 0, r * 17);

        for (int c = 0; c < 17; c++) {
            max = fmax(max, tn_bench_get(m, 0, r * 17 + c));
            squares += tn_bench_get(q, 0, r * 17 + c) * tn_bench_get(q, 0, r * 17 + c);
        }
        NEAR(tn_bench_result(m, 0, r % 7 * 3 + r / 7), max);
    }
    NEAR(tn_bench_result(q, 0, 0), squares);
    tn_bench_free(s), tn_bench_free(m), tn_bench_free(q);
}
END_TEST

START_TEST(maximum_shows_nan)
{
    struct tn_bench *m = BUILD("rowmax", "b3 c3", "bc", "b", NULL, NULL, 0, 0);

    SET(m, 0, 1, NAN, 2, -INFINITY, -INFINITY, -INFINITY, NAN, -3, 4);
    run(m);
    EXPECT(m, 0, NAN, -INFINITY, NAN);
    tn_bench_free(m);
}
END_TEST

START_TEST(movers)
{
    struct tn_bench *x = ran(BUILD("expand", "b3 t7 c5", "ct btc?", "btc+", NULL, NULL, 0, 0));
    struct tn_bench *c = ran(BUILD("copy", "b3 t7 c5", "btc/cbt", "btc", NULL, NULL, 0, 0));
    struct tn_bench *i = ran(BUILD("copy", "b3 t7", "bt:i100/tb", "bt:i1", NULL, NULL, 0, 0));
    struct tn_bench *a = ran(BUILD("accum", "b3 t7", "bt", "bt", NULL, NULL, 1, 0));
    struct tn_bench *f = ran(BUILD("accum", "b3 t7", "bt", "bt", NULL, NULL, 0, 0));
    struct tn_bench *z = BUILD("copy", "c1", "c", "c", NULL, NULL, 0, 0);

    for (int e = 0; e < 105; e++) {
        NEAR(tn_bench_result(x, 0, e), tn_bench_get(x, 0, e % 5 * 7 + e / 5 % 7));
        NEAR(tn_bench_result(c, 0, e), tn_bench_get(c, 0, e));
    }
    for (int e = 0; e < 21; e++) {
        NEAR(tn_bench_result(i, 0, e), tn_bench_get(i, 0, e));
        NEAR(tn_bench_result(a, 0, e), (float)(tn_bench_get(a, 0, e) + tn_bench_get(a, 1, e)));
        NEAR(tn_bench_result(f, 0, e), tn_bench_get(f, 0, e));
    }
    SET(z, 0, -0.0);
    run(z);
    ck_assert(signbit(tn_bench_result(z, 0, 0)));
    tn_bench_free(x), tn_bench_free(c), tn_bench_free(i), tn_bench_free(a), tn_bench_free(f),
        tn_bench_free(z);
}
END_TEST

/* The generator's published numbers: all bits clear, all set, and the digits of pi. */
START_TEST(philox)
{
    static const struct {
        uint64_t key, block;
        uint32_t stream, step, word[4];
    } known[] = {
        {0, 0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {~0ull, ~0ull, ~0u, ~0u, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x85a308d3243f6a88,
         0x13198a2e,
         0x03707344,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    const struct tn_philox p = tn_philox(known[_i].key, known[_i].stream, known[_i].step, known[_i].block);

    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(p.word[i], known[_i].word[i]);
}
END_TEST

/* A part of the tensor, in the third micro-batch, has the mask of its place in the whole. */
START_TEST(dropout_by_global_index)
{
    struct tn_bench *b =
        BUILD("dropout", "b3@2/8 t4~/20 c17@3/40", "btc+", "btc", "p=0.5 key=6 micro_dim=0", NULL, 0, 0);
    int dropped = 0;

    tn_bench_set_key(b, 0x123456789abcu, 11);
    tn_bench_set_micro(b, 2);
    run(b);
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < 4; t++)
            for (int c = 0; c < 17; c++) {
                const uint64_t gt = (const uint64_t[]){1, 2, 18, 19}[t];
                const uint64_t g = ((uint64_t)(2 * 8 + 2 + i) * 20 + gt) * 40 + 3 + (uint64_t)c;
                const int keep = tn_philox_at(0x123456789abcu, 6, 11, g) >= 0x80000000u,
                          e = (i * 4 + t) * 17 + c;

                dropped += !keep;
                NEAR(tn_bench_result(b, 0, e), keep ? 2 * tn_bench_get(b, 0, e) : 0);
            }
    ck_assert_int_gt(dropped, 70);
    ck_assert_int_lt(dropped, 134);
    tn_bench_free(b);
}
END_TEST

TCase *tn_test_nest(void)
{
    TCase *t = tcase_create("nest");

    tcase_add_loop_test(t, contraction, 0, 5);
    tcase_add_test(t, contraction_by_heads);
    tcase_add_test(t, epilogue);
    tcase_add_test(t, two_layers_by_hand);
    tcase_add_test(t, reductions);
    tcase_add_test(t, maximum_shows_nan);
    tcase_add_test(t, movers);
    tcase_add_loop_test(t, philox, 0, 3);
    tcase_add_test(t, dropout_by_global_index);
    return t;
}
