/* test_config.c - a configuration: types and ranges, who wins, and every problem said at once, with its
 * place. */
#include <check.h>
#include <jansson.h>
#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "base/file.h"
#include "base/status.h"
#include "base/value.h"

static char folder[64];
static struct tn_config *c;

static void setup(void)
{
    strcpy(folder, "/tmp/tenon-test-config-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    c = NULL;
    tn_error_clear();
}

static void teardown(void)
{
    tn_config_free(c);
    ck_assert_int_eq(chdir("/"), 0);
    tn_path_remove(folder);
}

/* text NULL: no file; the arguments end with NULL. */
static void opened(const char *text, ...)
{
    char *argument[16];
    int n = 0;
    va_list ap;

    va_start(ap, text);
    while ((argument[n] = va_arg(ap, char *)))
        n++;
    va_end(ap);
    if (text)
        ck_assert_int_eq(tn_file_write("run.ini", text, strlen(text)), TN_OK);
    tn_config_free(c);
    c = NULL;
    ck_assert_msg(tn_config_open(text ? "run.ini" : NULL, n, argument, &c) == TN_OK, "%s", tn_error_text());
}

static void fine(void)
{
    ck_assert_msg(tn_config_check(c) == TN_OK, "%s", tn_error_text());
}

static void refused(const char *want)
{
    ck_assert_int_eq(tn_config_check(c), TN_ERR_CONFIG);
    ck_assert_str_eq(tn_error_text(), want);
}

static void refused_with(const char *words)
{
    ck_assert_int_eq(tn_config_check(c), TN_ERR_CONFIG);
    ck_assert_msg(strstr(tn_error_text(), words) != NULL, "%s", tn_error_text());
}

START_TEST(the_table_is_sound)
{
    char range[256], why[400];

    for (const struct tn_key *k = tn_keys; k->section; k++) {
        const struct tn_section *s = tn_sections;
        while (s->name && strcmp(s->name, k->section))
            s++;
        ck_assert_msg(s->name && k->help && *k->help && k->help[strlen(k->help) - 1] != '.', "%s.%s",
                      k->section, k->name);
        ck_assert_msg((k->preset == NULL) == (k->otherwise != NULL), "%s.%s", k->section, k->name);
        ck_assert_msg(!k->preset || tn_value_fits(k, k->preset, why, sizeof why), "%s.%s", k->section,
                      k->name);
        ck_assert_msg((k->type == TN_KEY_CHOICE) == (k->choices != NULL), "%s.%s", k->section, k->name);
        ck_assert_msg(k->type > TN_KEY_FLOAT || k->low < k->high, "%s.%s", k->section, k->name);
        ck_assert_uint_gt(strlen(tn_key_range(k, range, sizeof range)), 0);
        for (const struct tn_key *l = tn_keys; l < k; l++)
            ck_assert_msg(strcmp(l->section, k->section) || strcmp(l->name, k->name), "%s.%s twice",
                          k->section, k->name);
    }
}
END_TEST

START_TEST(defaults_hold)
{
    opened(NULL, NULL);
    fine();
    ck_assert_int_eq(tn_config_int(c, "model.n_layer"), 12);
    ck_assert_double_eq(tn_config_float(c, "optimizer.lr"), 1e-3);
    ck_assert_int_eq(tn_config_flag(c, "train.recompute"), 0);
    ck_assert_str_eq(tn_config_text(c, "checkpoint.resume"), "auto");
    ck_assert_ptr_null(tn_config_text(c, "data.dir"));
    ck_assert_int_eq(tn_config_int(c, "parallel.dp"), 0);
    ck_assert_int_eq(tn_config_is_set(c, "train.steps"), 0);
    ck_assert_str_eq(tn_config_origin(c, "train.steps"), "default");
    ck_assert_int_eq(tn_config_has(c, "train.steps"), 1);
    ck_assert_int_eq(tn_config_has(c, "optimizer.beta1"), 0);
    ck_assert_ptr_null(tn_config_path(c));
}
END_TEST

START_TEST(the_strongest_word_wins)
{
    opened("[train]\nsteps = 20\nseed = 5\n", "train.seed=6", "train.micro_batch=7", "train.micro_batch=8",
           NULL);
    tn_config_case(c, "train.steps", "30");
    tn_config_case(c, "train.seq_len", "31");
    tn_config_settle(c, "train.seq_len", "%d", 99);
    tn_config_settle(c, "parallel.dp", "%d", 4);
    fine();
    ck_assert_int_eq(tn_config_int(c, "train.steps"), 20);
    ck_assert_str_eq(tn_config_origin(c, "train.steps"), "run.ini:2");
    ck_assert_int_eq(tn_config_int(c, "train.seed"), 6);
    ck_assert_str_eq(tn_config_origin(c, "train.seed"), "command line");
    ck_assert_int_eq(tn_config_int(c, "train.micro_batch"), 8);
    ck_assert_int_eq(tn_config_int(c, "train.seq_len"), 31);
    ck_assert_str_eq(tn_config_origin(c, "train.seq_len"), "case file");
    ck_assert_int_eq(tn_config_int(c, "parallel.dp"), 4);
    ck_assert_str_eq(tn_config_origin(c, "parallel.dp"), "derived");
    ck_assert_int_eq(tn_config_is_set(c, "parallel.dp"), 0);
    ck_assert_int_eq(tn_config_is_set(c, "train.seed"), 1);
    ck_assert_str_eq(tn_config_path(c), "run.ini");
}
END_TEST

/* What has no default can be set like all others. */
START_TEST(every_key_can_be_set_from_the_command_line)
{
    char argument[128], low[32];

    for (const struct tn_key *k = tn_keys; k->section; k++) {
        const char *value = "word";
        snprintf(low, sizeof low, "%.15g", k->low);
        if (k->type == TN_KEY_INT || k->type == TN_KEY_FLOAT)
            value = low;
        else if (k->type == TN_KEY_FLAG)
            value = "on";
        else if (k->type == TN_KEY_CHOICE)
            value = strrchr(k->choices, '|') + 1;
        snprintf(argument, sizeof argument, "%s.%s=%s", k->section, k->name, value);
        opened(NULL, argument, NULL);
        fine();
        *strchr(argument, '=') = 0;
        ck_assert_str_eq(tn_config_text(c, argument), value);
        ck_assert_str_eq(tn_config_origin(c, argument), "command line");
    }
}
END_TEST

START_TEST(numbers_are_strict)
{
    static const char *const bad[] = {"nan",    "inf",  "-inf",  "NaN",   "infinity", "-1",     "1e400",
                                      "1e-400", "0x10", " 1e-3", "1e-3 ", "1_000",    "3,0e-4", "3e-4=x",
                                      "1e",     "e3",   ".",     "-",     "+",        "",       "1.2.3",
                                      "1f",     "1 2",  "--1",   "yes",   "1e+",      "0x1p3",  "1d3"};
    static const char *const good[] = {"0",  "1",    "3e-4", "3E-4", ".5",    "5.",
                                       "+1", "1e+2", "0.0",  "-0",   "1e-300"};
    char text[64];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (const struct tn_key *k = tn_keys; k->section; k++) {
            double value;
            if (k->type != TN_KEY_FLOAT && k->type != TN_KEY_INT)
                continue;
            ck_assert_msg(!tn_value_fits(k, bad[i], text, sizeof text), "%s.%s = %s", k->section, k->name,
                          bad[i]);
            ck_assert_msg(!strcmp(bad[i], "-1") || !tn_value_float(bad[i], &value), "%s", bad[i]);
        }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        double value;
        ck_assert_msg(tn_value_float(good[i], &value), "%s", good[i]);
        ck_assert_double_eq(value, strtod(good[i], NULL));
    }
    for (size_t i = 0; i < 4; i++) {
        static const char *const whole[] = {"9223372036854775807", "9223372036854775808",
                                            "-9223372036854775808", "-9223372036854775809"};
        int64_t n = 0;
        ck_assert_int_eq(tn_value_int(whole[i], &n), i % 2 == 0);
        ck_assert(i % 2 || n == (i ? INT64_MIN : INT64_MAX));
    }
    opened("[parallel]\nzero = 4\n", "model.n_layer=0", "backend.timeout=604801", NULL);
    refused("run.ini:2: parallel.zero = 4: expected a whole number from 0 to 3\n"
            "command line: model.n_layer = 0: expected a whole number from 1 to 10000 blocks\n"
            "command line: backend.timeout = 604801: expected a number from 0.1 to 604800 seconds");
    opened("[train]\nsteps = 1e6\nseed = 9223372036854775808\nglobal_batch = 3.0\n[optimizer]\nlr = -1\n",
           NULL);
    refused(
        "run.ini:2: train.steps = 1e6: expected a whole number from 0 to 4294967295 updates\n"
        "run.ini:3: train.seed = 9223372036854775808: expected a whole number from 0 to 9007199254740991\n"
        "run.ini:4: train.global_batch = 3.0: expected a whole number from 1 to 16777216 sequences\n"
        "run.ini:6: optimizer.lr = -1: expected a number from 0 to 1000000");
    ck_assert_int_eq(tn_config_int(c, "train.steps"), 1000); /* a getter before the check gives the default */
}
END_TEST

