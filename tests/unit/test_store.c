/* test_store.c - the store of a run: keys, waits, limits, strangers, and who gets named when a rank goes. */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "world/wire.h"

#define RANKS 4u

struct heard { /* by one client */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t verdicts, n;
    struct tn_report list[TN_VERDICT_MOST];
    double at;
    const char *phase;
    uint64_t sequence;
    int slow; /* seconds before it describes itself */
};

static struct tn_store_server *server;
static struct tn_store_client *client[RANKS];
static struct heard heard[RANKS];
static struct tn_store_job job;
static uint32_t port;

static void describe(void *arg, struct tn_report *out)
{
    struct heard *h = arg;

    sleep((unsigned)h->slow);
    snprintf(out->phase, sizeof out->phase, "%s", h->phase);
    out->sequence = h->sequence;
}

static void verdict(void *arg, const struct tn_report *list, uint32_t n)
{
    struct heard *h = arg;

    pthread_mutex_lock(&h->lock);
    h->verdicts++;
    h->n = n;
    memcpy(h->list, list, n * sizeof *list);
    h->at = tn_net_now();
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

/* Waits for the verdict; fails the test after 3 s. */
static const struct tn_report *judged(uint32_t rank)
{
    struct heard *h = &heard[rank];
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3;
    pthread_mutex_lock(&h->lock);
    while (!h->verdicts)
        ck_assert_msg(!pthread_cond_timedwait(&h->changed, &h->lock, &until), "rank %u hears no verdict",
                      rank);
    pthread_mutex_unlock(&h->lock);
    ck_assert_uint_ge(h->n, 1);
    return h->list;
}

static tn_status come_as(uint32_t rank, const struct tn_store_job *as, struct tn_store_client **out)
{
    struct tn_store_events events = {.arg = &heard[rank % RANKS], .describe = describe, .verdict = verdict};
    struct tn_net_address to;

    ck_assert_int_eq(tn_net_parse("127.0.0.1", port, &to), TN_OK);
    return tn_store_connect(&to, as, rank, &events, tn_net_now() + 5, out);
}

static void come(uint32_t rank)
{
    ck_assert_msg(come_as(rank, &job, &client[rank]) == TN_OK, "%s", tn_error_text());
}

static void begin(void)
{
    int fd;

    job = (struct tn_store_job){.size = RANKS, .nonce = 77, .job = "test"};
    for (uint32_t r = 0; r < RANKS; r++) {
        heard[r] = (struct heard){.phase = "step", .sequence = 10 + r};
        pthread_mutex_init(&heard[r].lock, NULL);
        pthread_cond_init(&heard[r].changed, NULL);
    }
    ck_assert_msg(tn_net_listen("127.0.0.1", 0, &port, &fd) == TN_OK, "%s", tn_error_text());
    ck_assert_int_eq(tn_store_serve(fd, &job, &server), TN_OK);
    for (uint32_t r = 0; r < RANKS; r++)
        come(r);
}

static void end(void)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        tn_store_disconnect(client[r]);
        client[r] = NULL;
    }
    tn_store_end(server, 1);
}

