/* test_rundir.c - checkpoints that are whole or not there, the lock of a run, metrics without duplicates. */
#include "files.h"

#include "ckpt/metrics.h"
#include "ckpt/rundir.h"
#include "ckpt/safetensors.h"
#include "ckpt/save.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char *run_of(const char *name)
{
    return tn_path_join(scratch_arena, in_scratch("run"), name);
}

static struct tn_saved describe(json_t **config)
{
    *config = json_pack("{s:s, s:s}", "model.arch", "gpt2", "train.steps", "30");
    return (struct tn_saved){.seed = 1337, .config = *config, .data = "train=1 val=2", .tokenizer = 0x1234};
}

static tn_status save(const char *run, int64_t step, size_t bytes)
{
    struct tn_save *s;
    json_t *config;
    struct tn_saved state = describe(&config);
    char *data = calloc(1, bytes + 1);

    memset(data, 'a' + (int)(step % 26), bytes);
    tn_status status = tn_save_begin(run, step, &s);
    if (status == TN_OK)
        status = tn_save_put(s, "model.bin", data, bytes);
    if (status == TN_OK)
        status = tn_save_put(s, "optimizer.bin", "xyz", 3);
    if (status == TN_OK)
        status = tn_save_commit(s, &state);
    else if (s)
        tn_save_abort(s);
    json_decref(config);
    free(data);
    return status;
}

static void assert_steps(const char *run, const char *expected)
{
    int64_t *steps;
    uint64_t count;
    char text[256] = "";

    assert_ok(tn_runs_list(run, &steps, &count));
    for (uint64_t i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? " " : "",
                 (long long)steps[i]);
    ck_assert_str_eq(text, expected);
    free(steps);
}

START_TEST(a_checkpoint_says_what_it_is)
{
    struct tn_runs *r;
    struct tn_saved s;
    char *run = in_scratch("run");
    int64_t step;

    assert_ok(tn_runs_open(run, &r));
    ck_assert_int_eq(tn_runs_latest(run, &step), TN_DECLINED);
    assert_ok(save(run, 100, 1000));
    assert_ok(tn_runs_latest(run, &step));
    ck_assert_int_eq(step, 100);
    assert_ok(tn_saved_read(run_of("step-00000100"), &s));
    assert_ok(tn_saved_verify(&s));
    ck_assert_int_eq(s.step, 100);
    ck_assert_uint_eq(s.seed, 1337);
    ck_assert_str_eq(s.data, "train=1 val=2");
    ck_assert_uint_eq(s.tokenizer, 0x1234);
    ck_assert_str_eq(json_string_value(json_object_get(s.config, "model.arch")), "gpt2");
    ck_assert_uint_eq(s.count, 2);
    ck_assert_uint_eq(tn_saved_find(&s, "model.bin")->bytes, 1000);
    ck_assert_ptr_null(tn_saved_find(&s, "state.json"));
    tn_saved_free(&s);
    ck_assert_uint_eq(count_names(run), 2);      /* .lock and the checkpoint */
    ck_assert_uint_eq(count_names(run_of("step-00000100")), 3);
    tn_runs_close(r);
}
END_TEST

START_TEST(tensors_go_into_a_checkpoint)
{
    struct tn_save *s;
    struct tn_safetensors_writer *w;
    struct tn_saved saved;
    json_t *config;
    struct tn_saved state = describe(&config);
    uint64_t bytes, hash;

    assert_ok(tn_save_begin(in_scratch("run"), 3, &s));
    assert_ok(tn_safetensors_create(tn_save_path(s, "model-00001-of-00001.safetensors"), &w));
    assert_ok(tn_safetensors_declare(w, "x", TN_F32, 1, (const int64_t[]){1}));
    assert_ok(tn_safetensors_begin(w));
    assert_ok(tn_safetensors_write(w, "\0\0\0\0", 4));
    assert_ok(tn_safetensors_commit(w, &bytes, &hash));
    tn_save_add(s, "model-00001-of-00001.safetensors", bytes, hash);
    assert_ok(tn_save_commit(s, &state));
    json_decref(config);
    assert_ok(tn_saved_read(run_of("step-00000003"), &saved));
    assert_ok(tn_saved_verify(&saved));
    tn_saved_free(&saved);
}
END_TEST