START_TEST(locale_changes_nothing)
{
    double value;

    setlocale(LC_ALL, "de_DE.UTF-8");            /* where it is not installed, this shows nothing */
    ck_assert_int_eq(tn_value_float("1.5", &value), 1);
    ck_assert_double_eq(value, 1.5);
}
END_TEST

START_TEST(flags_choices_lists)
{
    static const char *const yes[] = {"yes", "true", "1", "on", "True", "YES"}, *const no[] = {"no", "false",
                                                                                               "0", "off"};
    const char *const *words;
    char text[64];

    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        snprintf(text, sizeof text, "parallel.sp=%s", yes[i]);
        opened(NULL, text, NULL);
        fine();
        ck_assert_int_eq(tn_config_flag(c, "parallel.sp"), 1);
        ck_assert_double_eq(tn_config_float(c, "parallel.sp"), 1);
        ck_assert_int_eq(tn_config_int(c, "parallel.sp"), 1);
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        snprintf(text, sizeof text, "model.bias=%s", no[i]);
        opened(NULL, text, NULL);
        fine();
        ck_assert_int_eq(tn_config_flag(c, "model.bias"), 0);
    }
    opened(NULL, "model.bias=maybe", "schedule.name=cosin", "backend.kernels=cpu,,ref", NULL);
    refused("command line: model.bias = maybe: expected yes or no\n"
            "command line: schedule.name = cosin: expected constant, cosine, linear or wsd; did you mean "
            "cosine?\n"
            "command line: backend.kernels = cpu,,ref: expected names of plugins, separated by commas");
    opened(NULL, "backend.kernels= cpu , ref", "schedule.name=wsd", NULL);
    fine();
    ck_assert_uint_eq(tn_config_list(c, "backend.kernels", &words), 2);
    ck_assert_str_eq(words[0], "cpu");
    ck_assert_str_eq(words[1], "ref");
    ck_assert_ptr_null(words[2]);
    ck_assert_uint_eq(tn_config_list(c, "plugins.passes", &words), 0);
    ck_assert_ptr_null(words[0]);
    ck_assert_int_eq(tn_config_is(c, "schedule.name", "wsd"), 1);
    ck_assert_int_eq(tn_config_is(c, "data.dir", "wsd"), 0);
}
END_TEST