/* --- keys */
START_TEST(keys)
{
    char key[64], value[64], want[64];
    uint64_t bytes;

    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "key/%d", i);
        snprintf(value, sizeof value, "value of %d", i);
        ck_assert_int_eq(tn_store_set(client[i % 4], key, value, strlen(value)), TN_OK);
    }
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "key/%d", i);
        snprintf(want, sizeof want, "value of %d", i);
        bytes = sizeof value;
        ck_assert_int_eq(tn_store_get(client[(i + 1) % 4], key, value, &bytes, 0), TN_OK);
        ck_assert_uint_eq(bytes, strlen(want));
        ck_assert_mem_eq(value, want, bytes);
    }
    ck_assert_int_eq(tn_store_set(client[0], "key/7", "other", 5), TN_OK);
    bytes = 4;
    ck_assert_int_eq(tn_store_get(client[1], "key/7", value, &bytes, 0), TN_ERR_SHAPE);
    ck_assert_uint_eq(bytes, 5);
    ck_assert_int_eq(tn_store_set(client[0], "empty", NULL, 0), TN_OK);
    bytes = 0;
    ck_assert_int_eq(tn_store_get(client[2], "empty", NULL, &bytes, 0), TN_OK);
    ck_assert_int_eq(tn_store_check(client[2], "empty"), TN_OK);
    ck_assert_int_eq(tn_store_check(client[2], "absent"), TN_DECLINED);
    ck_assert_int_lt(tn_store_set(client[0], "", "x", 1), 0);
    char longest[TN_STORE_KEY + 1];
    memset(longest, 'k', sizeof longest);
    longest[TN_STORE_KEY] = 0;
    ck_assert_int_lt(tn_store_set(client[0], longest, "x", 1), 0);
    longest[TN_STORE_KEY - 1] = 0;
    ck_assert_int_eq(tn_store_set(client[0], longest, "x", 1), TN_OK);
    ck_assert_int_eq(tn_store_check(client[1], longest), TN_OK);
}
END_TEST

START_TEST(large)
{
    size_t most = TN_STORE_VALUE;
    char *value = malloc(most + 1), *back;
    uint64_t bytes;

    for (size_t i = 0; i < most; i++)
        value[i] = (char)(i * 31 >> 3);
    ck_assert_int_eq(tn_store_set(client[0], "large", value, most), TN_OK);
    ck_assert_int_eq(tn_store_take(client[3], "large", &back, &bytes, 5), TN_OK);
    ck_assert_uint_eq(bytes, most);
    ck_assert(!memcmp(back, value, most));
    ck_assert_int_lt(tn_store_set(client[0], "larger", value, most + 1), 0);
    free(back);
    free(value);
}
END_TEST

static void *set_later(void *arg)
{
    usleep(100000);
    ck_assert_int_eq(tn_store_set(arg, "late", "now", 3), TN_OK);
    return NULL;
}

START_TEST(waits)
{
    char value[8];
    uint64_t bytes = sizeof value;
    double t = tn_net_now();
    pthread_t thread;

    ck_assert_int_eq(tn_store_get(client[1], "never", value, &bytes, 0.2), TN_ERR_TIMEOUT);
    ck_assert_double_ge(tn_net_now() - t, 0.19);
    ck_assert_double_le(tn_net_now() - t, 1.5);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "never"));
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "0.2 s"));
    pthread_create(&thread, NULL, set_later, client[2]);
    bytes = sizeof value;
    ck_assert_int_eq(tn_store_get(client[1], "late", value, &bytes, 1e18), TN_OK);
    ck_assert_mem_eq(value, "now", 3);
    pthread_join(thread, NULL);
}
END_TEST

static void *count(void *arg)
{
    int64_t sum;

    for (int i = 0; i < 250; i++)
        ck_assert_int_eq(tn_store_add(arg, "counter", 2, &sum), TN_OK);
    return NULL;
}

START_TEST(counter)
{
    pthread_t thread[8];
    int64_t sum;

    for (int i = 0; i < 8; i++) /* two threads on each client */
        pthread_create(&thread[i], NULL, count, client[i % 4]);
    for (int i = 0; i < 8; i++)
        pthread_join(thread[i], NULL);
    ck_assert_int_eq(tn_store_add(client[0], "counter", -1, &sum), TN_OK);
    ck_assert_int_eq(sum, 3999);
    ck_assert_int_eq(tn_store_set(client[0], "text", "abc", 3), TN_OK);
    ck_assert_int_eq(tn_store_add(client[0], "text", 1, &sum), TN_ERR_SHAPE);
}
END_TEST

