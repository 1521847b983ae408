/* test_net.c - addresses, connections with deadlines, interfaces. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/time.h>
#include <signal.h>
#include <unistd.h>

#include "base/status.h"
#include "world/net.h"

static struct tn_net_address to;
static int listener, near_end, far_end;

static void pair(void)
{
    uint32_t port;

    ck_assert_msg(tn_net_listen("127.0.0.1", 0, &port, &listener) == TN_OK, "%s", tn_error_text());
    ck_assert_uint_gt(port, 0);
    ck_assert_int_eq(tn_net_parse("127.0.0.1", port, &to), TN_OK);
    ck_assert_msg(tn_net_connect(&to, tn_net_now() + 2, &near_end) == TN_OK, "%s", tn_error_text());
    while (tn_net_accept(listener, &far_end) == TN_DECLINED)
        usleep(1000);
}

static void unpair(void)
{
    tn_net_close(near_end);
    tn_net_close(far_end);
    tn_net_close(listener);
}

START_TEST(addresses)
{
    static const char *const bad[] = {"",          "localhost", "1.2.3",       "1.2.3.4.5",
                                      "256.1.1.1", "fd00:::2",  "10.0.0.1:80", " 10.0.0.1"};
    struct tn_net_address a, list[4];
    uint32_t n;

    ck_assert_int_eq(tn_net_parse("10.1.2.3", 80, &a), TN_OK);
    ck_assert_str_eq(a.text, "10.1.2.3");
    ck_assert_uint_eq(a.port, 80);
    ck_assert(!tn_net_is_loopback(&a));
    ck_assert_int_eq(tn_net_parse("fd00::2", 65535, &a), TN_OK);
    ck_assert_str_eq(a.text, "fd00::2");
    ck_assert_int_eq(tn_net_parse("127.0.1.1", 0, &a), TN_OK);
    ck_assert(tn_net_is_loopback(&a));
    ck_assert_int_eq(tn_net_parse("::1", 0, &a), TN_OK);
    ck_assert(tn_net_is_loopback(&a));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(tn_net_parse(bad[i], 1, &a) < 0, "accepted: \"%s\"", bad[i]);
    ck_assert_int_lt(tn_net_parse("10.0.0.1", 65536, &a), 0);
    ck_assert_int_eq(tn_net_resolve("localhost", 9, 4, list, &n), TN_OK);
    ck_assert_uint_ge(n, 1);
    ck_assert(tn_net_is_loopback(&list[0]));
    ck_assert_uint_eq(list[0].port, 9);
    ck_assert_int_lt(tn_net_resolve("no-such-host.invalid", 9, 4, list, &n), 0);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "no-such-host.invalid"));
}
END_TEST

START_TEST(busy_port)
{
    uint32_t bound;
    int fd;

    ck_assert_int_eq(tn_net_listen("127.0.0.1", to.port, &bound, &fd), TN_ERR_IO);
    ck_assert_int_eq(fd, -1);
    char want[40];
    snprintf(want, sizeof want, "(errno %d)", EADDRINUSE);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), want));
    snprintf(want, sizeof want, "port %u", to.port);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), want));
}
END_TEST

START_TEST(nobody)
{
    struct tn_net_address a = to;
    int fd;
    double t = tn_net_now();

    tn_net_close(listener);
    listener = -1;
    ck_assert_int_eq(tn_net_connect(&a, t + 5, &fd), TN_ERR_IO);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "refused"));
    ck_assert_int_eq(fd, -1);
    ck_assert_double_le(tn_net_now() - t, 1);
}
END_TEST

static void *drip(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(tn_net_send(far_end, "ab", 2, tn_net_now() + 1), TN_OK);
        usleep(2000);
    }
    return NULL;
}

START_TEST(short_reads)
{
    char got[40];
    pthread_t thread;

    pthread_create(&thread, NULL, drip, NULL);
    ck_assert_int_eq(tn_net_receive(near_end, got, sizeof got, tn_net_now() + 5), TN_OK);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < sizeof got; i++)
        ck_assert_int_eq(got[i], "ab"[i % 2]);
}
END_TEST

static void on_alarm(int signal)
{
    (void)signal;
}

/* A wait keeps its deadline, signals or not. */
START_TEST(deadline)
{
    struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    struct sigaction quiet = {.sa_handler = on_alarm};
    double t = tn_net_now();
    char byte;

    sigaction(SIGALRM, &quiet, NULL); /* without SA_RESTART */
    setitimer(ITIMER_REAL, &often, NULL);
    ck_assert_int_eq(tn_net_receive(near_end, &byte, 1, t + 0.3), TN_ERR_TIMEOUT);
    setitimer(ITIMER_REAL, &never, NULL);
    ck_assert_double_ge(tn_net_now() - t, 0.29);
    ck_assert_double_le(tn_net_now() - t, 1.3);
    ck_assert_int_eq(tn_net_receive(near_end, &byte, 1, t - 5), TN_ERR_TIMEOUT);
}
END_TEST

