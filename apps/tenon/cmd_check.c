/* cmd_check.c - tenon plugins check: is this plugin right? The work is done in check/. */
#include "base/config.h"
#include "base/status.h"
#include "check/suite.h"
#include "options.h"

static tn_status check(const struct options *o, int *code)
{
    struct check_wish w = {.plugin = o->file[0],
                           .only = options_text(o, "only"),
                           .axis = options_text(o, "axis"),
                           .json = (uint32_t)options_given(o, "json"),
                           .list = (uint32_t)options_given(o, "list"),
                           .jobs = (uint32_t)options_int(o, "jobs"),
                           .seconds = options_float(o, "seconds")};
    struct tn_config *c = NULL;
    tn_status s = tn_config_open(NULL, o->settings, o->setting, &c);

    if (s >= 0) {
        w.plugins_path = tn_config_text(c, "plugins.path");
        s = check_plugin(&w, code);
    }
    tn_config_free(c);
    return s;
}

static int cmd_check(int argc, char **argv)
{
    struct options o;
    tn_status s = options_parse(&check_command, argc, argv, &o);
    int code = 0;

    if (s >= 0)
        s = check(&o, &code);
    options_free(&o);
    return s < 0 ? command_end(s) : code;
}

static const struct option check_options[] = {
    {.name = "json", .help = "The report as a JSON document"},
    {.name = "only",
     .value = "TEST",
     .help = "These tests: KIND, KIND/GROUP or a whole name, several with commas between"},
    {.name = "axis",
     .value = "AXIS",
     .help = "The axis that a strategy is for, where its options do not say it",
     .type = TN_KEY_CHOICE,
     .choices = "dp|pp|cp|tp|ep"},
    {.name = "list", .help = "Names the tests and runs none"},
    {.name = "seconds",
     .value = "S",
     .help = "Limit of each test (default: its own, 60 for most)",
     .type = TN_KEY_FLOAT,
     .low = 0.1,
     .high = 86400},
    {.name = "jobs", .value = "N", .help = "Tests at a time", .type = TN_KEY_INT, .low = 1, .high = 64,
     .preset = NULL},
    {0},
};

const struct command check_command = {
    .name = "plugins check",
    .help = "Proves a plugin: everything that it claims, tried and compared",
    .usage = "FILE.so|NAME [plugins.path=DIR]",
    .detail = "Each test runs in a process of its own with a time limit, so a crash or a hang is a result. Kernels are "
              "compared with the plugin ref, over odd shapes, strides, cuts, dtypes and extreme values, in memory that "
              "shows what is touched beside it. Exit status: 0 all passed, 1 something failed, 2 the file is no plugin "
              "that could be checked.",
    .options = check_options,
    .files_min = 1,
    .files_max = 1,
    .settings = 1,
    .run = cmd_check,
};
