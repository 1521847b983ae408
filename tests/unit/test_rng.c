/* test_rng.c - Philox against its published vectors; the shapes drawn from it. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

START_TEST(philox_known_answers)
{
    /* counter words 0 and 1 are the block, 2 the stream, 3 the step; the key is the seed */
    static const struct {
        uint32_t counter[4], key[2], result[4];
    } known[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const uint32_t *c = known[i].counter, *k = known[i].key;
        struct tn_philox block =
            tn_philox((uint64_t)k[1] << 32 | k[0], c[2], c[3], (uint64_t)c[1] << 32 | c[0]);
        for (int w = 0; w < 4; w++)
            ck_assert_uint_eq(block.word[w], known[i].result[w]);
    }
}
END_TEST

START_TEST(uniform_fills_its_interval)
{
    double sum = 0, square = 0, least = 1, most = 0;
    int n = 100000;

    for (int i = 0; i < n; i++) {
        double u = tn_random_uniform(1, 2, 3, (uint64_t)i);
        ck_assert(u >= 0 && u < 1);
        sum += u, square += u * u;
        least = u < least ? u : least;
        most = u > most ? u : most;
    }
    ck_assert_double_eq_tol(sum / n, 0.5, 0.005);
    ck_assert_double_eq_tol(square / n, 1.0 / 3, 0.005);
    ck_assert(least < 1e-3 && most > 0.999);
}
END_TEST

START_TEST(normal_has_its_moments)
{
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, pair = 0;
    int n = 200000;

    for (int i = 0; i < n; i++) {
        double z = (double)tn_random_normal(7, 1, 0, (uint64_t)i);
        ck_assert(isfinite(z));
        m1 += z, m2 += z * z, m3 += z * z * z, m4 += z * z * z * z;
        pair += z * (double)tn_random_normal(7, 1, 0, (uint64_t)i + 1);
    }
    ck_assert_double_eq_tol(m1 / n, 0, 0.01);
    ck_assert_double_eq_tol(m2 / n, 1, 0.02);
    ck_assert_double_eq_tol(m3 / n, 0, 0.05);
    ck_assert_double_eq_tol(m4 / n, 3, 0.15);
    ck_assert_double_eq_tol(pair / n, 0, 0.01);
}
END_TEST

/* A shard draws what the whole draws at its place. */
START_TEST(normals_are_addressed_by_element)
{
    float many[37];

    for (uint64_t first = 0; first < 9; first++) {
        tn_random_normals(11, 5, 2, first, 37, 0.5f, many);
        for (uint64_t i = 0; i < 37; i++)
            ck_assert(many[i] == 0.5f * tn_random_normal(11, 5, 2, first + i));
    }
    ck_assert(tn_random_normal(11, 5, 2, 0) != tn_random_normal(11, 5, 3, 0));
    ck_assert(tn_random_normal(11, 5, 2, 0) != tn_random_normal(11, 6, 2, 0));
    ck_assert(tn_random_normal(11, 5, 2, 0) != tn_random_normal(12, 5, 2, 0));
}
END_TEST

/* The two normals of a pair of words, by the C library in double; both roundings of the uniform count. */
START_TEST(normals_are_those_of_box_and_muller)
{
    static const double turn = 6.283185307179586 * 0x1p-32;
    float some[4096];

    tn_random_normals(1, 2, 3, 0, 4096, 1.0f, some);
    for (uint64_t block = 0; block < 1024; block++) {
        struct tn_philox p = tn_philox(1, 2, 3, block);
        for (int pair = 0; pair < 2; pair++) {
            double u = ((double)(p.word[2 * pair] >> 1) + 0.5) * 0x1p-31, angle = (double)(int32_t)p.word[2 * pair + 1] * turn;
            double radius = sqrt(-2 * log(u)), near = radius > 0.1 ? 2e-6 : 1e-3;
            ck_assert_double_eq_tol((double)some[4 * block + 2 * (uint64_t)pair], radius * cos(angle), near);
            ck_assert_double_eq_tol((double)some[4 * block + 2 * (uint64_t)pair + 1], radius * sin(angle), near);
        }
    }
}
END_TEST

/* The same bits from every compiler and on every processor: two ranks may differ in both. */
START_TEST(normals_have_known_bits)
{
    float some[100000];
    uint32_t sum = 0, bits;

    tn_random_normals(1337, 9, 0, 3, 100000, 0.02f, some);
    for (int i = 0; i < 100000; i++) {
        memcpy(&bits, &some[i], sizeof bits);
        sum = sum * 31 + bits;
    }
    ck_assert_uint_eq(sum, 0xcf780bbfu);
}
END_TEST

START_TEST(below_is_fair)
{
    int count[7] = {0}, third[3] = {0};
    uint64_t most = UINT64_C(3) << 61; /* a plain product would make one rest of 3 rarer: 3, 3 and 2 of 8 */

    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t v = tn_random_below(3, 0, 0, i, 7);
        ck_assert_uint_lt(v, 7);
        count[v]++;
        ck_assert_uint_eq(tn_random_below(3, 0, 0, i, 1), 0);
        v = tn_random_below(3, 0, 0, i, most);
        ck_assert_uint_lt(v, most);
        third[v % 3]++;
    }
    for (int v = 0; v < 7; v++)
        ck_assert_int_lt(abs(count[v] - 10000), 400);
    for (int v = 0; v < 3; v++)
        ck_assert_int_lt(abs(third[v] - 70000 / 3), 700);
}
END_TEST

START_TEST(streams_of_names_differ)
{
    ck_assert_uint_ne(tn_random_stream("wte"), tn_random_stream("wpe"));
    ck_assert_uint_eq(tn_random_stream("wte"), tn_random_stream("wte"));
    ck_assert_uint_ge(tn_random_stream("wte"), 0x80000000u);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rng");
    TCase *t = tcase_create("rng");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(t, philox_known_answers);
    tcase_add_test(t, uniform_fills_its_interval);
    tcase_add_test(t, normal_has_its_moments);
    tcase_add_test(t, normals_are_addressed_by_element);
    tcase_add_test(t, normals_are_those_of_box_and_muller);
    tcase_add_test(t, normals_have_known_bits);
    tcase_add_test(t, below_is_fair);
    tcase_add_test(t, streams_of_names_differ);
    suite_add_tcase(suite, t);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
