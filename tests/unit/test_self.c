/* test_self.c - the plugin self: collectives of one rank, and sends that meet their receives. */
#include <pthread.h>
#include <tenon/comm.h>
#include <time.h>

#include "plugin_file.h"

static const struct tn_comm_api *self;
static struct tn_comm *world;

static void setup(void)
{
    self = plugin_file("self", TN_COMM_ID);
    ck_assert_int_eq(self->open(0, 1, 1, &world), TN_OK);
}

static void teardown(void)
{
    self->close(world);
}

static tn_status run(const struct tn_transfer *t, uint32_t n)
{
    struct tn_request *r = NULL;
    tn_status s = self->start(world, t, n, NULL, &r);

    return s < 0 ? s : self->wait(r, 1);
}

START_TEST(opens_for_one_rank)
{
    struct tn_comm *c;
    const uint32_t zero = 0, one = 1;
    uint32_t score = 0;
    char why[64];

    ck_assert_int_lt(self->open(0, 2, 1, &c), 0);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "rank 0 of 2"));
    ck_assert_int_lt(self->open(1, 1, 1, &c), 0);
    ck_assert_int_lt(self->group(world, &one, 1, &c), 0);
    ck_assert_int_eq(self->group(world, &zero, 1, &c), TN_OK);
    self->close(c);
    ck_assert_int_eq(self->probe(&score, why, sizeof why), TN_OK);
    ck_assert_uint_eq(score, 10);
    ck_assert_str_eq(why, "one process");
}
END_TEST

/* Each collective with its count where that operation has it; one element behind stays untouched. */
START_TEST(copies)
{
    static const uint32_t dtype[] = {TN_F32, TN_BF16, TN_F16, TN_I32, TN_F64, TN_I64, TN_U8};
    static const size_t bytes[] = {4, 2, 2, 4, 8, 8, 1};
    const uint64_t three = 3;

    for (uint32_t op = TN_ALL_REDUCE; op <= TN_BROADCAST; op++)
        for (size_t d = 0; d < sizeof dtype / sizeof *dtype; d++) {
            unsigned char from[32], to[32];
            struct tn_transfer t = {.op = op, .dtype = dtype[d], .reduce = TN_SUM, .from = from, .to = to, .count = 3};
            for (size_t i = 0; i < sizeof from; i++)
                from[i] = (unsigned char)(i + 1), to[i] = 0xcc;
            if (op == TN_ALL_GATHER || op == TN_REDUCE_SCATTER || op == TN_ALL_TO_ALL) {
                t.counts = t.counts_in = &three;
                t.count = 0;
            }
            ck_assert_int_eq(run(&t, 1), TN_OK);
            ck_assert_mem_eq(to, from, 3 * bytes[d]);
            ck_assert_uint_eq(to[3 * bytes[d]], 0xcc);
            t.to = from;                         /* in place */
            ck_assert_int_eq(run(&t, 1), TN_OK);
            ck_assert_uint_eq(from[0], 1);
        }
}
END_TEST

START_TEST(sends_meet_receives)
{
    int32_t a[2] = {1, 2}, b[2] = {3, 4}, x[2] = {0}, y[2] = {0};
    const struct tn_transfer list[] = {
        {.op = TN_RECV, .dtype = TN_I32, .to = x, .count = 2},
        {.op = TN_SEND, .dtype = TN_I32, .from = a, .count = 2},
        {.op = TN_SEND, .dtype = TN_I32, .from = b, .count = 2},
        {.op = TN_RECV, .dtype = TN_I32, .to = y, .count = 2},
    };
    struct tn_request *first, *second;

    ck_assert_int_eq(run(list, 4), TN_OK);
    ck_assert_int_eq(x[1], 2);
    ck_assert_int_eq(y[1], 4);
    x[1] = 0;
    ck_assert_int_eq(self->start(world, &list[1], 1, NULL, &first), TN_OK);
    ck_assert_int_eq(self->wait(first, 0), TN_DECLINED);
    ck_assert_int_eq(self->start(world, &list[0], 1, NULL, &second), TN_OK);
    ck_assert_int_eq(self->wait(first, 0), TN_OK);
    ck_assert_int_eq(self->wait(second, 0), TN_OK);
    ck_assert_int_eq(x[1], 2);
    x[1] = y[1] = 0;                             /* two wait: the older one is met first */
    ck_assert_int_eq(self->start(world, &list[1], 2, NULL, &first), TN_OK);
    ck_assert_int_eq(run(&list[0], 1), TN_OK);
    ck_assert_int_eq(self->wait(first, 0), TN_DECLINED);
    ck_assert_int_eq(run(&list[3], 1), TN_OK);
    ck_assert_int_eq(self->wait(first, 0), TN_OK);
    ck_assert_int_eq(x[1], 2);
    ck_assert_int_eq(y[1], 4);
}
END_TEST

