/* cmd_train.c - tenon train: see train/loop.h. */
#include "base/config.h"
#include "options.h"
#include "train/loop.h"

static tn_status train(const struct options *o)
{
    struct tn_config *c;
    tn_status status = tn_config_open(o->file[0], o->settings, o->setting, &c);

    if (status < 0)
        return status;
    status = tn_train(c);
    tn_config_free(c);
    return status;
}

static int cmd_train(int argc, char **argv)
{
    struct options o;
    tn_status status = options_parse(&train_command, argc, argv, &o);

    if (status >= 0)
        status = train(&o);
    options_free(&o);
    return command_end(status);
}

const struct command train_command = {
    .name = "train",
    .help = "Trains a model, or goes on with one: validates, saves, resumes",
    .usage = "[CFG] [section.key=value ...]",
    .detail = "The run directory (checkpoint.dir) gets metrics.jsonl, one line for each update, and the "
              "checkpoints. The same command goes on from the newest of them until train.steps are done. "
              "SIGTERM, SIGINT and SIGHUP finish the update, save and end with status 0; a second SIGINT "
              "ends at once; SIGUSR1 saves and goes on.",
    .files_max = 1,
    .settings = 1,
    .run = cmd_train,
};
