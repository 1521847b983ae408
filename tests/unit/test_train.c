/* test_train.c - a run: going on is the same as not stopping, watching changes nothing, nothing is lost. */
#include "training.h"

#include "ckpt/rundir.h"
#include "data/sampler.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/loop.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

static tn_status train(struct tn_config *c)
{
    tn_status status = tn_train(c);

    tn_config_free(c);
    return status;
}

/* "dir=NAME" for a run in the scratch folder. */
static const char *dir(const char *name)
{
    return tn_text(scratch_arena, "checkpoint.dir=%s", in_scratch(name));
}

static const char *file(const char *run, int64_t step, const char *name)
{
    return tn_text(scratch_arena, "%s/step-%08lld/%s", in_scratch(run), (long long)step, name);
}

static int same_end(const char *a, const char *b, int64_t step)
{
    return same_file(file(a, step, MODEL_FILE), file(b, step, MODEL_FILE)) &&
           same_file(file(a, step, OPTIMIZER_FILE), file(b, step, OPTIMIZER_FILE));
}

/* Lines of metrics.jsonl as an array. */
static json_t *metrics(const char *run)
{
    char *text, *line;
    size_t bytes;
    json_t *all = json_array();

    assert_ok(
        tn_file_read(tn_path_join(scratch_arena, in_scratch(run), "metrics.jsonl"), 1 << 20, &text, &bytes));
    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *o = json_loads(line, 0, NULL);
        ck_assert_ptr_nonnull(o);
        json_array_append_new(all, o);
    }
    free(text);
    return all;
}

static json_int_t step_at(json_t *m, size_t i)
{
    return json_integer_value(json_object_get(json_array_get(m, i), "step"));
}

static int has(json_t *m, size_t i, const char *key)
{
    return json_object_get(json_array_get(m, i), key) != NULL;
}

/* The losses of all updates, as text. */
static char *losses(const char *run)
{
    json_t *m = metrics(run), *line;
    char *text = tn_text(scratch_arena, "%s", "");
    size_t i;

    json_array_foreach(m, i, line) if (json_object_get(line, "loss")) text =
        tn_text(scratch_arena, "%s %lld:%.17g", text, (long long)step_at(m, i),
                json_number_value(json_object_get(line, "loss")));
    json_decref(m);
    return text;
}

START_TEST(going_on_is_not_stopping)
{
    make_data("data", 1);
    assert_ok(train(CONFIG("train.steps=30", dir("a"))));
    for (int i = 2; i <= 3; i++)
        assert_ok(train(CONFIG(i == 2 ? "train.steps=20" : "train.steps=30", dir("b"))));
    for (int i = 1; i <= 3; i++)
        assert_ok(train(CONFIG(tn_text(scratch_arena, "train.steps=%d", 10 * i), dir("c"))));
    ck_assert_uint_eq(fake.updates, 90);
    ck_assert(same_end("a", "b", 30));
    ck_assert(same_end("a", "c", 30));
    ck_assert(same_end("b", "c", 20));
    ck_assert_str_eq(losses("a"), losses("b"));
    ck_assert_str_eq(losses("a"), losses("c"));
}
END_TEST

START_TEST(watching_changes_nothing)
{
    make_data("data", 1);
    assert_ok(train(CONFIG(dir("a"))));
    assert_ok(
        train(CONFIG(dir("b"), "train.eval_interval=2", "train.eval_batches=3", "checkpoint.interval=3")));
    ck_assert_uint_gt(fake.evaluations, 0);
    ck_assert(same_end("a", "b", 10));
    ck_assert_str_eq(losses("a"), losses("b"));
}
END_TEST

