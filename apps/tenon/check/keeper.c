/* keeper.c - the folder of a check, which goes whatever happens to it, and processes that nobody waits for.
 *
 * The program may be interrupted or killed at any moment, and then clears up nothing. So a child of it does nothing but
 * wait for its end, and removes the folder. What a plugin has started and let go of (a daemon) becomes a child of this
 * process, and ends with the check. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/status.h"
#include "comm.h"
#include "suite.h"

static pid_t keeper;

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

/* In a session of its own, so that no terminal's interrupt is meant for it. Tests that have not heard yet that all is
 * over may still write. */
_Noreturn static void keep(const char *folder, pid_t checker)
{
    sigset_t wait_for;
    int number;

    setsid();
    sigemptyset(&wait_for);
    sigaddset(&wait_for, SIGUSR1);
    sigprocmask(SIG_SETMASK, &wait_for, NULL);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    for (int fd = 0; fd < 64; fd++)              /* a pipe that somebody reads to its end is not ours to hold */
        close(fd);
    while (getppid() == checker && sigwait(&wait_for, &number))
        ;
    for (int i = 0; i < 50 && access(folder, F_OK) == 0; i++) {
        tn_comm_remove(folder);
        pause_ms(20);
    }
    _exit(0);
}

/* TMPDIR where it is one and leaves room for the names of sockets; else /tmp. */
static const char *place(size_t room)
{
    const char *named = getenv("TMPDIR");

    return named && *named == '/' && strlen(named) < room && access(named, W_OK | X_OK) == 0 ? named : "/tmp";
}

tn_status check_keep_begin(struct check_subject *s)
{
    static const char name[] = "/tenon-check-XXXXXX";
    const pid_t self = getpid();

    snprintf(s->folder, sizeof s->folder, "%s%s", place(sizeof s->folder - sizeof name), name);
    if (!mkdtemp(s->folder)) {
        tn_error(TN_ERR_IO, "plugins check: no folder like %s: %s; TMPDIR names another place", s->folder, strerror(errno));
        *s->folder = 0;
        return TN_ERR_IO;
    }
    fflush(NULL);
    keeper = fork();
    if (!keeper)
        keep(s->folder, self);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return TN_OK;
}

/* Numbers of the children that this process has, whoever started them. */
static size_t children(pid_t *pid, size_t most)
{
    char path[64];
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "r");
    while (f && n < most && fscanf(f, "%d", &pid[n]) == 1)
        n++;
    if (f)
        fclose(f);
    return n;
}

/* Each one that ends may leave its own to us. */
static void end_strays(void)
{
    pid_t pid[64];

    for (int i = 0; i < 100; i++) {
        const size_t n = children(pid, sizeof pid / sizeof *pid);

        for (size_t k = 0; k < n; k++)
            kill(pid[k], SIGKILL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (!n)
            return;
        pause_ms(1);
    }
}

void check_keep_end(struct check_subject *s)
{
    if (!*s->folder)
        return;
    end_strays();                                /* the keeper among them */
    if (keeper > 0)
        kill(keeper, SIGKILL), waitpid(keeper, NULL, 0);
    tn_comm_remove(s->folder);
    keeper = 0, *s->folder = 0;
}
