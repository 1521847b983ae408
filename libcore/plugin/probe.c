/* probe.c - the child, the pipe and the time limit: see probe.h.
 *
 * The child sends its struct tn_probe through the pipe and leaves by _exit; what came is believed only as far
 * as lengths and texts go, since the code that wrote it may be anything. It is a group of processes, so that a signal
 * to its group is not one to us, and what it has started ends with it. */
#include "plugin/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/plain.h"
#include "base/pool.h"
#include "base/status.h"
#include "plugin/guard.h"

typedef tn_status probe_function(uint32_t *score, char *why, uint64_t why_size);

static void ask_one(const struct tn_interface_type *type, const void *table, struct tn_offer *o)
{
    probe_function *probe = NULL;
    tn_status s;

    snprintf(o->id, sizeof o->id, "%s", type->id);
    tn_interface_kinds(type, table, o->kinds, sizeof o->kinds);
    o->score = 1;
    if (!type->probe)
        return;
    memcpy(&probe, (const char *)table + type->probe, sizeof probe);
    o->asked = 1;
    o->score = 0;
    tn_error_clear();
    s = probe(&o->score, o->why, sizeof o->why);
    o->why[sizeof o->why - 1] = 0;
    o->status = s;
    if (s < 0) {
        o->score = 0;
        snprintf(o->why, sizeof o->why, "%s",
                 *tn_error_text() ? tn_error_text() : "its probe failed and did not say why");
    }
}

/* Lengths and texts that can be relied on, whoever wrote them. */
static void tidy(struct tn_probe *p)
{
    tn_plain_field(p->why, sizeof p->why);
    tn_plain_field(p->about, sizeof p->about);
    if (p->status > 0)
        p->status = TN_OK;
    if (p->offers > TN_MAX_OFFERS)
        p->offers = TN_MAX_OFFERS;
    for (uint32_t i = 0; i < p->offers; i++) {
        tn_plain_field(p->offer[i].id, sizeof p->offer[i].id);
        tn_plain_field(p->offer[i].kinds, sizeof p->offer[i].kinds);
        tn_plain_field(p->offer[i].why, sizeof p->offer[i].why);
    }
}

void tn_plugin_ask(const struct tn_loaded *p, struct tn_probe *out)
{
    memset(out, 0, sizeof *out);
    tn_guard_begin(p->path, "while it was asked what it can do here", TN_GUARD_SECONDS);
    snprintf(out->about, sizeof out->about, "%s", p->plugin.about ? p->plugin.about : "");
    for (uint32_t i = 0; i < p->tables && i < TN_MAX_OFFERS; i++)
        ask_one(p->table[i].type, p->table[i].table, &out->offer[out->offers++]);
    tn_guard_end();
    tidy(out);
}

/* --- the child */
static void write_all(int fd, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t k = write(fd, (const char *)from + done, bytes - done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return;
        done += (size_t)k;
    }
}

_Noreturn static void child(const char *path, int out, struct tn_probe *probe)
{
    static const int usual[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM,
                                SIGSEGV, SIGBUS, SIGILL,  SIGFPE,  SIGABRT};
    const struct rlimit none = {0, 0};
    const struct tn_loaded *p;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        signal(usual[i], SIG_DFL);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* what it prints must not enter a table or a stream of text */
    tn_guard_mute();
    probe->status = tn_plugin_open(path, &p);
    if (probe->status < 0)
        snprintf(probe->why, sizeof probe->why, "%s", tn_error_text());
    else
        tn_plugin_ask(p, probe);
    write_all(out, probe, sizeof *probe);
    _exit(0);
}

/* --- the parent */
static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* 1 when all came, 0 at the end of the pipe, -1 when time is up. */
static int read_all(int fd, void *to, size_t bytes, int64_t until)
{
    size_t done = 0;

    while (done < bytes) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = until - now_ms();
        int r = poll(&p, 1, left > 0 ? (int)left : 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return -1;
        ssize_t k = read(fd, (char *)to + done, bytes - done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return 0;
        done += (size_t)k;
    }
    return 1;
}

/* The child's end, by itself or by us; *got is -1 if it had to be ended. What closed the pipe need not have ended. */
static int reap(pid_t pid, int64_t until, int *got)
{
    siginfo_t how = {0};
    int status = 0;

    while (!*got && !how.si_pid && (waitid(P_PID, (id_t)pid, &how, WEXITED | WNOHANG | WNOWAIT) == 0 || errno == EINTR)) {
        if (!how.si_pid && now_ms() > until)
            *got = -1;
        else if (!how.si_pid)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (*got)
        kill(pid, SIGKILL);                      /* it has answered, or never will; it may have left its group */
    kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static void judge(const char *path, int got, int status, struct tn_probe *out)
{
    char cause[160];

    if (got > 0) {
        tidy(out);
        return;
    }
    memset(out, 0, sizeof *out);
    out->status = TN_ERR_INPUT;
    if (got < 0)
        snprintf(cause, sizeof cause, "did not answer within %d s while it was loaded and asked",
                 TN_PROBE_SECONDS);
    else if (WIFSIGNALED(status))
        snprintf(cause, sizeof cause, "crashed while it was loaded and asked (signal %d, %s)",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == TN_GUARD_EXITED)
        snprintf(cause, sizeof cause, "called exit() while it was loaded and asked");
    else
        snprintf(cause, sizeof cause, "left with status %d while it was loaded and asked",
                 WEXITSTATUS(status));
    snprintf(out->why, sizeof out->why, "%.300s: %s", path, cause);
}

tn_status tn_plugin_probe(const char *path, struct tn_probe *out)
{
    int64_t until = now_ms() + TN_PROBE_SECONDS * 1000;
    int fd[2];

    memset(out, 0, sizeof *out);
    if (tn_pool_threads() > 1)
        return tn_error(TN_ERR,
                        "%.300s: cannot be probed any more, since %u threads run; plugins are chosen before",
                        path, tn_pool_threads());
    if (pipe2(fd, O_CLOEXEC))
        return tn_error(TN_ERR_IO, "%.300s: cannot be probed: %s", path, strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        close(fd[0]);
        close(fd[1]);
        return tn_error(TN_ERR_IO, "%.300s: cannot be probed: %s", path, strerror(errno));
    }
    if (!pid) {
        close(fd[0]);
        child(path, fd[1], out);
    }
    setpgid(pid, pid);                           /* both do it, so neither is too late */
    close(fd[1]);
    int got = read_all(fd[0], out, sizeof *out, until);
    close(fd[0]);
    int status = reap(pid, until, &got);
    judge(path, got, status, out);
    return TN_OK;
}

const struct tn_offer *tn_probe_offer(const struct tn_probe *p, const char *id)
{
    for (uint32_t i = 0; i < p->offers; i++)
        if (!strcmp(p->offer[i].id, id))
            return &p->offer[i];
    return NULL;
}