START_TEST(what_is_not_complete_does_not_count)
{
    struct tn_saved s;
    char *run = in_scratch("run");

    for (int64_t step = 10; step <= 60; step += 10)
        assert_ok(save(run, step, 1000));
    unlink(run_of("step-00000060/state.json"));
    unlink(run_of("step-00000050/model.bin"));
    ck_assert_int_eq(truncate(run_of("step-00000040/model.bin"), 999), 0);
    ck_assert_int_eq(truncate(run_of("step-00000030/state.json"), 50), 0);
    assert_ok(tn_folder_make(run_of("step-00000070")));
    assert_ok(tn_folder_make(run_of("step-10")));
    assert_steps(run, "10 20");
    ck_assert_int_eq(rename(run_of("step-00000020"), run_of("step-00000025")), 0);
    assert_steps(run, "10");
    assert_fails(tn_saved_read(run_of("step-00000040"), &s), TN_ERR_INPUT,
                 "model.bin has 999 bytes, state.json beside it says 1000");
    tn_saved_free(&s);
    assert_fails(tn_saved_read(run_of("step-00000050"), &s), TN_ERR_INPUT, "cannot find");
    tn_saved_free(&s);
}
END_TEST

START_TEST(damage_is_found_when_it_is_loaded)
{
    struct tn_saved s;
    char *run = in_scratch("run"), *path = run_of("step-00000010/model.bin");

    assert_ok(save(run, 10, 1000));
    FILE *f = fopen(path, "r+b");
    fseek(f, 500, SEEK_SET);
    fputc('!', f);
    fclose(f);
    assert_steps(run, "10");
    assert_ok(tn_saved_read(run_of("step-00000010"), &s));
    assert_fails(tn_saved_verify(&s), TN_ERR_INPUT, "model.bin is damaged");
    tn_saved_free(&s);
}
END_TEST

START_TEST(a_state_that_lies_is_refused)
{
    static const char *const lies[][2] = {
        {"", "state.json"},
        {"[]", "\"format\""},
        {"{\"format\":2}", "\"format\""},
        {"{\"format\":1,\"step\":-1,\"seed\":1}", "\"step\""},
        {"{\"format\":1,\"step\":1,\"seed\":1,\"data\":\"\",\"config\":{},\"tokenizer\":\"\"}",
         "\"tokenizer\""},
        {"{\"format\":1,\"step\":1,\"seed\":1,\"data\":\"\",\"config\":{},\"tokenizer\":"
         "\"0000000000000000\"}",
         "\"files\""},
        {"{\"format\":1,\"step\":1,\"seed\":1,\"data\":\"\",\"config\":{},\"tokenizer\":\"0000000000000000\","
         "\"files\":"
         "{\"../../etc/passwd\":{\"bytes\":1,\"xxh64\":\"0000000000000000\"}}}",
         "proper name"},
        {"{\"format\":1,\"step\":1,\"seed\":1,\"data\":\"\",\"config\":{},\"tokenizer\":\"0000000000000000\","
         "\"files\":"
         "{\"a\":{\"bytes\":-1,\"xxh64\":\"0000000000000000\"}}}",
         "bytes"},
    };
    struct tn_saved s;

    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        put_file("state.json", lies[i][0], strlen(lies[i][0]));
        assert_fails(tn_saved_read(scratch, &s), TN_ERR_INPUT, lies[i][1]);
        tn_saved_free(&s);
    }
}
END_TEST

START_TEST(a_step_that_is_not_there_names_those_that_are)
{
    char *run = in_scratch("run");

    assert_fails(tn_runs_find(run, 5), TN_ERR_INPUT, "no complete checkpoint at all");
    for (int64_t step = 10; step <= 30; step += 10)
        assert_ok(save(run, step, 10));
    assert_ok(tn_runs_find(run, 20));
    assert_fails(tn_runs_find(run, 999), TN_ERR_INPUT, "step 999; there are: 10, 20, 30");
    for (int64_t step = 40; step <= 200; step += 10)
        assert_ok(save(run, step, 10));
    assert_fails(tn_runs_find(run, 999), TN_ERR_INPUT, "there are: …, 90, 100, 110");
}
END_TEST

START_TEST(the_newest_are_kept)
{
    struct tn_runs *r;
    char *run = in_scratch("run");

    assert_ok(tn_runs_open(run, &r));
    for (int64_t step = 1; step <= 6; step++)
        assert_ok(save(run, step, 10));
    assert_ok(tn_runs_prune(r, 0, 6));
    assert_steps(run, "1 2 3 4 5 6");
    unlink(run_of("step-00000006/state.json"));  /* does not count, and is not taken away */
    assert_ok(tn_runs_prune(r, 3, 5));
    assert_steps(run, "3 4 5");
    assert_ok(tn_runs_prune(r, 2, 3));           /* the one in use stays */
    assert_steps(run, "3 4 5");
    assert_ok(tn_runs_prune(r, 10, 3));
    assert_steps(run, "3 4 5");
    ck_assert_int_eq(tn_path_exists(run_of("step-00000006")), 1);
    ck_assert_uint_eq(count_names(run), 5);
    tn_runs_close(r);
}
END_TEST

