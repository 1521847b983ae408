/* ranks.c - see ranks.h. */
#include "ranks.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/status.h"
#include "plugin/registry.h"
#include "world/world.h"

#define MOST 64
#define OWN "TENON_OWN_RANKS" /* set in ranks that this program started */

/* --- words */

/* The first rank of each group along axis: those with coordinate 0 on it. */
const char *ranks_groups(const struct tn_mesh *m, int axis, char *out, size_t room)
{
    int64_t world = tn_mesh_world(m), *ranks = malloc((size_t)m->size[axis] * sizeof *ranks);
    size_t k = 0;

    *out = 0;
    for (int64_t r = 0; r < world && ranks && k + 64 < room; r++) {
        struct tn_mesh at = tn_mesh_at(m, r);

        if (at.coord[axis])
            continue;
        tn_mesh_group(&at, axis, ranks);
        for (int64_t i = 0; i < m->size[axis] && k + 64 < room; i++)
            k += (size_t)snprintf(out + k, room - k, "%s%lld",
                                  i      ? " "
                                  : *out ? " ["
                                         : "[",
                                  (long long)ranks[i]);
        k += (size_t)snprintf(out + k, room - k, k + 64 < room ? "]" : " ...");
    }
    free(ranks);
    return out;
}

int64_t ranks_asked(const struct tn_config *c)
{
    static const char *const axis[] = {"parallel.dp", "parallel.pp", "parallel.cp", "parallel.tp"};
    int64_t n = 1;

    for (size_t i = 0; i < sizeof axis / sizeof *axis; i++) {
        int64_t size = tn_config_int(c, axis[i]);
        n *= size > 1 && n < 1 << 20 ? size : 1;
    }
    return n;
}

tn_status ranks_launched(const struct tn_config *c, int *out)
{
    struct tn_registry *r = NULL;
    tn_status s = tn_registry_open(tn_config_text(c, "plugins.path"), &r);

    *out = s >= 0 && (tn_config_is_set(c, "backend.bootstrap") || tn_world_launched(r));
    tn_registry_close(r);
    return s;
}

/* --- processes */

static pid_t child[MOST];
static volatile sig_atomic_t n_child;

static void pass_on(int number)
{
    for (int i = 0; i < n_child; i++)
        kill(child[i], number);
}

/* The environment of another launcher must not speak to the children. */
static void become(char **argv, const char *folder, int64_t rank, int64_t n)
{
    static const char *const others[] = {
        "RANK",        "WORLD_SIZE",  "LOCAL_RANK",          "LOCAL_WORLD_SIZE",           "GROUP_RANK",
        "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TENON_JOB"};
    char number[24];

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    setenv("TENON_DIR", folder, 1);
    snprintf(number, sizeof number, "%lld", (long long)n);
    setenv("TENON_WORLD_SIZE", number, 1);
    snprintf(number, sizeof number, "%lld", (long long)rank);
    setenv("TENON_RANK", number, 1);
    setenv(OWN, "1", 1);
    signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL), signal(SIGHUP, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody is left behind by a kill */
    execv("/proc/self/exe", argv);
    dprintf(STDERR_FILENO, "tenon: cannot start a rank: %s\n", strerror(errno));
    _exit(1);
}

static int status_of(pid_t pid, int rank)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 1;
    if (WIFSIGNALED(status) && rank >= 0)
        tn_log(TN_LOG_ERROR, "rank %d was ended by signal %d (%s)", rank, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static tn_status run_all(char **argv, const char *folder, int64_t n, int *code)
{
    fflush(NULL);
    signal(SIGINT, pass_on), signal(SIGTERM, pass_on), signal(SIGHUP, pass_on);
    for (int64_t r = 0; r < n; r++) {
        pid_t pid = fork();

        if (!pid)
            become(argv, folder, r, n);
        if (pid < 0) {
            int e = errno;
            pass_on(SIGKILL);
            for (int i = 0; i < n_child; i++)
                status_of(child[i], -1);
            return tn_error(TN_ERR_IO, "cannot start rank %lld of %lld: %s", (long long)r, (long long)n,
                            strerror(e));
        }
        child[n_child++] = pid;
    }
    *code = 0;
    for (int i = 0; i < n_child; i++) {
        int status = status_of(child[i], i);
        *code = *code ? *code : status;
    }
    return TN_OK;
}

/* As the user called it: `tenon NAME arguments`. */
static char **command_line(const struct options *o, int argc, char **argv)
{
    char **line = calloc((size_t)argc + 3, sizeof *line);

    if (!line)
        return NULL;
    line[0] = (char *)"tenon";
    line[1] = (char *)(uintptr_t)o->command->name;
    for (int i = 1; i < argc; i++)
        line[i + 1] = argv[i];
    line[argc + 1] = (char *)"backend.bootstrap=dir";
    return line;
}

tn_status ranks_start(const struct options *o, int64_t n, int argc, char **argv, int *here, int *code)
{
    char folder[] = "/tmp/tenon-ranks-XXXXXX", file[64], **line;
    tn_status s;

    *here = getenv(OWN) != NULL;
    if (*here)
        return TN_OK;
    if (n > MOST)
        return tn_error(TN_ERR_CONFIG,
                        "%s: %lld processes on one host are too many, %d are possible: use a launcher",
                        o->command->name, (long long)n, MOST);
    line = command_line(o, argc, argv);
    if (!line || !mkdtemp(folder)) {
        free(line);
        return tn_error(TN_ERR_IO, "%s: cannot make a folder in /tmp for the ranks to meet in: %s",
                        o->command->name, strerror(errno));
    }
    s = run_all(line, folder, n, code);
    snprintf(file, sizeof file, "%s/tenon-0.address", folder);
    unlink(file);
    rmdir(folder);
    free(line);
    return s;
}