START_TEST(all_problems_at_once)
{
    opened("[train]\nstepz = 3\nlr = 1e-3\nsteps =   ; none\n  seed = x\n[trian]\nsteps = 4\n[train]\nseed = "
           "2\njunk\n"
           "[zebra]\nk = 1\n[model]\nquux_blah = 1\n",
           "train.stps=4", "optimizer.lr=nan", NULL);
    tn_config_case(c, "model.n_embed", "64");
    refused_with("case file: unknown key model.n_embed; did you mean model.n_embd?\n"
                 "run.ini:2: unknown key train.stepz; did you mean train.steps?\n"
                 "run.ini:3: unknown key train.lr; did you mean optimizer.lr?\n"
                 "run.ini:4: train.steps is empty; expected a whole number from 0 to 4294967295 updates\n"
                 "run.ini:5: train.seed = x: expected a whole number from 0 to 9007199254740991\n"
                 "run.ini:6: unknown section [trian]; did you mean [train]?\n"
                 "run.ini:8: section [train] again; it began on line 1, put all its keys there\n"
                 "run.ini:9: train.seed again; it is on line 5 already\n"
                 "run.ini:10: expected key = value, found \"junk\"\n"
                 "run.ini:11: unknown section [zebra]; there are model, train, data, optimizer, schedule, "
                 "parallel, backend, plugins, "
                 "checkpoint\n"
                 "run.ini:14: unknown key model.quux_blah; its keys are arch, n_layer, n_head,");
    refused_with("aux_loss, init_std\n"
            "command line: unknown key train.stps; did you mean train.steps?\n"
            "command line: optimizer.lr = nan: expected a number from 0 to 1000000");
    char *first = strdup(tn_error_text());
    ck_assert_int_eq(tn_config_check(c), TN_ERR_CONFIG);      /* the same again */
    ck_assert_str_eq(tn_error_text(), first);
    free(first);
}
END_TEST