START_TEST(validation_comes_before_the_first_and_after_the_last)
{
    json_t *m;

    make_data("data", 1);
    assert_ok(train(CONFIG("train.steps=5", "train.eval_interval=3", "train.eval_batches=1")));
    m = metrics("run");
    ck_assert_uint_eq(json_array_size(m), 6);
    for (size_t i = 0; i < 6; i++) {
        ck_assert_int_eq(step_at(m, i), (json_int_t)i);
        ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(m, i), "tokens")),
                         (json_int_t)i * 32);
        ck_assert_int_eq(has(m, i, "val_loss"), i == 0 || i == 3 || i == 5);
        ck_assert_int_eq(has(m, i, "loss"), i > 0);
        ck_assert_int_eq(has(m, i, "lr") && has(m, i, "grad_norm") && has(m, i, "tokens_per_second"), i > 0);
    }
    json_decref(m);
    for (int steps = 6; steps <= 7; steps++)     /* 6 is validated before the stop, not again after it */
        assert_ok(train(CONFIG(tn_text(scratch_arena, "train.steps=%d", steps), "train.eval_interval=3",
                               "train.eval_batches=1")));
    m = metrics("run");
    ck_assert_uint_eq(json_array_size(m), 8);
    ck_assert(has(m, 6, "val_loss") && has(m, 7, "val_loss"));
    json_decref(m);
}
END_TEST

/* 32 tokens an update. */
START_TEST(the_slowest_rank_counts)
{
    json_t *m;

    make_data("data", 1);
    fake.slowest = 1000;
    assert_ok(train(CONFIG("train.steps=2")));
    m = metrics("run");
    ck_assert_double_eq_tol(json_number_value(json_object_get(json_array_get(m, 1), "tokens_per_second")), 0.032, 1e-9);
    json_decref(m);
}
END_TEST

/* Two batches with (sum 2, 1 token) and (90, 9 tokens): the mean over tokens is 9.2, that over batches 6. */
START_TEST(the_mean_is_over_tokens)
{
    static const double score[][2] = {{2, 1}, {90, 9}};
    json_t *m;

    make_data("data", 1);
    fake.score = score;
    assert_ok(train(CONFIG("train.steps=0", "train.eval_interval=1", "train.eval_batches=1")));
    ck_assert_uint_eq(fake.evaluations, 2);
    m = metrics("run");
    ck_assert_double_eq_tol(json_number_value(json_object_get(json_array_get(m, 0), "val_loss")), 9.2, 1e-12);
    json_decref(m);
    ck_assert_double_eq(tn_mean_value(&(struct tn_mean){0, 0}), 0);
}
END_TEST

START_TEST(validation_does_not_depend_on_accumulation)
{
    double val[3];

    make_data("data", 1);
    for (int i = 0; i < 3; i++) {
        const char *run = tn_text(scratch_arena, "run%d", i);
        assert_ok(train(CONFIG(dir(run), tn_text(scratch_arena, "train.micro_batch=%d", 1 << i),
                               "train.steps=0", "train.eval_interval=1", "train.eval_batches=4")));
        json_t *m = metrics(run);
        val[i] = json_number_value(json_object_get(json_array_get(m, 0), "val_loss"));
        json_decref(m);
    }
    ck_assert_double_gt(val[0], 1);
    ck_assert_double_eq_tol(val[0], val[1], 1e-9);
    ck_assert_double_eq_tol(val[0], val[2], 1e-9);
}
END_TEST

/* Half as many batches are other windows, so another mean. */
START_TEST(all_batches_are_validated)
{
    double val[2];

    make_data("data", 1);
    for (int i = 0; i < 2; i++) {
        const char *run = i ? "two" : "one";
        assert_ok(train(CONFIG(dir(run), i ? "train.eval_batches=2" : "train.eval_batches=1", "train.steps=0",
                               "train.eval_interval=1")));
        json_t *m = metrics(run);
        val[i] = json_number_value(json_object_get(json_array_get(m, 0), "val_loss"));
        json_decref(m);
    }
    ck_assert_uint_eq(fake.evaluations, 6);
    ck_assert_double_ne(val[0], val[1]);
}
END_TEST

START_TEST(the_rate_is_that_of_the_step)
{
    json_t *m;

    make_data("data", 1);
    for (int i = 1; i <= 2; i++)
        assert_ok(train(CONFIG(i == 1 ? "train.steps=4" : "train.steps=10", "schedule.name=linear",
                               "schedule.steps=10", "optimizer.lr=1")));
    m = metrics("run");
    for (size_t i = 0; i < 10; i++)
        ck_assert_double_eq_tol(json_number_value(json_object_get(json_array_get(m, i), "lr")),
                                1 - (double)i / 10, 1e-8);
    json_decref(m);
}
END_TEST