/* --- strangers */
START_TEST(handshake)
{
    struct tn_store_job other = job;
    struct tn_store_client *c;

    other.nonce = 78;
    ck_assert_int_eq(come_as(0, &other, &c), TN_DECLINED);
    other = job;
    snprintf(other.job, sizeof other.job, "test-1");
    ck_assert_int_eq(come_as(0, &other, &c), TN_DECLINED);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "\"test\""));
    other = job;
    other.size = 5;
    ck_assert_int_eq(come_as(4, &other, &c), TN_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "rank 4 of 5"));
    ck_assert_int_eq(come_as(2, &job, &c), TN_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "two processes have the same rank"));
    ck_assert_int_eq(tn_store_set(client[0], "still", "here", 4), TN_OK);
}
END_TEST

static int stranger(void)
{
    struct tn_net_address to;
    int fd;

    ck_assert_int_eq(tn_net_parse("127.0.0.1", port, &to), TN_OK);
    ck_assert_msg(tn_net_connect(&to, tn_net_now() + 2, &fd) == TN_OK, "%s", tn_error_text());
    return fd;
}

/* Until the server hangs up; fails the test after 4 s. */
static void hung_up(int fd)
{
    double until = tn_net_now() + 4;
    char byte;

    while (tn_net_receive(fd, &byte, 1, until) == TN_OK)
        ;
    ck_assert_msg(tn_net_now() < until, "the server keeps a stranger");
    tn_net_close(fd);
}

START_TEST(noise)
{
    unsigned char bytes[4096];
    unsigned seed = 1;

    for (int round = 0; round < 60; round++) {
        int fd = stranger();
        size_t n = 1 + (size_t)rand_r(&seed) % sizeof bytes;

        for (size_t i = 0; i < n; i++)
            bytes[i] = (unsigned char)rand_r(&seed);
        if (tn_net_send(fd, bytes, n, tn_net_now() + 1) == TN_OK && n >= sizeof(struct tn_wire_hello))
            hung_up(fd);
        else
            tn_net_close(fd);
    }
    ck_assert_int_eq(tn_store_set(client[3], "still", "here", 4), TN_OK);
    ck_assert_uint_eq(heard[0].verdicts, 0);
}
END_TEST

/* Half a handshake, or none: for a while, and nobody waits for it. */
START_TEST(slow_strangers)
{
    struct tn_wire_hello h = {.magic = TN_WIRE_MAGIC, .order = TN_WIRE_ORDER, .rank = 1, .job = job};
    double t = tn_net_now();
    int silent = stranger(), half = stranger();

    ck_assert_int_eq(tn_net_send(half, &h, sizeof h / 2, t + 1), TN_OK);
    ck_assert_int_eq(tn_store_set(client[3], "still", "here", 4), TN_OK);
    ck_assert_double_le(tn_net_now() - t, 1);
    hung_up(silent);
    hung_up(half);
}
END_TEST

START_TEST(many_strangers)
{
    int fd[300];

    for (int i = 0; i < 300; i++)
        fd[i] = stranger();
    ck_assert_int_eq(tn_store_set(client[0], "still", "here", 4), TN_OK);
    for (int i = 0; i < 300; i++)
        tn_net_close(fd[i]);
    ck_assert_uint_eq(heard[0].verdicts, 0);
}
END_TEST

/* A rank that shakes hands, and then sends frames of every kind that are wrong in one way each. */
static int as_rank(uint32_t rank)
{
    struct tn_wire_hello h = {.magic = TN_WIRE_MAGIC, .order = TN_WIRE_ORDER, .rank = rank, .job = job};
    struct tn_wire_welcome w;
    char magic[8];
    int fd = stranger();

    ck_assert_int_eq(tn_net_send(fd, &h, sizeof h, tn_net_now() + 1), TN_OK);
    ck_assert_int_eq(tn_net_receive(fd, magic, 8, tn_net_now() + 1), TN_OK);
    ck_assert_int_eq(tn_net_receive(fd, &w, sizeof w, tn_net_now() + 1), TN_OK);
    ck_assert_uint_eq(w.answer, TN_WIRE_WELCOME);
    return fd;
}