START_TEST(a_step_may_be_saved_again)
{
    struct tn_saved s;
    char *run = in_scratch("run");

    assert_ok(save(run, 7, 100));
    assert_ok(save(run, 7, 200));
    assert_ok(tn_saved_read(run_of("step-00000007"), &s));
    assert_ok(tn_saved_verify(&s));
    ck_assert_uint_eq(tn_saved_find(&s, "model.bin")->bytes, 200);
    tn_saved_free(&s);
    unlink(run_of("step-00000007/state.json"));  /* a torn one is replaced as well */
    assert_ok(save(run, 7, 300));
    assert_steps(run, "7");
    ck_assert_uint_eq(count_names(run), 1);
}
END_TEST

/* A full disk, as a limit on the size of files. */
START_TEST(a_save_that_fails_leaves_the_run)
{
    struct tn_runs *r;
    struct tn_saved s;
    char *run = in_scratch("run");
    struct rlimit limit = {1 << 16, 1 << 16};

    assert_ok(tn_runs_open(run, &r));
    assert_ok(save(run, 10, 1000));
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_fails(save(run, 20, 1 << 17), TN_ERR_IO, "File too large");
    assert_fails(save(run, 10, 1 << 17), TN_ERR_IO, "File too large");
    ck_assert_uint_eq(count_names(run), 2);
    assert_steps(run, "10");
    assert_ok(tn_saved_read(run_of("step-00000010"), &s));
    assert_ok(tn_saved_verify(&s));
    tn_saved_free(&s);
    assert_ok(save(run, 30, 1000));              /* and the run goes on */
    assert_steps(run, "10 30");
    tn_runs_close(r);
}
END_TEST

/* The disk is full when state.json is due: everything else was written. */
START_TEST(a_save_without_its_state_is_no_save)
{
    struct tn_save *s;
    json_t *config;
    struct tn_saved state = describe(&config);
    char *run = in_scratch("run"), *large = malloc(1 << 17);
    struct rlimit limit = {1 << 16, 1 << 16};

    memset(large, 'x', 1 << 17);
    json_object_set_new(config, "large", json_stringn(large, 1 << 17));
    free(large);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_ok(tn_save_begin(run, 1, &s));
    assert_ok(tn_save_put(s, "model.bin", "abc", 3));
    assert_fails(tn_save_commit(s, &state), TN_ERR_IO, "File too large");
    json_decref(config);
    ck_assert_uint_eq(count_names(run), 0);
}
END_TEST

START_TEST(a_folder_that_cannot_be_had_is_refused)
{
    struct tn_runs *r;
    struct rlimit limit = {0, 0};

    put_file("file", "x", 1);
    assert_fails(tn_runs_open(in_scratch("file/run"), &r), TN_ERR_INPUT, "file");
    ck_assert_ptr_null(r);
    assert_fails(tn_runs_open("/proc/self/run", &r), TN_ERR_INPUT, "/proc/self/run");
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_fails(tn_runs_open(in_scratch("run"), &r), TN_ERR_INPUT, "cannot write ");
}
END_TEST

START_TEST(leftovers_are_cleared)
{
    struct tn_runs *r;
    char *run = in_scratch("run");

    assert_ok(save(run, 10, 100));
    assert_ok(save(run, 20, 100));
    assert_ok(tn_folder_make(run_of(".step-00000030.tmp-123/deep")));
    /* stopped between the two renames of a replacement, and after both */
    ck_assert_int_eq(rename(run_of("step-00000020"), run_of(".step-00000020.old-123")), 0);
    assert_ok(tn_folder_make(run_of(".step-00000010.old-123")));
    assert_ok(tn_runs_open(run, &r));
    assert_steps(run, "10 20");
    ck_assert_uint_eq(count_names(run), 3);
    tn_runs_close(r);
}
END_TEST

START_TEST(one_process_writes_a_run)
{
    struct tn_runs *r, *second;
    char *run = in_scratch("run"), words[64];

    assert_ok(tn_runs_open(run, &r));
    snprintf(words, sizeof words, "run is in use by process %ld;", (long)getpid());
    assert_fails(tn_runs_open(run, &second), TN_ERR, words);
    ck_assert_ptr_null(second);
    pid_t child = fork();
    if (child == 0) {
        tn_error_clear();
        _exit(tn_runs_open(run, &second) == TN_ERR && strstr(tn_error_text(), words) ? 0 : 1);
    }
    int end;
    waitpid(child, &end, 0);
    ck_assert_int_eq(end, 0);
    tn_runs_close(r);
    assert_ok(tn_runs_open(run, &second));
    tn_runs_close(second);
}
END_TEST