START_TEST(a_finished_run_stays)
{
    struct tn_config *c;

    make_data("data", 1);
    assert_ok(train(make_config(NULL)));
    fake = (struct fake)FAKE_DEFAULT;
    assert_ok(train(make_config(NULL)));
    assert_ok(train(CONFIG("train.steps=3")));
    ck_assert_uint_eq(fake.opened, 0);
    ck_assert_uint_eq(fake.updates, 0);
    c = CONFIG("model.n_embd=5");
    assert_fails(train(c), TN_ERR_INPUT, "model.n_embd is 4 there, 5 here");
}
END_TEST

/* --- numbers that are not finite */

START_TEST(a_bad_loss_stops)
{
    make_data("data", 1);
    fake.bad_step = 6;
    assert_fails(train(CONFIG("checkpoint.interval=4")), TN_ERR_NUMBER,
                 "step 7: loss nan, gradient norm inf; the first tensor "
                 "that is not finite is the output of the fake; the last checkpoint is");
    ck_assert_uint_eq(fake.updates, 7);
    assert_ok(tn_runs_find(in_scratch("run"), 4));
    ck_assert(!tn_path_exists(in_scratch("run/step-00000007")));
    fake.bad_step = -1;
    assert_ok(train(CONFIG(dir("sound"))));
    assert_ok(train(make_config(NULL)));
    ck_assert(same_end("run", "sound", 10));
}
END_TEST

START_TEST(a_bad_loss_is_skipped)
{
    json_t *m;

    make_data("data", 1);
    fake.bad_step = 6;
    assert_ok(train(CONFIG("train.nonfinite=skip")));
    ck_assert_uint_eq(fake.updates, 10);
    ck_assert_uint_eq(fake.applied, 0);
    m = metrics("run");
    ck_assert(json_is_null(json_object_get(json_array_get(m, 6), "loss")));
    ck_assert(json_is_true(json_object_get(json_array_get(m, 6), "skipped")));
    ck_assert(!has(m, 5, "skipped"));
    json_decref(m);
}
END_TEST

START_TEST(a_bad_loss_is_ignored)
{
    make_data("data", 1);
    fake.bad_step = 6;
    assert_ok(train(CONFIG("train.nonfinite=ignore")));
    ck_assert_uint_eq(fake.applied, 1);
}
END_TEST

START_TEST(a_bad_validation_stops_before_it_is_saved)
{
    static const double score[][2] = {{1, 1}, {1, 1}, {NAN, 1}, {1, 1}};

    make_data("data", 1);
    fake.score = score;
    assert_fails(train(CONFIG("train.eval_interval=5", "train.eval_batches=1", "checkpoint.interval=5")),
                 TN_ERR_NUMBER, "step 5: the validation loss is nan; there is no checkpoint yet");
    ck_assert(!tn_path_exists(in_scratch("run/step-00000005")));
}
END_TEST

/* --- signals */

static int sent;

static void send_at_4(int64_t step)
{
    if (step == 4)
        kill(getpid(), sent);
}

START_TEST(a_signal_saves_and_stops)
{
    static const int signals[] = {SIGTERM, SIGINT};

    make_data("data", 1);
    assert_ok(train(CONFIG(dir("whole"))));
    for (int i = 0; i < 2; i++) {
        const char *run = tn_text(scratch_arena, "run%d", i);
        sent = signals[i];
        fake.before_update = send_at_4;
        fake.updates = 0;
        assert_ok(train(CONFIG(dir(run))));
        ck_assert_uint_eq(fake.updates, 5);
        assert_ok(tn_runs_find(in_scratch(run), 5));
        fake.before_update = NULL;
        assert_ok(train(CONFIG(dir(run))));
        ck_assert(same_end(run, "whole", 10));
        ck_assert_str_eq(losses(run), losses("whole"));
    }
}
END_TEST

START_TEST(usr1_saves_and_goes_on)
{
    make_data("data", 1);
    sent = SIGUSR1;
    fake.before_update = send_at_4;
    assert_ok(train(make_config(NULL)));
    ck_assert_uint_eq(fake.updates, 10);
    assert_ok(tn_runs_find(in_scratch("run"), 5));
    assert_ok(tn_runs_find(in_scratch("run"), 10));
}
END_TEST