/* Nobody reads: the send ends at its deadline. Somebody left: an error, and no SIGPIPE. */
START_TEST(full_and_gone)
{
    static char block[1 << 20];
    double t = tn_net_now();
    tn_status s = TN_OK;

    while (s == TN_OK)
        s = tn_net_send(near_end, block, sizeof block, t + 0.3);
    ck_assert_int_eq(s, TN_ERR_TIMEOUT);
    ck_assert_double_le(tn_net_now() - t, 1.3);
    tn_net_close(far_end);
    far_end = -1;
    for (int i = 0; i < 3; i++)
        s = tn_net_send(near_end, block, sizeof block, tn_net_now() + 0.5);
    ck_assert_int_eq(s, TN_ERR_IO);
}
END_TEST

START_TEST(closed)
{
    char byte;

    tn_net_close(far_end);
    far_end = -1;
    ck_assert_int_eq(tn_net_receive(near_end, &byte, 1, tn_net_now() + 2), TN_ERR_IO);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "closed"));
}
END_TEST

START_TEST(both_families)
{
    struct tn_net_address a;
    uint32_t port;
    int all, fd, peer;

    ck_assert_msg(tn_net_listen(NULL, 0, &port, &all) == TN_OK, "%s", tn_error_text());
    ck_assert_int_eq(tn_net_parse("127.0.0.1", port, &a), TN_OK);
    ck_assert_msg(tn_net_connect(&a, tn_net_now() + 2, &fd) == TN_OK, "%s", tn_error_text());
    while (tn_net_accept(all, &peer) == TN_DECLINED)
        usleep(1000);
    ck_assert_int_eq(tn_net_far(peer, &a), TN_OK);
    ck_assert_str_eq(a.text, "127.0.0.1"); /* not ::ffff:127.0.0.1 */
    ck_assert_int_eq(tn_net_near(peer, &a), TN_OK);
    ck_assert_uint_eq(a.port, port);
    tn_net_close(fd);
    tn_net_close(peer);
    tn_net_close(all);
}
END_TEST

START_TEST(interfaces)
{
    struct tn_net_iface list[64], one;
    uint32_t n = tn_net_ifaces(64, list);
    char name[IF_NAMESIZE];
    int loopback = 0;

    ck_assert_uint_ge(n, 1);
    for (uint32_t i = 0; i < n; i++) { /* loopback last */
        ck_assert(!loopback || tn_net_is_loopback(&list[i].address));
        loopback |= tn_net_is_loopback(&list[i].address);
    }
    ck_assert(loopback);
    ck_assert_int_eq(tn_net_iface("lo", &one), TN_OK);
    ck_assert(tn_net_is_loopback(&one.address));
    ck_assert_int_eq(tn_net_iface("doesnotexist", &one), TN_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "doesnotexist"));
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "lo (127.0.0.1)"));
    ck_assert_int_eq(tn_net_route(&to, &one), TN_OK);
    ck_assert_str_eq(one.address.text, "127.0.0.1");
    tn_net_iface_name(&one.address, name);
    ck_assert_str_eq(name, "lo");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("net");
    TCase *t = tcase_create("net");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_add_checked_fixture(t, pair, unpair);
    tcase_set_timeout(t, 20);
    tcase_add_test(t, addresses);
    tcase_add_test(t, busy_port);
    tcase_add_test(t, nobody);
    tcase_add_test(t, short_reads);
    tcase_add_test(t, deadline);
    tcase_add_test(t, full_and_gone);
    tcase_add_test(t, closed);
    tcase_add_test(t, both_families);
    tcase_add_test(t, interfaces);
    suite_add_tcase(s, t);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
