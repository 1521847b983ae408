/* test_schedule.c - the learning rate of every update, against nanoGPT's numbers and against itself. */
#include "files.h"

#include "train/schedule.h"

#include <math.h>

static void assert_rate(const struct tn_schedule *s, int64_t i, double want)
{
    double got = tn_schedule_lr(s, i);

    ck_assert_msg(fabs(got - want) <= 1e-12 * fabs(want) + 1e-18, "update %lld: %.17g, expected %.17g",
                  (long long)i, got, want);
}

START_TEST(warmup_is_nanogpts)
{
    struct tn_schedule s = {.lr = 1e-3, .warmup = 100};

    assert_rate(&s, 0, 1e-3 * 1 / 101);
    assert_rate(&s, 49, 1e-3 * 50 / 101);
    assert_rate(&s, 99, 1e-3 * 100 / 101);
    assert_rate(&s, 100, 1e-3);
    assert_rate(&s, 100000, 1e-3);
    s.warmup = 0;
    assert_rate(&s, 0, 1e-3);
}
END_TEST

/* nanoGPT's get_lr with lr 1e-3, min_lr 1e-4, 100 warm-up, 2000 decay. */
START_TEST(cosine_is_nanogpts)
{
    struct tn_schedule s = {TN_SCHEDULE_COSINE, 1e-3, 1e-4, 100, 2000, 0};

    assert_rate(&s, 99, 1e-3 * 100 / 101);
    assert_rate(&s, 100, 1e-3);
    assert_rate(&s, 1050, 5.5e-4);
    assert_rate(&s, 575, 1e-4 + 0.5 * (1 + M_SQRT1_2) * 9e-4);
    assert_rate(&s, 1525, 1e-4 + 0.5 * (1 - M_SQRT1_2) * 9e-4);
    assert_rate(&s, 2000, 1e-4);
    assert_rate(&s, 5000, 1e-4);
    ck_assert_double_gt(tn_schedule_lr(&s, 1999), 1e-4);
}
END_TEST

START_TEST(linear_is_a_line)
{
    struct tn_schedule s = {TN_SCHEDULE_LINEAR, 1, 0, 10, 110, 0};

    assert_rate(&s, 9, 10.0 / 11);
    assert_rate(&s, 10, 1);
    assert_rate(&s, 60, 0.5);
    assert_rate(&s, 109, 0.01);
    assert_rate(&s, 110, 0);
}
END_TEST

START_TEST(wsd_is_flat_then_falls)
{
    struct tn_schedule s = {TN_SCHEDULE_WSD, 1e-2, 1e-3, 5, 100, 20};

    assert_rate(&s, 4, 1e-2 * 5 / 6);
    assert_rate(&s, 5, 1e-2);
    assert_rate(&s, 80, 1e-2);
    assert_rate(&s, 90, 5.5e-3);
    assert_rate(&s, 99, 1e-3 + 0.05 * 9e-3);
    assert_rate(&s, 100, 1e-3);
    s.decay = 0;
    assert_rate(&s, 99, 1e-2);
    s.decay = 98;                                /* the fall begins inside the warm-up: at its end then */
    assert_rate(&s, 5, 1e-2);
    assert_rate(&s, 4, 1e-2 * 5 / 6);
}
END_TEST

/* A run shorter than its warm-up is no error and divides by nothing. */
START_TEST(a_warmup_may_be_longer_than_the_run)
{
    for (uint32_t kind = TN_SCHEDULE_CONSTANT; kind <= TN_SCHEDULE_WSD; kind++) {
        struct tn_schedule s = {kind, 1, 0.1, 100, 100, 20};
        assert_rate(&s, 99, 100.0 / 101);
        assert_rate(&s, 100, kind == TN_SCHEDULE_CONSTANT ? 1 : 0.1);
        s.steps = 20;
        assert_rate(&s, 50, 51.0 / 101);
        ck_assert(isfinite(tn_schedule_lr(&s, 100)));
    }
}
END_TEST

static struct tn_config *config_of(int n, const char *const *setting)
{
    struct tn_config *c;

    assert_ok(tn_config_open(NULL, n, (char *const *)setting, &c));
    return c;
}

START_TEST(keys_are_read)
{
    const char *const some[] = {"schedule.name=wsd", "optimizer.lr=2e-3", "schedule.min_lr=1e-4",
                                "schedule.warmup=7", "train.steps=500"};
    const char *const all[] = {"schedule.name=cosine", "schedule.steps=50", "schedule.decay=9",
                               "train.steps=500"};
    struct tn_config *c = config_of(5, some);
    struct tn_schedule s;

    tn_schedule_read(c, &s);
    ck_assert_uint_eq(s.kind, TN_SCHEDULE_WSD);
    ck_assert_double_eq(s.lr, 2e-3);
    ck_assert_double_eq(s.min_lr, 1e-4);
    ck_assert_int_eq(s.warmup, 7);
    ck_assert_int_eq(s.steps, 500);
    ck_assert_int_eq(s.decay, 100);
    tn_config_free(c);
    c = config_of(4, all);
    tn_schedule_read(c, &s);
    ck_assert_uint_eq(s.kind, TN_SCHEDULE_COSINE);
    ck_assert_int_eq(s.steps, 50);
    ck_assert_int_eq(s.decay, 9);
    tn_config_free(c);
}
END_TEST

START_TEST(a_rate_that_would_rise_is_refused)
{
    const char *const bad[] = {"schedule.name=cosine", "optimizer.lr=1e-4", "schedule.min_lr=1e-3"};
    const char *const flat[] = {"schedule.name=constant", "optimizer.lr=1e-4", "schedule.min_lr=1e-3"};
    const char *const longer[] = {"schedule.name=wsd", "schedule.decay=200", "schedule.steps=100"};
    struct tn_config *c = config_of(3, bad);

    tn_schedule_check(c);
    assert_fails(tn_config_check(c), TN_ERR_CONFIG, "more than optimizer.lr = 0.0001");
    tn_config_free(c);
    c = config_of(3, flat);
    tn_schedule_check(c);
    assert_ok(tn_config_check(c));
    tn_config_free(c);
    c = config_of(3, longer);
    tn_schedule_check(c);
    assert_fails(tn_config_check(c), TN_ERR_CONFIG, "schedule.decay");
    tn_config_free(c);
}
END_TEST

TEST_MAIN("schedule", warmup_is_nanogpts, cosine_is_nanogpts, linear_is_a_line, wsd_is_flat_then_falls,
          a_warmup_may_be_longer_than_the_run, keys_are_read, a_rate_that_would_rise_is_refused)
