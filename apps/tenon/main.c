/* main.c - the program: which command, its help, and how it ends.
 *
 * Exit status: 0; 2 where the command line, the configuration or an input file is at fault; 1 for every other
 * failure, an output that could not be written included. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/near.h"
#include "base/status.h"
#include "commands.h"
#include "help.h"
#include "plugin/blame.h"
#include "plugin/load.h"

const struct command *const commands[] = {
    &prepare_command,
    &train_command,
    &sample_command,
    &import_command,
    &export_command,
    &step_command,
    &plan_command,
    &probe_command,
    &verify_command,
    &bench_command,
    &plugins_command,
    &check_command,
    &new_command,
    &config_command,
    &help_command,
    NULL,
};

const struct command *command_find(const char *name)
{
    for (size_t i = 0; commands[i]; i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

tn_status command_unknown(const char *name)
{
    struct tn_near near = {.word = name};
    char all[200] = "";

    for (size_t i = 0; commands[i]; i++) {
        size_t n = strlen(all);

        tn_near_try(&near, commands[i]->name);
        snprintf(all + n, sizeof all - n, "%s%s", !i ? "" : commands[i + 1] ? ", " : " and ", commands[i]->name);
    }
    if (near.best)
        return tn_error(TN_ERR_CONFIG, "unknown command %.100s; did you mean tenon %s?", name, near.best);
    return tn_error(TN_ERR_CONFIG, "unknown command %.100s; there are %s", name, all);
}

int command_end(tn_status status)
{
    if (status < 0 && !tn_error_is_hushed())
        tn_log(TN_LOG_ERROR, "%s", *tn_error_text() ? tn_error_text() : "failed, and no reason was recorded");
    return tn_exit_code(status);
}

/* Whether --help stands among the arguments, before a "--" that ends options. */
static int help_wanted(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return 1;
    return 0;
}

/* A command of two words, or NULL. */
static const struct command *find_pair(int argc, char **argv)
{
    char both[80];

    if (argc < 3)
        return NULL;
    snprintf(both, sizeof both, "%.30s %.40s", argv[1], argv[2]);
    return command_find(both);
}

static int dispatch(int argc, char **argv)
{
    const struct command *c;

    if (argc < 2) {
        help_overview(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        help_overview(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("tenon %s (plugin ABI %d)\n", TN_VERSION, TN_ABI);
        return 0;
    }
    c = find_pair(argc, argv);
    if (c)
        argc--, argv++;
    else
        c = command_find(argv[1]);
    if (!c)
        return command_end(*argv[1] == '-'
                               ? tn_error(TN_ERR_CONFIG,
                                          "unknown option %.100s; there are --help and --version, "
                                          "and tenon --help lists the commands",
                                          argv[1])
                               : command_unknown(argv[1]));
    if (help_wanted(argc - 1, argv + 1)) {
        help_command_text(stdout, c);
        return 0;
    }
    return c->run(argc - 1, argv + 1);
}

/* A stream that the caller closed would be the next file that is opened, and a progress line a part of a
 * checkpoint. In its place comes a descriptor that refuses: stdout and stderr cannot be written, stdin has
 * nothing. */
static int hold_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_RDWR) != fd)
            return 0;
    return 1;
}

/* A result that never reached the disk or the pipe must not look like success. A file that may not grow
 * further is a failed write with a sentence, not the end by a signal. */
int main(int argc, char **argv)
{
    if (!hold_streams())
        return 1;
    signal(SIGXFSZ, SIG_IGN);
    /* A BLAS that a plugin brings would start threads of its own as it is loaded, and the process is forked after that
     * to ask plugins: threads are the pool's business. */
    setenv("OPENBLAS_NUM_THREADS", "1", 0);

    tn_blame_begin();

    int code = dispatch(argc, argv), before = ferror(stdout);

    tn_blame_end();
    tn_plugins_close();

    if ((fflush(stdout) || before) && !code)
        code = command_end(before ? tn_error(TN_ERR_IO, "cannot write the output: a part of it was lost")
                                  : tn_error(TN_ERR_IO, "cannot write the output: %s", strerror(errno)));
    return code;
}