START_TEST(hundreds_of_problems_are_cut)
{
    char text[8192] = "[train]\n";

    for (int i = 0; i < 200; i++)
        sprintf(text + strlen(text), "zzz%d = 1\n", i);
    opened(text, NULL);
    refused_with("\n... and 150 more");
}
END_TEST

START_TEST(malformed_arguments)
{
    opened(NULL, "lr=3e-4", NULL);
    refused("command line: argument lr=3e-4: expected section.key=value; did you mean optimizer.lr?");
    opened(NULL, "optimizer.lr", NULL);
    refused("command line: argument optimizer.lr: expected section.key=value; did you mean optimizer.lr?");
    opened(NULL, "optimizer.lr=", NULL);
    refused("command line: optimizer.lr is empty; expected a number from 0 to 1000000");
    opened(NULL, "optimizer.lr=3e-4=x", NULL);
    refused("command line: optimizer.lr = 3e-4=x: expected a number from 0 to 1000000");
    opened(NULL, "optimizer.LR=1", NULL);
    refused("command line: unknown key optimizer.LR; did you mean optimizer.lr?");
    opened(NULL, "optim.lr=1", NULL);
    refused("command line: unknown key optim.lr; did you mean optimizer.lr?");
    opened(NULL, "=", NULL);
    refused_with("command line: argument =: expected section.key=value");
    opened(NULL, "data.dir=\xff", NULL);
    refused("command line: data.dir: bytes that are not UTF-8 in the value");
    opened(NULL, "data.d\001ir=x", NULL);
    refused_with("command line: an argument whose key is not plain text");
}
END_TEST

/* Opened without an error; what the check says of it, and nothing else. */
static tn_status unreadable(const char *path)
{
    char *wrong[] = {"train.no_such=1"};

    tn_config_free(c);
    ck_assert_int_eq(tn_config_open(path, 1, wrong, &c), TN_OK);
    ck_assert_str_eq(tn_error_text(), "");
    ck_assert_int_eq(tn_config_unread(c), TN_ERR_INPUT);
    tn_error_clear();
    return tn_config_check(c);
}

START_TEST(files_that_are_none)
{
    ck_assert_int_eq(unreadable("none.ini"), TN_ERR_INPUT);
    ck_assert_str_eq(tn_error_text(), "cannot read none.ini: No such file or directory");
    ck_assert_int_eq(unreadable(folder), TN_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "it is a folder"));
    ck_assert_int_eq(unreadable("/dev/zero"), TN_ERR_INPUT);
}
END_TEST

static const struct tn_option adam[] = {
    {"beta1", "0.9", "memory of the mean", 0, 1},
    {"nesterov", "no", "look ahead", 0, 1},
    {"rule", "", "a text", 0, 0},
    {0},
};

START_TEST(plugins_add_options)
{
    static const struct tn_option twin[] = {{"beta1", "0.9", "other words", 0, 1}, {0}},
                                  other[] = {{"beta1", "0.8", "", 0, 1}, {0}},
                                  core[] = {{"lr", "1", "", 0, 1}, {0}},
                                  wrong[] = {{"gamma", "2", "", 0, 1}, {0}},
                                  shared[] = {{"zero", "0", "", 0, 2}, {0}};

    opened("[optimizer]\nname = adam\nbeta1 = 0.5\nbeta2 = 1\nnesterov = on\n", NULL);
    refused_with("run.ini:3: unknown key optimizer.beta1; its keys are name, lr");
    ck_assert_int_eq(tn_config_add(c, "optimizer", adam, "adam"), TN_OK);
    refused("run.ini:4: unknown key optimizer.beta2; did you mean optimizer.beta1?");
    ck_assert_double_eq(tn_config_float(c, "optimizer.beta1"), 0.5);
    ck_assert_int_eq(tn_config_flag(c, "optimizer.nesterov"), 1);
    ck_assert_ptr_null(tn_config_text(c, "optimizer.rule"));
    ck_assert_int_eq(tn_config_add(c, "optimizer", twin, "twin"), TN_OK);
    ck_assert_int_eq(tn_config_add(c, "optimizer", NULL, "none"), TN_OK);
    ck_assert_int_eq(tn_config_add(c, "parallel", shared, "shard"), TN_OK);
    ck_assert_int_lt(tn_config_add(c, "optimizer", other, "other"), 0);
    ck_assert_ptr_nonnull(
        strstr(tn_error_text(), "plugins adam and other both have an option optimizer.beta1"));
    ck_assert_int_lt(tn_config_add(c, "optimizer", core, "bad"), 0);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "which is a key of the core"));
    ck_assert_int_lt(tn_config_add(c, "optimizer", wrong, "bad"), 0);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "expected a number from 0 to 1"));
    opened(NULL, "optimizer.beta1=1.5", "optimizer.name=sgd", NULL);
    tn_config_add(c, "optimizer", adam, "adam");
    refused("command line: optimizer.beta1 = 1.5: expected a number from 0 to 1");
}
END_TEST