static const struct tn_wire_head wrong[] = {
    {.type = 0},
    {.type = 99},
    {.type = TN_WIRE_ANSWER},
    {.type = TN_WIRE_SET, .key_bytes = 0, .bytes = 4},
    {.type = TN_WIRE_SET, .key_bytes = TN_STORE_KEY + 1},
    {.type = TN_WIRE_SET, .key_bytes = UINT32_MAX, .bytes = UINT32_MAX},
    {.type = TN_WIRE_SET, .key_bytes = 4, .bytes = TN_STORE_VALUE + 1},
    {.type = TN_WIRE_GET, .key_bytes = 8}, /* whose bytes have no 0 at the end */
    {.type = TN_WIRE_REPORT, .bytes = 8},
    {.type = TN_WIRE_ACCUSE, .bytes = 0},
    {.type = TN_WIRE_GOODBYE, .key_bytes = 4},
};

START_TEST(broken_frames)
{
    char body[8];
    int fd;

    tn_store_disconnect(client[3]);
    client[3] = NULL; /* its place is taken, so a new run begins */
    end();
    heard[1].verdicts = 0;
    ck_assert_int_eq(tn_net_listen("127.0.0.1", 0, &port, &fd), TN_OK);
    ck_assert_int_eq(tn_store_serve(fd, &job, &server), TN_OK);
    fd = as_rank(3);
    memset(body, 'x', sizeof body);
    tn_net_send(fd, &wrong[_i], sizeof wrong[_i], tn_net_now() + 1);
    tn_net_send(fd, body, sizeof body, tn_net_now() + 1);
    hung_up(fd);
    come(1); /* lives, and tells the newcomer what happened */
    const struct tn_report *r = judged(1);
    ck_assert_uint_eq(r->rank, 3);
    ck_assert_uint_eq(r->state, TN_RANK_DEAD);
    ck_assert_ptr_nonnull(strstr(r->text, "protocol"));
}
END_TEST

/* --- failures */
static void *wait_long(void *arg)
{
    char value[8];
    uint64_t bytes = sizeof value;
    double *took = malloc(sizeof *took), t = tn_net_now();

    ck_assert_int_eq(tn_store_get(arg, "never", value, &bytes, 60), TN_ERR);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "rank 2 died"));
    *took = tn_net_now() - t;
    return took;
}

START_TEST(death)
{
    pthread_t thread;
    void *took;
    double t;

    pthread_create(&thread, NULL, wait_long, client[1]);
    usleep(50000);
    t = tn_net_now();
    tn_store_disconnect(client[2]);
    client[2] = NULL;
    for (uint32_t r = 0; r < RANKS; r++)
        if (r != 2) {
            const struct tn_report *list = judged(r);
            ck_assert_uint_eq(list[0].rank, 2);
            ck_assert_uint_eq(list[0].state, TN_RANK_DEAD);
            ck_assert_uint_eq(heard[r].n, RANKS);
            ck_assert_double_le(heard[r].at - t, 0.2);
        }
    pthread_join(thread, &took);
    ck_assert_double_le(*(double *)took, 1);
    free(took);
    t = tn_net_now(); /* a verdict is told before requests end by it */
    while (tn_store_set(client[0], "after", "x", 1) == TN_OK && tn_net_now() - t < 1)
        usleep(1000);
    ck_assert_int_lt(tn_store_set(client[0], "after", "x", 1), 0);
    ck_assert_uint_eq(heard[0].list[1].rank, 0); /* the slowest of the living comes next */
    ck_assert_uint_eq(heard[0].list[1].sequence, 10);
    ck_assert_str_eq(heard[0].list[1].phase, "step");
}
END_TEST