START_TEST(refuses_nonsense)
{
    int32_t a[4] = {0};
    const uint64_t one = 1, two = 2;
    struct tn_transfer t = {.op = 99, .dtype = TN_I32, .from = a, .to = a, .count = 1};
    const struct tn_transfer uneven[] = {
        {.op = TN_SEND, .dtype = TN_I32, .from = a, .count = 2},
        {.op = TN_RECV, .dtype = TN_I32, .to = a + 2, .count = 1},
    };

    ck_assert_int_lt(run(&t, 1), 0);
    t.op = TN_ALL_REDUCE;
    t.dtype = 99;
    ck_assert_int_lt(run(&t, 1), 0);
    t.dtype = TN_I32;
    t.op = TN_SEND;
    t.peer = 1;
    ck_assert_int_lt(run(&t, 1), 0);
    t = (struct tn_transfer){.op = TN_ALL_TO_ALL, .dtype = TN_I32, .from = a, .to = a, .counts = &one, .counts_in = &two};
    ck_assert_int_eq(run(&t, 1), TN_ERR_SHAPE);
    t = (struct tn_transfer){.op = TN_ALL_REDUCE, .dtype = TN_I32, .from = a, .to = a, .count = 1};
    ck_assert_int_lt(run(&t, 1), 0);             /* no reduction */
    t.reduce = TN_MIN;
    ck_assert_int_eq(run(&t, 1), TN_OK);         /* what was refused before it began kills nobody */
    t = (struct tn_transfer){.op = TN_BARRIER};
    ck_assert_int_eq(run(&t, 1), TN_OK);
    t = (struct tn_transfer){.op = TN_ALL_REDUCE, .dtype = TN_I32, .reduce = TN_SUM, .from = a, .to = a, .count = 1};
    ck_assert_int_eq(run(uneven, 2), TN_ERR_SHAPE);
    ck_assert_int_lt(run(&t, 1), 0);             /* what broke in the middle does */
}
END_TEST

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const int32_t word = 7;
static int32_t got;
static const struct tn_transfer lonely = {.op = TN_RECV, .dtype = TN_I32, .to = &got, .count = 1};
static const struct tn_transfer partner = {.op = TN_SEND, .dtype = TN_I32, .from = &word, .count = 1};

START_TEST(ends_a_wait_in_time)
{
    double begin = now();

    struct tn_request *r = NULL;
    ck_assert_int_eq(self->start(world, &lonely, 1, NULL, &r), TN_OK);
    ck_assert_int_eq(self->wait(r, 0.1), TN_ERR_TIMEOUT);
    ck_assert(now() - begin >= 0.1 && now() - begin < 5);
    ck_assert_int_lt(run(&partner, 1), 0);       /* dead after an error */
}
END_TEST

static void *help(void *arg)
{
    struct tn_request *r;

    nanosleep(&(struct timespec){0, 50000000}, NULL);
    if (arg)
        self->abort(world);
    else if (self->start(world, &partner, 1, NULL, &r) == TN_OK)
        self->wait(r, 5);
    return NULL;
}

START_TEST(is_woken_by_another_thread)
{
    struct tn_request *r = NULL;
    pthread_t thread;
    double begin = now();

    ck_assert_int_eq(self->start(world, &lonely, 1, NULL, &r), TN_OK);
    pthread_create(&thread, NULL, help, NULL);
    ck_assert_int_eq(self->wait(r, 30), TN_OK);
    pthread_join(thread, NULL);
    ck_assert_int_eq(got, 7);
    ck_assert_int_eq(self->start(world, &lonely, 1, NULL, &r), TN_OK);
    pthread_create(&thread, NULL, help, &got);
    ck_assert_int_eq(self->wait(r, 30), TN_ERR);
    pthread_join(thread, NULL);
    ck_assert(now() - begin < 10);
}
END_TEST

/* In one order and in the other, and both after the world itself is closed. */
START_TEST(world_and_groups_end_together)
{
    struct tn_comm *own, *group;
    struct tn_request *r = NULL;
    pthread_t thread;
    const uint32_t zero = 0;
    const struct tn_transfer barrier = {.op = TN_BARRIER};
    double begin = now();

    ck_assert_int_eq(self->group(world, &zero, 1, &group), TN_OK);
    ck_assert_int_eq(self->start(group, &lonely, 1, NULL, &r), TN_OK);
    pthread_create(&thread, NULL, help, &got);   /* aborts the world */
    ck_assert_int_eq(self->wait(r, 30), TN_ERR);
    pthread_join(thread, NULL);
    ck_assert(now() - begin < 10);
    ck_assert_int_lt(self->start(group, &barrier, 1, NULL, &r), 0);
    self->close(group);

    ck_assert_int_eq(self->open(0, 1, 1, &own), TN_OK);
    ck_assert_int_eq(self->group(own, &zero, 1, &group), TN_OK);
    self->abort(group);
    ck_assert_int_lt(self->start(own, &barrier, 1, NULL, &r), 0);
    self->close(own);
    self->close(group);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("self");
    TCase *c = tcase_create("all");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, opens_for_one_rank);
    tcase_add_test(c, copies);
    tcase_add_test(c, sends_meet_receives);
    tcase_add_test(c, refuses_nonsense);
    tcase_add_test(c, ends_a_wait_in_time);
    tcase_add_test(c, is_woken_by_another_thread);
    tcase_add_test(c, world_and_groups_end_together);
    suite_add_tcase(s, c);
    return plugin_suite_run(s);
}