START_TEST(others_add_problems)
{
    opened("[model]\nn_head = 5\n[optimizer]\nname = adamx\nbeta9 = 1\n", "train.steps=x", NULL);
    tn_config_problem(c, "model.n_head", "does not divide %d", 768);
    tn_config_problem(c, NULL, "nothing fits");
    tn_config_excuse(c, "optimizer");
    refused("nothing fits\nrun.ini:2: model.n_head = 5: does not divide 768\n"
            "command line: train.steps = x: expected a whole number from 0 to 4294967295 updates");
    ck_assert_int_eq(tn_config_fail(c, "model.n_head", "does not divide n_embd %d", 768), TN_ERR_CONFIG);
    ck_assert_str_eq(tn_error_text(), "run.ini:2: model.n_head = 5: does not divide n_embd 768");
    tn_config_fail(c, "model.n_layer", "%0600d|end", 0);
    ck_assert_str_eq(tn_error_text() + strlen(tn_error_text()) - 5, "0|end");
    tn_config_fail(c, "model.n_layer", "too deep");
    ck_assert_str_eq(tn_error_text(), "model.n_layer = 12 (default): too deep");
    tn_config_fail(c, "data.dir", "needed to train");
    ck_assert_str_eq(tn_error_text(), "data.dir is not set: needed to train");
}
END_TEST

START_TEST(all_keys_and_json)
{
    struct tn_config_entry e;
    size_t n = 0;
    json_t *all;

    opened(NULL, "data.dir=d", NULL);
    tn_config_add(c, "optimizer", adam, "adam");
    for (; tn_config_at(c, n, &e); n++)
        if (!strcmp(e.name, "optimizer.beta1")) {
            ck_assert_str_eq(e.owner, "adam");
            ck_assert_str_eq(e.value, "0.9");
        }
    all = tn_config_json(c);
    ck_assert_str_eq(json_string_value(json_object_get(all, "data.dir")), "d");
    ck_assert_str_eq(json_string_value(json_object_get(all, "optimizer.beta1")), "0.9");
    ck_assert_ptr_null(json_object_get(all, "parallel.dp"));
    ck_assert_uint_lt(json_object_size(all), n);
    json_decref(all);
}
END_TEST

START_TEST(asking_for_no_key_is_a_mistake_of_the_program)
{
    opened(NULL, NULL);
    tn_config_int(c, "train.nothing");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *t = tcase_create("config");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_table_is_sound);
    tcase_add_test(t, defaults_hold);
    tcase_add_test(t, the_strongest_word_wins);
    tcase_add_test(t, every_key_can_be_set_from_the_command_line);
    tcase_add_test(t, numbers_are_strict);
    tcase_add_test(t, locale_changes_nothing);
    tcase_add_test(t, flags_choices_lists);
    tcase_add_test(t, all_problems_at_once);
    tcase_add_test(t, hundreds_of_problems_are_cut);
    tcase_add_test(t, malformed_arguments);
    tcase_add_test(t, files_that_are_none);
    tcase_add_test(t, plugins_add_options);
    tcase_add_test(t, others_add_problems);
    tcase_add_test(t, all_keys_and_json);
    tcase_add_test_raise_signal(t, asking_for_no_key_is_a_mistake_of_the_program, 6);
    suite_add_tcase(suite, t);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
