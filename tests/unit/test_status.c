/* test_status.c - errors: one sentence a thread, of any length; exit codes; the log. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/status.h"

static void setup(void)
{
    tn_log_level(TN_LOG_INFO);
    tn_error_clear();
}

START_TEST(says_last_sentence)
{
    ck_assert_str_eq(tn_error_text(), "");
    ck_assert_int_eq(tn_error_status(), TN_OK);
    ck_assert_int_eq(tn_error(TN_ERR_SHAPE, "width %d vs %d", 3, 4), TN_ERR_SHAPE);
    ck_assert_int_eq(tn_error(TN_ERR_CONFIG, "second %s", "one"), TN_ERR_CONFIG);
    ck_assert_str_eq(tn_error_text(), "second one");
    ck_assert_int_eq(tn_error_status(), TN_ERR_CONFIG);
    tn_error_hush();
    ck_assert(tn_error_is_hushed());
    tn_error(TN_ERR, "third");                   /* a new one is nobody else's */
    ck_assert(!tn_error_is_hushed());
    tn_error_hush();
    tn_error_clear();
    ck_assert(!tn_error_is_hushed());
    ck_assert_str_eq(tn_error_text(), "");
    tn_error_hush();                             /* of nothing */
    ck_assert(!tn_error_is_hushed());
}
END_TEST

START_TEST(keeps_long_texts_whole)
{
    static char text[5001];

    for (size_t n = 700; n < 5000; n += 700) {
        memset(text, 'a' + (int)(n / 700), n);
        text[n] = 0;
        ck_assert_int_eq(tn_error_long(TN_ERR_CONFIG, text), TN_ERR_CONFIG);
        ck_assert_str_eq(tn_error_text(), text);
    }
    ck_assert_int_eq(tn_error_long(TN_ERR, tn_error_text()), TN_ERR);        /* its own text */
    ck_assert_str_eq(tn_error_text(), text);
    tn_error(TN_ERR, "short");
    ck_assert_str_eq(tn_error_text(), "short");
    tn_error_long(TN_ERR, tn_error_text());
    ck_assert_str_eq(tn_error_text(), "short");
}
END_TEST

START_TEST(debug_names_the_place)
{
    char text[64];

    tn_log_level(TN_LOG_DEBUG);
    tn_error(TN_ERR, "here"), snprintf(text, sizeof text, "test_status.c:%d)", __LINE__);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), text));
}
END_TEST

static void *other_thread(void *arg)
{
    static char text[2001];

    memset(text, 'x', 2000);
    tn_error_long(TN_ERR_IO, text);
    *(int *)arg = tn_error_status() == TN_ERR_IO;
    return NULL;
}

START_TEST(threads_have_their_own)
{
    pthread_t thread;
    int ok = 0;

    tn_error(TN_ERR_SHAPE, "mine");
    pthread_create(&thread, NULL, other_thread, &ok);
    pthread_join(thread, NULL);
    ck_assert_int_eq(ok, 1);
    ck_assert_str_eq(tn_error_text(), "mine");
}
END_TEST

START_TEST(exit_codes)
{
    ck_assert_int_eq(tn_exit_code(TN_OK), 0);
    ck_assert_int_eq(tn_exit_code(TN_DECLINED), 0);
    ck_assert_int_eq(tn_exit_code(TN_ERR_CONFIG), 2);
    ck_assert_int_eq(tn_exit_code(TN_ERR_INPUT), 2);
    ck_assert_int_eq(tn_exit_code(TN_ERR), 1);
    ck_assert_int_eq(tn_exit_code(TN_ERR_IO), 1);
    ck_assert_int_eq(tn_exit_code(TN_ERR_TIMEOUT), 1);
}
END_TEST

/* What `log` writes to stderr; in a static buffer. */
static const char *written(void (*log)(void))
{
    static char text[4096];
    int pipe_fd[2], old = dup(STDERR_FILENO);
    ssize_t n;

    ck_assert_int_eq(pipe(pipe_fd), 0);
    dup2(pipe_fd[1], STDERR_FILENO);
    close(pipe_fd[1]);
    log();
    dup2(old, STDERR_FILENO);
    close(old);
    n = read(pipe_fd[0], text, sizeof text - 1);
    close(pipe_fd[0]);
    text[n < 0 ? 0 : n] = 0;
    return text;
}

static void log_all(void)
{
    tn_log(TN_LOG_ERROR, "e %d", 1);
    tn_log(TN_LOG_WARNING, "w\nsecond");
    tn_log(TN_LOG_INFO, "i");
    tn_host_table.log(TN_LOG_DEBUG, "d");
}

START_TEST(log_prefixes_lines_and_heeds_the_level)
{
    ck_assert_str_eq(written(log_all), "tenon: e 1\ntenon: warning: w\ntenon: warning: second\ntenon: i\n");
    tn_log_level(TN_LOG_ERROR);
    ck_assert_str_eq(written(log_all), "tenon: e 1\n");
    tn_log_level(TN_LOG_DEBUG);
    ck_assert_ptr_nonnull(strstr(written(log_all), "tenon: debug: d\n"));
}
END_TEST

START_TEST(host_table_is_the_core_s)
{
    ck_assert_ptr_eq(tn_host, &tn_host_table);
    ck_assert_uint_eq(tn_host->struct_size, sizeof(struct tn_host));
    tn_host->error(TN_ERR_IO, "from a plugin", NULL, 0);
    ck_assert_str_eq(tn_error_text(), "from a plugin");
    ck_assert_uint_eq(tn_host->threads(), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *t = tcase_create("status");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, says_last_sentence);
    tcase_add_test(t, keeps_long_texts_whole);
    tcase_add_test(t, debug_names_the_place);
    tcase_add_test(t, threads_have_their_own);
    tcase_add_test(t, exit_codes);
    tcase_add_test(t, log_prefixes_lines_and_heeds_the_level);
    tcase_add_test(t, host_table_is_the_core_s);
    suite_add_tcase(suite, t);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
