/* test_choose.c - the next token: greedy, temperature, top-k, top-p, and logits that are no numbers. */
#include "files.h"

#include "train/choose.h"

#include <math.h>

#define DRAWS 20000

static int64_t choose(const float *logits, int64_t n, struct tn_choice choice, int64_t position)
{
    struct tn_chooser *c;
    int64_t id = -1;

    assert_ok(tn_chooser_new(n, &choice, &c));
    assert_ok(tn_choose(c, logits, position, &id));
    tn_chooser_free(c);
    ck_assert(id >= 0 && id < n);
    return id;
}

/* How often each id comes, at positions 0, 1, 2, … */
static void count(const float *logits, int64_t n, struct tn_choice choice, double *share)
{
    struct tn_chooser *c;
    int64_t id;

    assert_ok(tn_chooser_new(n, &choice, &c));
    memset(share, 0, (size_t)n * sizeof *share);
    for (int64_t i = 0; i < DRAWS; i++) {
        assert_ok(tn_choose(c, logits, i, &id));
        share[id] += 1.0 / DRAWS;
    }
    tn_chooser_free(c);
}

/* softmax(2, 1, -1) = (0.7054, 0.2595, 0.0351) */
static const float three[] = {2, 1, -1};

START_TEST(shares_are_those_of_softmax)
{
    double share[3];

    count(three, 3, (struct tn_choice){.temperature = 1, .top_p = 1, .seed = 5}, share);
    ck_assert_double_eq_tol(share[0], 0.7054, 0.01);
    ck_assert_double_eq_tol(share[1], 0.2595, 0.01);
    ck_assert_double_eq_tol(share[2], 0.0351, 0.004);
    count(three, 3, (struct tn_choice){.temperature = 0.5, .top_p = 1, .seed = 5}, share);
    ck_assert_double_eq_tol(share[0], 1 / (1 + exp(-2) + exp(-6)), 0.01);
}
END_TEST

START_TEST(few_are_kept)
{
    double share[3];

    count(three, 3, (struct tn_choice){.temperature = 1, .top_k = 2, .top_p = 1}, share);
    ck_assert_double_eq(share[2], 0);
    ck_assert_double_eq_tol(share[0], 0.7311, 0.01);
    count(three, 3, (struct tn_choice){.temperature = 1, .top_k = 1, .top_p = 1}, share);
    ck_assert_double_eq_tol(share[0], 1, 1e-9);
    count(three, 3, (struct tn_choice){.temperature = 1, .top_k = 99, .top_p = 1}, share);
    ck_assert_double_gt(share[2], 0);
    count(three, 3, (struct tn_choice){.temperature = 1, .top_p = 0.8}, share);
    ck_assert_double_eq(share[2], 0);
    ck_assert_double_eq_tol(share[0], 0.7311, 0.01);
    count(three, 3, (struct tn_choice){.temperature = 1, .top_p = 0.7}, share);
    ck_assert_double_eq_tol(share[0], 1, 1e-9);
    count(three, 3, (struct tn_choice){.temperature = 1, .top_p = 0}, share);
    ck_assert_double_eq_tol(share[0], 1, 1e-9);
}
END_TEST

START_TEST(cold_is_greedy)
{
    const float equal[] = {1, 3, 3, 3};

    ck_assert_int_eq(choose(equal, 4, (struct tn_choice){.temperature = 0, .top_p = 1}, 7), 1);
    for (int64_t i = 0; i < 50; i++)
        ck_assert_int_eq(choose(three, 3, (struct tn_choice){.temperature = 1e-9, .top_p = 1}, i), 0);
}
END_TEST

START_TEST(seed_and_position_decide)
{
    float flat[1000] = {0};
    struct tn_choice a = {.temperature = 1, .top_p = 1, .seed = 1},
                     b = {.temperature = 1, .top_p = 1, .seed = 2};
    int other_position = 0, other_seed = 0;

    for (int64_t i = 0; i < 20; i++) {
        ck_assert_int_eq(choose(flat, 1000, a, i), choose(flat, 1000, a, i));
        other_position += choose(flat, 1000, a, i) != choose(flat, 1000, a, i + 1);
        other_seed += choose(flat, 1000, a, i) != choose(flat, 1000, b, i);
    }
    ck_assert_int_gt(other_position, 15);
    ck_assert_int_gt(other_seed, 15);
}
END_TEST

START_TEST(what_is_not_finite_is_refused)
{
    const float bad[][3] = {{0, NAN, 0}, {INFINITY, 0, 0}, {-INFINITY, -INFINITY, -INFINITY}};
    struct tn_choice choice = {.temperature = 1, .top_p = 1};
    struct tn_chooser *c;
    int64_t id;

    assert_ok(tn_chooser_new(3, &choice, &c));
    for (int i = 0; i < 3; i++)
        assert_fails(tn_choose(c, bad[i], 12, &id), TN_ERR_NUMBER, "non-finite logits at position 12");
    tn_chooser_free(c);
    choice.temperature = 0;
    assert_ok(tn_chooser_new(3, &choice, &c));
    assert_fails(tn_choose(c, bad[0], 3, &id), TN_ERR_NUMBER, "non-finite logits at position 3");
    tn_chooser_free(c);
}
END_TEST

TEST_MAIN("choose", shares_are_those_of_softmax, few_are_kept, cold_is_greedy, seed_and_position_decide,
          what_is_not_finite_is_refused)
