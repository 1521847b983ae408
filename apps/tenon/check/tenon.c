/* tenon.c - this program once more, for tests of what trains: strategies and optimizers are tried as users use them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "suite.h"

#define OWN_PROGRAM "/proc/self/exe"

/* No launcher's variables, or the ranks that it starts would take themselves for that launcher's. */
static void forget_launcher(void)
{
    static const char *const names[] = {
        "RANK",         "WORLD_SIZE",   "LOCAL_RANK",           "LOCAL_WORLD_SIZE",     "GROUP_RANK",
        "MASTER_ADDR",  "MASTER_PORT",  "TORCHELASTIC_RUN_ID",  "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "PMI_RANK",             "PMI_SIZE",
        "PMIX_RANK",    "PMIX_NAMESPACE", "TENON_DIR",          "TENON_RANK",           "TENON_WORLD_SIZE",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

_Noreturn static void become(const char *folder, char **argv, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out, STDOUT_FILENO), dup2(out, STDERR_FILENO);
    forget_launcher();
    unsetenv("HOME");                            /* plugins of the user's own have no part in it */
    setenv("TENON_LOG", "error", 1);
    if (chdir(folder))
        _exit(1);
    execv(OWN_PROGRAM, argv);
    dprintf(STDERR_FILENO, "tenon: cannot be started again: %s\n", strerror(errno));
    _exit(1);
}

/* Its last line that begins with "tenon: ", else its last one. */
static void last_words(char *text, char *out, size_t room)
{
    *out = 0;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (!strncmp(line, "tenon: ", 7))
            snprintf(out, room, "%s", line + 7);
        else if (!*out)
            snprintf(out, room, "%s", line);
}

void check_word(struct check_words *w, const char *fmt, ...)
{
    va_list ap;

    if (w->n == CHECK_WORDS)
        return;
    va_start(ap, fmt);
    vsnprintf(w->text[w->n], sizeof w->text[0], fmt, ap);
    va_end(ap);
    w->argv[w->n] = w->text[w->n];
    w->argv[++w->n] = NULL;
}

int check_tenon(struct check_run *r, struct check_words *w, char *said, size_t room)
{
    enum { MOST = 1 << 20 };
    static char text[MOST];
    size_t n = 0;
    int fd[2], status = 0;
    pid_t pid;

    if (access(OWN_PROGRAM, X_OK))
        check_skip(r, "this program cannot be started again: %s: %s", OWN_PROGRAM, strerror(errno));
    fflush(NULL);
    if (pipe2(fd, O_CLOEXEC) || (pid = fork()) < 0)
        check_fail(r, "no process: %s", strerror(errno));
    if (!pid)
        become(r->subject->folder, w->argv, fd[1]);
    close(fd[1]);
    for (ssize_t k; n + 1 < MOST && (k = read(fd[0], text + n, MOST - 1 - n)) > 0;)
        n += (size_t)k;
    close(fd[0]);
    text[n] = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    last_words(text, said, room);
    if (WIFSIGNALED(status))
        check_fail(r, "a process of it was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status);
}
