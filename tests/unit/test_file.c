/* test_file.c - whole files: read, written or left as they were; folders; paths; sentences for what fails. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"

static char folder[64];
static struct tn_arena *arena;

static void setup(void)
{
    strcpy(folder, "/tmp/tenon-test-file-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    arena = tn_arena_new();
    tn_error_clear();
}

static void teardown(void)
{
    ck_assert_int_eq(tn_path_remove(folder), TN_OK);
    tn_arena_free(arena);
}

static char *in(const char *name)
{
    return tn_path_join(arena, folder, name);
}

static void expect(tn_status status, tn_status want, const char *part1, const char *part2)
{
    ck_assert_int_eq(status, want);
    ck_assert_msg(strstr(tn_error_text(), part1) && strstr(tn_error_text(), part2), "%s", tn_error_text());
}

static void same(const char *path, const char *want, size_t bytes)
{
    char *data;
    size_t n;

    ck_assert_int_eq(tn_file_read(path, 1 << 20, &data, &n), TN_OK);
    ck_assert_uint_eq(n, bytes);
    ck_assert_mem_eq(data, want, bytes);
    ck_assert_int_eq(data[n], 0);
    free(data);
}

START_TEST(writes_and_reads)
{
    static char large[100000];

    memset(large, 'q', sizeof large);
    ck_assert_int_eq(tn_file_write(in("a"), "a\0b", 3), TN_OK);
    same(in("a"), "a\0b", 3);
    ck_assert_int_eq(tn_file_write(in("a"), large, sizeof large), TN_OK);
    same(in("a"), large, sizeof large);
    ck_assert_int_eq(tn_file_write(in("a"), "", 0), TN_OK);
    same(in("a"), "", 0);
}
END_TEST

START_TEST(reads_a_pipe)
{
    int fd[2];

    ck_assert_int_eq(pipe(fd), 0);
    ck_assert_int_eq(write(fd[1], "text", 4), 4);
    close(fd[1]);
    same(tn_text(arena, "/dev/fd/%d", fd[0]), "text", 4);
    close(fd[0]);
}
END_TEST

START_TEST(says_what_cannot_be_read)
{
    char *data;
    size_t n;

    expect(tn_file_read(in("none"), 100, &data, &n), TN_ERR_INPUT, in("none"), "No such file");
    expect(tn_file_read(folder, 100, &data, &n), TN_ERR_INPUT, folder, "folder");
    expect(tn_file_read("/dev/zero", 100, &data, &n), TN_ERR_INPUT, "/dev/zero", "more than the 100 bytes");
    tn_file_write(in("b"), "12345", 5);
    expect(tn_file_read(in("b"), 4, &data, &n), TN_ERR_INPUT, in("b"), "more than the 4 bytes");
    ck_assert_int_eq(tn_file_read(in("b"), 5, &data, &n), TN_OK);
    free(data);
    expect(tn_file_read(in("b/c"), 4, &data, &n), TN_ERR_INPUT, in("b/c"), "Not a directory");
}
END_TEST

START_TEST(failed_write_leaves_the_old_file)
{
    static char large[65536];
    struct rlimit limit = {4096, RLIM_INFINITY};

    ck_assert_int_eq(tn_file_write(in("c"), "old", 3), TN_OK);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    expect(tn_file_write(in("c"), large, sizeof large), TN_ERR_IO, in("c"), "File too large");
    same(in("c"), "old", 3);
    tn_path_remove(in("c"));
    ck_assert_int_eq(rmdir(folder), 0);          /* nothing else was left */
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    expect(tn_file_write(in("none/c"), "x", 1), TN_ERR_IO, in("none/c"), "No such file");
    mkdir(in("d"), 0700);
    expect(tn_file_write(in("d"), "x", 1), TN_ERR_IO, in("d"), "rename");
}
END_TEST

START_TEST(makes_and_removes_folders)
{
    uint64_t free_bytes = 0;

    ck_assert_int_eq(tn_folder_make(in("x/y//z/")), TN_OK);
    ck_assert_int_eq(tn_path_is_folder(in("x/y/z")), 1);
    ck_assert_int_eq(tn_folder_make(in("x/y")), TN_OK);
    tn_file_write(in("x/file"), "1", 1);
    expect(tn_folder_make(in("x/file/q")), TN_ERR_IO, in("x/file"), "cannot make folder");
    ck_assert_int_eq(tn_folder_space(in("x/not/yet/there"), &free_bytes), TN_OK);
    ck_assert_uint_gt(free_bytes, 0);
    ck_assert_int_eq(symlink("/etc", in("x/link")), 0);
    ck_assert_int_eq(tn_path_remove(in("x")), TN_OK);
    ck_assert_int_eq(tn_path_exists(in("x")), 0);
    ck_assert_int_eq(tn_path_exists("/etc"), 1);
    ck_assert_int_eq(tn_path_remove(in("x")), TN_OK);
}
END_TEST

START_TEST(paths)
{
    ck_assert_str_eq(tn_path_join(arena, "a", "b"), "a/b");
    ck_assert_str_eq(tn_path_join(arena, "a/", "b"), "a/b");
    ck_assert_str_eq(tn_path_join(arena, "", "b"), "b");
    ck_assert_str_eq(tn_path_join(arena, "a", "/b"), "/b");
    ck_assert_str_eq(tn_path_folder(arena, "a/b"), "a");
    ck_assert_str_eq(tn_path_folder(arena, "a//b/"), "a");
    ck_assert_str_eq(tn_path_folder(arena, "b"), ".");
    ck_assert_str_eq(tn_path_folder(arena, "/b"), "/");
    ck_assert_str_eq(tn_path_folder(arena, "/"), "/");
    ck_assert_str_eq(tn_path_name("a/b"), "b");
    ck_assert_str_eq(tn_path_name("b"), "b");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("file");
    TCase *t = tcase_create("file");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, writes_and_reads);
    tcase_add_test(t, reads_a_pipe);
    tcase_add_test(t, says_what_cannot_be_read);
    tcase_add_test(t, failed_write_leaves_the_old_file);
    tcase_add_test(t, makes_and_removes_folders);
    tcase_add_test(t, paths);
    suite_add_tcase(suite, t);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
