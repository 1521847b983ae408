/* test_pool.c - ranges cover 0..n once, whatever n, grain and threads; teams meet; nesting and idling. */
#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/pool.h"
#include "base/status.h"

#define MOST 5000

static _Atomic int touched[MOST];
static _Atomic int ranges, wrong;
static int64_t grain_now, n_now;

static void touch(void *arg, int64_t lo, int64_t hi)
{
    (void)arg;
    atomic_fetch_add(&ranges, 1);
    if (lo % grain_now || (hi != n_now && hi % grain_now) || (hi - lo < grain_now && hi - lo != n_now))
        atomic_fetch_add(&wrong, 1);
    for (int64_t i = lo; i < hi; i++)
        atomic_fetch_add(&touched[i], 1);
}

static void covers(int64_t n, int64_t grain)
{
    memset(touched, 0, sizeof touched);
    ranges = wrong = 0;
    grain_now = grain, n_now = n;
    tn_pool_parallel(n, grain, touch, NULL);
    for (int i = 0; i < MOST; i++)
        wrong += touched[i] != (i < n);
    ck_assert_int_eq(wrong, 0);
    ck_assert_int_le(ranges, (int)tn_pool_threads());
}

START_TEST(covers_every_range_once)
{
    static const int64_t n[] = {0, 1, 2, 3, 7, 64, 65, 997, 4999}, grain[] = {1, 2, 3, 64, 1000, 10000};

    if (_i)
        ck_assert_int_eq(tn_pool_start((uint32_t)_i), TN_OK);
    ck_assert_uint_eq(tn_pool_threads(), _i ? (uint32_t)_i : 1);
    for (int round = 0; round < 5; round++)
        for (size_t i = 0; i < sizeof n / sizeof *n; i++)
            for (size_t k = 0; k < sizeof grain / sizeof *grain; k++)
                covers(n[i], grain[k]);
    tn_pool_parallel(-5, 1, touch, NULL);
    tn_pool_stop();
    ck_assert_uint_eq(tn_pool_threads(), 1);
}
END_TEST

START_TEST(many_small_jobs)
{
    tn_pool_start(3);
    grain_now = 1, n_now = 3;
    memset(touched, 0, sizeof touched);
    for (int i = 0; i < 5000; i++)
        tn_pool_parallel(3, 1, touch, NULL);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(touched[i], 5000);
    tn_pool_stop();
}
END_TEST

/* Plain memory: that the barrier orders it is what the thread sanitizer checks here. */
static int place[8][64];

static void relay(void *arg, uint32_t thread, uint32_t threads)
{
    (void)arg;
    for (int round = 1; round < 64; round++) {
        place[thread][round] = place[(thread + 1) % threads][round - 1] + 1;
        tn_pool_barrier();
    }
}

START_TEST(teams_meet_at_the_barrier)
{
    tn_pool_start((uint32_t)_i);
    for (int repeat = 0; repeat < 50; repeat++) {
        memset(place, 0, sizeof place);
        tn_pool_team(relay, NULL);
        for (int t = 0; t < _i; t++)
            ck_assert_int_eq(place[t][63], 63);
    }
    tn_pool_stop();
}
END_TEST

static _Atomic int inner_calls, inner_sum;

static void inner_range(void *arg, int64_t lo, int64_t hi)
{
    (void)arg;
    atomic_fetch_add(&inner_calls, 1);
    atomic_fetch_add(&inner_sum, (int)(hi - lo));
}

static void inner_team(void *arg, uint32_t thread, uint32_t threads)
{
    (void)arg;
    tn_pool_barrier();                           /* alone: meets nobody */
    if (thread == 0 && threads == 1)
        atomic_fetch_add(&inner_calls, 1);
}

static void outer_team(void *arg, uint32_t thread, uint32_t threads)
{
    (void)arg, (void)thread, (void)threads;
    tn_pool_parallel(100, 1, inner_range, NULL);
    tn_pool_team(inner_team, NULL);
    tn_pool_barrier();
}

static void outer_range(void *arg, int64_t lo, int64_t hi)
{
    (void)arg;
    for (int64_t i = lo; i < hi; i++) {
        tn_pool_parallel(100, 1, inner_range, NULL);
        tn_pool_team(inner_team, NULL);
        tn_pool_barrier();
    }
}

START_TEST(nested_calls_run_alone)
{
    tn_pool_start(3);
    tn_pool_team(outer_team, NULL);
    ck_assert_int_eq(inner_calls, 6);
    ck_assert_int_eq(inner_sum, 300);
    inner_calls = inner_sum = 0;
    tn_pool_parallel(7, 1, outer_range, NULL);
    ck_assert_int_eq(inner_calls, 14);
    ck_assert_int_eq(inner_sum, 700);
    tn_pool_stop();
}
END_TEST

/* Start and stop again; a second start without a stop says so. */
START_TEST(starts_once)
{
    ck_assert_int_eq(tn_pool_start(2), TN_OK);
    ck_assert_int_lt(tn_pool_start(2), 0);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "already started"));
    tn_pool_stop();
    tn_pool_stop();
    ck_assert_int_eq(tn_pool_start(0), TN_OK);
    ck_assert_uint_eq(tn_pool_threads(), tn_cpus());
    tn_pool_stop();
    ck_assert_int_eq(tn_pool_start(100000), TN_ERR_CONFIG);
}
END_TEST

START_TEST(idle_pool_burns_nothing)
{
    struct timespec while_idle = {0, 200000000};
    struct rusage before, after;

    tn_pool_start(4);
    tn_pool_team(inner_team, NULL);
    getrusage(RUSAGE_SELF, &before);
    nanosleep(&while_idle, NULL);
    getrusage(RUSAGE_SELF, &after);
    tn_pool_stop();
    ck_assert_int_lt((after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 + after.ru_utime.tv_usec -
                         before.ru_utime.tv_usec,
                     50000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *t = tcase_create("pool");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, covers_every_range_once, 0, 6);
    tcase_add_test(t, many_small_jobs);
    tcase_add_loop_test(t, teams_meet_at_the_barrier, 1, 5);
    tcase_add_test(t, nested_calls_run_alone);
    tcase_add_test(t, starts_once);
    tcase_add_test(t, idle_pool_burns_nothing);
    suite_add_tcase(suite, t);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
