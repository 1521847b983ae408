/* files.h - what tests about files share: a folder that is gone afterwards, small files in it, and the
 * sentence of an error. scratch_setup and scratch_teardown are a checked fixture. */
#ifndef TESTS_UNIT_FILES_H
#define TESTS_UNIT_FILES_H
#include "base/arena.h"
#include "base/file.h"
#include "base/status.h"

#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static struct tn_arena *scratch_arena;
static char scratch[64];

__attribute__((unused)) static void scratch_setup(void)
{
    strcpy(scratch, "/tmp/tenon-scratch-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(scratch));
    scratch_arena = tn_arena_new();
    tn_log_level(TN_LOG_ERROR);
}

__attribute__((unused)) static void scratch_teardown(void)
{
    tn_path_remove(scratch);
    tn_arena_free(scratch_arena);
}

/* The path of a name in the folder. */
__attribute__((unused)) static char *in_scratch(const char *name)
{
    return tn_path_join(scratch_arena, scratch, name);
}

__attribute__((unused)) static char *put_file(const char *name, const void *data, size_t bytes)
{
    char *path = in_scratch(name);
    FILE *f = fopen(path, "wb");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, bytes, f), bytes);
    ck_assert_int_eq(fclose(f), 0);
    return path;
}

__attribute__((unused)) static size_t count_names(const char *folder)
{
    DIR *d = opendir(folder);
    size_t n = 0;

    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

/* The call fails with this status, and says something with this in it. */
#define assert_fails(call, code, words)                                                                      \
    do {                                                                                                     \
        tn_error_clear();                                                                                    \
        ck_assert_int_eq((call), (code));                                                                    \
        ck_assert_msg(strstr(tn_error_text(), words) != NULL, "\"%s\" says nothing of \"%s\"",               \
                      tn_error_text(), words);                                                               \
    } while (0)

#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        tn_error_clear();                                                                                    \
        tn_status status_ = (call);                                                                          \
        ck_assert_msg(status_ == TN_OK, "%s: status %d: %s", #call, (int)status_, tn_error_text());          \
    } while (0)

/* Each test in a process of its own, between set-up and tear-down. */
__attribute__((unused)) static int run_tests(const char *name, const TTest *const *tests, size_t n)
{
    Suite *suite = suite_create(name);
    TCase *c = tcase_create(name);

    tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
    tcase_set_timeout(c, 120);
    for (size_t i = 0; i < n; i++)
        tcase_add_test(c, tests[i]);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
#define TEST_MAIN(name, ...)                                                                                 \
    int main(void)                                                                                           \
    {                                                                                                        \
        const TTest *const tests[] = {__VA_ARGS__};                                                          \
        return run_tests(name, tests, sizeof tests / sizeof tests[0]);                                       \
    }
#endif