static void interrupt_twice(int64_t step)
{
    if (step == 2) {
        kill(getpid(), SIGINT);
        kill(getpid(), SIGINT);
        ck_abort_msg("still alive after the second SIGINT");
    }
}

/* The test's process ends with 130: see main. */
START_TEST(a_second_interrupt_ends_at_once)
{
    make_data("data", 1);
    fake.before_update = interrupt_twice;
    train(make_config(NULL));
}
END_TEST

/* --- the run directory */

static void limit_files(rlim_t bytes)
{
    struct rlimit r = {bytes, RLIM_INFINITY};

    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void full_from_2_to_6(int64_t step)
{
    if (step == 2)
        limit_files(100);
    if (step == 6)
        limit_files(RLIM_INFINITY);
}

static void full_from_2(int64_t step)
{
    if (step == 2)
        limit_files(100);
}

START_TEST(a_save_that_fails_costs_a_checkpoint_only)
{
    make_data("data", 1);
    assert_ok(train(CONFIG(dir("whole"))));
    fake.before_update = full_from_2_to_6;
    assert_ok(train(CONFIG("checkpoint.interval=2")));
    ck_assert(tn_path_exists(in_scratch("run/step-00000008")));
    ck_assert(!tn_path_exists(in_scratch("run/step-00000004")));
    ck_assert(same_end("run", "whole", 10));
}
END_TEST

START_TEST(the_last_save_must_not_fail)
{
    make_data("data", 1);
    signal(SIGXFSZ, SIG_IGN);                    /* the limit still holds when the run is over */
    fake.before_update = full_from_2;
    assert_fails(train(CONFIG("checkpoint.interval=2")), TN_ERR_IO, "step 10, could not be saved");
    limit_files(RLIM_INFINITY);
    assert_ok(tn_runs_find(in_scratch("run"), 2));
}
END_TEST

START_TEST(the_newest_are_kept)
{
    int64_t *steps;
    uint64_t count;

    make_data("data", 1);
    assert_ok(train(CONFIG("checkpoint.interval=1", "checkpoint.keep=3")));
    assert_ok(tn_runs_list(in_scratch("run"), &steps, &count));
    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(steps[0], 8);
    ck_assert_int_eq(steps[2], 10);
    free(steps);
}
END_TEST

START_TEST(what_is_not_there_cannot_be_resumed)
{
    make_data("data", 1);
    assert_fails(train(CONFIG("checkpoint.resume=5")), TN_ERR_INPUT, "step 5");
    assert_fails(train(CONFIG("checkpoint.resume=/nowhere/at/all")), TN_ERR_CONFIG,
                 "checkpoint.resume = /nowhere/at/all");
    assert_fails(train(CONFIG(tn_text(scratch_arena, "checkpoint.resume=%s", in_scratch("data")))),
                 TN_ERR_CONFIG, "no complete one");
    ck_assert(!tn_path_exists(in_scratch("run")));
    assert_ok(train(CONFIG("checkpoint.interval=5")));
    assert_fails(train(CONFIG("checkpoint.resume=7")), TN_ERR_INPUT, "there are: 5, 10");
    assert_fails(
        train(CONFIG(tn_text(scratch_arena, "checkpoint.resume=%s", in_scratch("run/step-00000006")))),
        TN_ERR_INPUT, "there are: 5, 10");
}
END_TEST

START_TEST(a_run_may_go_on_elsewhere)
{
    make_data("data", 1);
    assert_ok(train(CONFIG("checkpoint.interval=5", dir("a"))));
    assert_ok(train(
        CONFIG(dir("b"), tn_text(scratch_arena, "checkpoint.resume=%s/", in_scratch("a/step-00000005")))));
    assert_ok(train(
        CONFIG("train.steps=12", dir("c"), tn_text(scratch_arena, "checkpoint.resume=%s", in_scratch("a")))));
    assert_ok(train(CONFIG("train.steps=12", dir("a"))));
    assert_ok(train(CONFIG("train.steps=2", dir("d"))));
    assert_ok(train(CONFIG(dir("d"),
                           tn_text(scratch_arena, "checkpoint.resume=%s", in_scratch("a/step-00000005")))));
    ck_assert(tn_path_exists(in_scratch("d/abandoned-1/step-00000002")));
    ck_assert(same_end("a", "b", 10));
    ck_assert(same_end("a", "c", 12));
}
END_TEST

/* Going back begins another history: what comes after in the old one must not be found by the next automatic
 * resume. */
START_TEST(another_history_sets_the_old_one_aside)
{
    make_data("data", 1);
    assert_ok(train(CONFIG("checkpoint.interval=4")));
    assert_ok(train(CONFIG("checkpoint.resume=4", "train.steps=6", "train.seed=7")));
    ck_assert(tn_path_exists(in_scratch("run/abandoned-1/step-00000008")));
    ck_assert(tn_path_exists(in_scratch("run/abandoned-1/step-00000010")));
    ck_assert(tn_path_exists(in_scratch("run/step-00000004")));
    ck_assert(tn_path_exists(in_scratch("run/step-00000006")));
    assert_ok(train(CONFIG("checkpoint.resume=none", "train.steps=2")));
    ck_assert(tn_path_exists(in_scratch("run/abandoned-2/step-00000004")));
    ck_assert(tn_path_exists(in_scratch("run/step-00000002")));
    json_t *m = metrics("run");
    ck_assert_uint_eq(json_array_size(m), 2);
    json_decref(m);
}
END_TEST

START_TEST(nothing_is_made_of_what_is_wrong)
{
    make_data("data", 1);
    assert_fails(train(CONFIG("model.vocab_size=7")), TN_ERR_INPUT, "vocab");
    assert_fails(train(CONFIG("train.seq_len=5000", "model.block_size=5000")), TN_ERR_INPUT,
                 "train.bin has 3200 tokens");
    assert_fails(train(CONFIG("schedule.name=linear", "schedule.min_lr=1")), TN_ERR_CONFIG,
                 "schedule.min_lr");
    assert_fails(train(CONFIG("data.dir=/nowhere")), TN_ERR_INPUT, "/nowhere");
    ck_assert(!tn_path_exists(in_scratch("run")));
    assert_fails(train(CONFIG("checkpoint.dir=/proc/no/run")), TN_ERR_INPUT, "/proc/no");
    put_file("file", "x", 1);
    assert_fails(train(CONFIG(dir("file/run"))), TN_ERR_INPUT, "file");
}
END_TEST

START_TEST(the_folder_has_the_name_of_the_file)
{
    struct tn_config *c;

    put_file("tiny.ini", "[train]\nsteps = 3\n", 18);
    assert_ok(tn_config_open(in_scratch("tiny.ini"), 0, NULL, &c));
    ck_assert_str_eq(tn_run_folder(c), "runs/tiny");
    tn_config_free(c);
    assert_ok(tn_config_open(NULL, 0, NULL, &c));
    ck_assert_ptr_null(tn_run_folder(c));
    assert_fails(train(c), TN_ERR_CONFIG, "checkpoint.dir");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        going_on_is_not_stopping,
        watching_changes_nothing,
        validation_comes_before_the_first_and_after_the_last, the_slowest_rank_counts,
        the_mean_is_over_tokens,
        validation_does_not_depend_on_accumulation,
        all_batches_are_validated,
        the_rate_is_that_of_the_step,
        a_finished_run_stays,
        a_bad_loss_stops,
        a_bad_loss_is_skipped,
        a_bad_loss_is_ignored,
        a_bad_validation_stops_before_it_is_saved,
        a_signal_saves_and_stops,
        usr1_saves_and_goes_on,
        a_save_that_fails_costs_a_checkpoint_only,
        the_last_save_must_not_fail,
        the_newest_are_kept,
        what_is_not_there_cannot_be_resumed,
        a_run_may_go_on_elsewhere,
        another_history_sets_the_old_one_aside,
        nothing_is_made_of_what_is_wrong,
        the_folder_has_the_name_of_the_file,
    };
    Suite *suite = suite_create("train");
    TCase *usual = tcase_create("run"), *ends = tcase_create("ends");

    tcase_add_checked_fixture(usual, scratch_setup, scratch_teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(usual, tests[i]);
    tcase_add_checked_fixture(ends, scratch_setup, scratch_teardown);
    tcase_add_exit_test(ends, a_second_interrupt_ends_at_once, 130);
    suite_add_tcase(suite, usual);
    suite_add_tcase(suite, ends);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