/* One that is connected and does not answer: as a stopped process. */
START_TEST(silence)
{
    struct tn_report r = {
        .rank = 1, .failed = 1, .peer = 3, .sequence = 11, .phase = "step", .collective = "all_reduce"};
    double t = tn_net_now();

    heard[3].slow = 2;
    ck_assert_int_eq(tn_store_accuse(client[1], &r), TN_OK);
    const struct tn_report *list = judged(0);
    ck_assert_double_ge(heard[0].at - t, TN_STORE_TRIAL - 0.05);
    ck_assert_double_le(heard[0].at - t, TN_STORE_TRIAL + 0.4);
    ck_assert_uint_eq(list[0].rank, 3);
    ck_assert_uint_eq(list[0].state, TN_RANK_SILENT);
    ck_assert_uint_eq(list[1].rank, 1); /* then the one that asked */
    ck_assert_uint_eq(list[1].failed, 1);
    ck_assert_str_eq(list[1].collective, "all_reduce");
}
END_TEST

START_TEST(own_trouble)
{
    struct tn_report r = {
        .rank = 1, .failed = 1, .peer = TN_NOBODY, .phase = "load", .text = "the disk is full"};

    ck_assert_int_eq(tn_store_accuse(client[1], &r), TN_OK);
    const struct tn_report *list = judged(3);
    ck_assert_uint_eq(list[0].rank, 1);
    ck_assert_uint_eq(list[0].state, TN_RANK_ALIVE);
    ck_assert_str_eq(list[0].text, "the disk is full");
    ck_assert_uint_eq(heard[3].verdicts, 1);
}
END_TEST

static void *goodbye(void *arg)
{
    ck_assert_msg(tn_store_goodbye(arg, "", 5) == TN_OK, "%s", tn_error_text());
    return NULL;
}

START_TEST(orderly)
{
    pthread_t thread[RANKS];

    ck_assert_int_eq(tn_store_goodbye(client[0], "", 0.1), TN_ERR_TIMEOUT);
    for (uint32_t r = 1; r < RANKS; r++)
        pthread_create(&thread[r], NULL, goodbye, client[r]);
    for (uint32_t r = 1; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    for (uint32_t r = 0; r < RANKS; r++) {
        tn_store_disconnect(client[r]);
        client[r] = NULL;
    }
    for (uint32_t r = 0; r < RANKS; r++)
        ck_assert_uint_eq(heard[r].verdicts, 0);
}
END_TEST

/* The process with the server is gone. */
START_TEST(server_dies)
{
    int fd[2], status;
    pid_t pid;

    end();
    ck_assert_int_eq(pipe(fd), 0);
    pid = fork();
    if (!pid) {
        int listener;
        if (tn_net_listen("127.0.0.1", 0, &port, &listener) || tn_store_serve(listener, &job, &server) ||
            write(fd[1], &port, sizeof port) != sizeof port)
            _exit(1);
        for (;;)
            pause();
    }
    ck_assert_int_eq(read(fd[0], &port, sizeof port), sizeof port);
    server = NULL;
    come(1);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    const struct tn_report *list = judged(1);
    ck_assert_uint_eq(list[0].rank, 0);
    ck_assert_uint_eq(list[0].state, TN_RANK_DEAD);
    close(fd[0]);
    close(fd[1]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store");
    TCase *t = tcase_create("store");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_add_checked_fixture(t, begin, end);
    tcase_set_timeout(t, 30);
    tcase_add_test(t, keys);
    tcase_add_test(t, large);
    tcase_add_test(t, waits);
    tcase_add_test(t, counter);
    tcase_add_test(t, handshake);
    tcase_add_test(t, noise);
    tcase_add_test(t, slow_strangers);
    tcase_add_test(t, many_strangers);
    tcase_add_loop_test(t, broken_frames, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(t, death);
    tcase_add_test(t, silence);
    tcase_add_test(t, own_trouble);
    tcase_add_test(t, orderly);
    tcase_add_test(t, server_dies);
    suite_add_tcase(s, t);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