/* Killed at any moment of a save, the run has a whole checkpoint: the one before or the new one. */
START_TEST(a_kill_costs_no_checkpoint)
{
    struct tn_runs *r;
    struct tn_saved s;
    char *run = in_scratch("run");
    int64_t step, before = 0;

    assert_ok(save(run, 0, 100000));
    for (int i = 0; i < 20 || (i < 200 && before == 0); i++) {    /* on a slow disk longer */
        pid_t child = fork();
        if (child == 0)
            for (step = before + 1;; step++)
                if (save(run, step, 100000) < 0 || save(run, step, 100000) < 0)
                    _exit(1);
        usleep((useconds_t)(3000 + 1700 * i));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        assert_ok(tn_runs_open(run, &r));
        assert_ok(tn_runs_latest(run, &step));
        ck_assert_int_ge(step, before);
        char *path = tn_runs_path(run, step);
        assert_ok(tn_saved_read(path, &s));
        assert_ok(tn_saved_verify(&s));
        free(path);
        tn_saved_free(&s);
        assert_ok(tn_runs_prune(r, 1, step));
        ck_assert_uint_eq(count_names(run), 2);
        tn_runs_close(r);
        before = step;
    }
    ck_assert_int_gt(before, 0);
}
END_TEST

/* --- metrics */

static void write_line(struct tn_metrics *m, int64_t step, double loss)
{
    json_t *line = json_pack("{s:I, s:f}", "step", (json_int_t)step, "loss", loss);

    assert_ok(tn_metrics_write(m, line));
    json_decref(line);
}

static void assert_file(const char *path, const char *expected)
{
    char *text;
    size_t n;

    assert_ok(tn_file_read(path, 1 << 20, &text, &n));
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(metrics_have_each_step_once)
{
    struct tn_metrics *m;
    char *path = in_scratch("metrics.jsonl");

    assert_ok(tn_metrics_open(path, -1, &m));
    write_line(m, 0, 4.1875);
    write_line(m, 1, 4.0);
    write_line(m, 2, 3.75);
    tn_metrics_close(m);
    assert_file(path,
                "{\"step\":0,\"loss\":4.1875}\n{\"step\":1,\"loss\":4.0}\n{\"step\":2,\"loss\":3.75}\n");
    assert_ok(tn_metrics_open(path, 1, &m));
    write_line(m, 2, 3.5);
    tn_metrics_close(m);
    assert_file(path, "{\"step\":0,\"loss\":4.1875}\n{\"step\":1,\"loss\":4.0}\n{\"step\":2,\"loss\":3.5}\n");
    assert_ok(tn_metrics_open(path, -1, &m));
    tn_metrics_close(m);
    assert_file(path, "");
    ck_assert_uint_eq(count_names(scratch), 1);
}
END_TEST

START_TEST(torn_lines_are_dropped)
{
    struct tn_metrics *m;
    static const char torn[] = "{\"step\":1}\n{\"st\n5\n{\"step\":2}\n{\"step\":3}\n{\"step\":3,\"lo";
    char *path = put_file("metrics.jsonl", torn, sizeof torn - 1);

    assert_ok(tn_metrics_open(path, 9, &m));
    write_line(m, 10, 1.5);
    tn_metrics_close(m);
    assert_file(path, "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":10,\"loss\":1.5}\n");
    put_file("metrics.jsonl", "{\"step\":1}", 10);        /* whole, but who knows: 1 of 10? */
    assert_ok(tn_metrics_open(path, 9, &m));
    tn_metrics_close(m);
    assert_file(path, "");
}
END_TEST

START_TEST(a_line_that_does_not_fit_leaves_nothing)
{
    struct tn_metrics *m;
    char *path = in_scratch("metrics.jsonl");
    struct rlimit limit = {50, 1000};
    json_t *line = json_pack("{s:i, s:s}", "step", 2, "text", "a line of some sixty characters, as said");

    assert_ok(tn_metrics_open(path, -1, &m));
    write_line(m, 1, 4.0);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_fails(tn_metrics_write(m, line), TN_ERR_IO, "File too large");
    json_decref(line);
    assert_file(path, "{\"step\":1,\"loss\":4.0}\n");
    limit.rlim_cur = 1000;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    write_line(m, 3, 4.0);
    tn_metrics_close(m);
    assert_file(path, "{\"step\":1,\"loss\":4.0}\n{\"step\":3,\"loss\":4.0}\n");
}
END_TEST

TEST_MAIN("rundir", a_checkpoint_says_what_it_is, tensors_go_into_a_checkpoint,
          what_is_not_complete_does_not_count, damage_is_found_when_it_is_loaded,
          a_state_that_lies_is_refused, a_step_that_is_not_there_names_those_that_are, the_newest_are_kept,
          a_step_may_be_saved_again, a_save_that_fails_leaves_the_run, a_save_without_its_state_is_no_save,
          a_folder_that_cannot_be_had_is_refused, leftovers_are_cleared, one_process_writes_a_run,
          a_kill_costs_no_checkpoint, metrics_have_each_step_once, torn_lines_are_dropped,
          a_line_that_does_not_fit_leaves_nothing)
