/* child.c - a test in a process of its own.
 *
 * The child is a group of processes, writes its result into a pipe and leaves by _exit; what it prints goes to a file in
 * memory, of which a failure shows the end. Where no result comes, the way it ended is the result: a signal, an exit,
 * or the time limit. Whatever it has started ends with it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/plain.h"
#include "base/status.h"
#include "bench.h"
#include "suite.h"
#include "plugin/guard.h"
#include "plugin/rules.h"

#define MOST_JOBS 64
#define PRINTED 400                              /* bytes of what it printed, in a failure: the first and the last ones */

const char *const check_state_name[] = {"not run", "passed", "failed", "declined", "skipped"};

double check_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- in the child */

static int answer_to;
static pid_t tester;                             /* who answers: not a process that the test has forked */
static struct check_run *current;

_Noreturn static void leave(struct check_result *result)
{
    if (getpid() == tester && write(answer_to, result, sizeof *result) != sizeof *result)
        _exit(3);
    _exit(result->state == CHECK_FAILED);
}

_Noreturn static void end_with(struct check_run *r, uint32_t state, const char *fmt, va_list ap)
{
    r->result->state = state;
    vsnprintf(r->result->why, sizeof r->result->why, fmt, ap);
    fflush(NULL);
    leave(r->result);
}

void check_fail(struct check_run *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    end_with(r, CHECK_FAILED, fmt, ap);
}

void check_skip(struct check_run *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    end_with(r, CHECK_SKIPPED, fmt, ap);
}

void check_decline(struct check_run *r)
{
    r->result->state = CHECK_DECLINED;
    fflush(NULL);
    leave(r->result);
}

static char said[600];

const char *check_said_before(void)
{
    snprintf(said, sizeof said, "%s", tn_error_text());
    return *said ? ": " : "";
}

const char *check_said(void)
{
    if (!*said)
        snprintf(said, sizeof said, "%s", tn_error_text());
    tn_error_clear();
    return said;
}

/* An address within a bench says which buffer it was. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    struct check_result *r = current->result;
    char where[100];

    (void)context;
    if (getpid() != tester) {
        dprintf(STDERR_FILENO, "crashed: signal %d (%s)\n", number, strsignal(number));
        _exit(1);
    }
    r->state = CHECK_FAILED;
    if (tn_bench_fault(info->si_addr, where, sizeof where))
        snprintf(r->why, sizeof r->why, "crashed: it %s", where);
    else
        snprintf(r->why, sizeof r->why, "crashed: signal %d (%s) at address %p", number, strsignal(number), info->si_addr);
    leave(r);
}

static void catch_faults(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    static char stack[65536];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND};

    sigaltstack(&own, NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigaction(faults[i], &a, NULL);
}

_Noreturn static void child(const struct check_subject *s, struct check_test *t, int answer, int printed)
{
    const struct rlimit none = {0, 0};
    struct check_result result = {0};
    struct check_run r = {.subject = s, .test = t, .result = &result};

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    dup2(printed, STDOUT_FILENO), dup2(printed, STDERR_FILENO);
    setvbuf(stdout, NULL, _IOLBF, 0);
    answer_to = answer, tester = getpid(), current = &r;
    tn_guard_mute();
    tn_rules_begin();
    catch_faults();
    t->run(&r);
    result.state = CHECK_PASSED;
    leave(&result);
}

/* --- in the parent */

struct job {
    struct check_test *test;
    pid_t pid;
    int answer, printed;
    double begin;
};

static tn_status begin(const struct check_subject *s, struct check_test *t, struct job *j)
{
    int fd[2];

    *j = (struct job){.test = t, .begin = check_now()};
    if (pipe2(fd, O_CLOEXEC))
        return tn_error(TN_ERR_IO, "no pipe for a test: %s", strerror(errno));
    j->printed = memfd_create("test", MFD_CLOEXEC);
    fflush(NULL);
    j->pid = j->printed < 0 ? -1 : fork();
    if (!j->pid)
        child(s, t, fd[1], j->printed);
    j->answer = fd[0];
    close(fd[1]);
    if (j->pid < 0)
        return tn_error(TN_ERR_IO, "no process for a test: %s", strerror(errno));
    setpgid(j->pid, j->pid);                     /* both do it, so neither is too late */
    return TN_OK;
}

/* Of what it printed, which may be any bytes, a part as words of one line. */
static void printed(const struct job *j, off_t from, char *out, size_t bytes)
{
    const ssize_t n = pread(j->printed, out, bytes, from);
    size_t k = 0;

    for (ssize_t i = 0; i < n; i++) {
        const char c = (unsigned char)out[i] < 32 ? ' ' : (unsigned char)out[i] > 126 ? '?' : out[i];

        if (c != ' ' || (k && out[k - 1] != ' '))
            out[k++] = c;
    }
    k -= k && out[k - 1] == ' ';
    out[k] = 0;
}

/* The beginning has the cause, the end what came of it. */
static void add_printed(struct job *j, char *out, size_t room)
{
    const off_t end = lseek(j->printed, 0, SEEK_END);
    char first[PRINTED + 1], last[PRINTED / 2 + 1] = "";
    size_t k = strlen(out);

    if (end <= 0)
        return;
    printed(j, 0, first, end > PRINTED ? PRINTED / 2 : PRINTED);
    if (end > PRINTED)
        printed(j, end - PRINTED / 2, last, PRINTED / 2);
    snprintf(out + k, room - k, "%sit printed: %s%s%s", k ? "; " : "", first, *last ? " ... " : "", last);
}

static void judge(struct job *j, int status, int late)
{
    struct check_result *r = &j->test->result;
    const ssize_t n = late ? 0 : read(j->answer, r, sizeof *r);

    if (n != sizeof *r) {
        *r = (struct check_result){.state = CHECK_FAILED};
        if (late)
            snprintf(r->why, sizeof r->why, "did not end within %g s", j->test->limit);
        else if (WIFSIGNALED(status))
            snprintf(r->why, sizeof r->why, "was ended by signal %d (%s)", WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
        else if (WEXITSTATUS(status) == TN_GUARD_EXITED)
            snprintf(r->why, sizeof r->why, "called exit()");
        else
            snprintf(r->why, sizeof r->why, "left the process with status %d", WEXITSTATUS(status));
    }
    r->why[sizeof r->why - 1] = 0;
    r->state = r->state > CHECK_SKIPPED ? CHECK_FAILED : r->state;
    if (r->state == CHECK_FAILED)
        add_printed(j, r->why, sizeof r->why);
    tn_plain(r->why, 0);
    r->seconds = check_now() - j->begin;
}

/* Did it end, or must it? */
static int finish(struct job *j)
{
    const int late = check_now() - j->begin > j->test->limit;
    int status = 0;

    if (late)
        kill(-j->pid, SIGKILL), kill(j->pid, SIGKILL);      /* it may have left its group */
    if (waitpid(j->pid, &status, late ? 0 : WNOHANG) != j->pid)
        return 0;
    kill(-j->pid, SIGKILL);                      /* what it left behind */
    judge(j, status, late);
    close(j->answer), close(j->printed);
    return 1;
}

/* Until one of them has ended. */
static void wait_for_one(const struct job *job, uint32_t n)
{
    struct pollfd p[MOST_JOBS];

    for (uint32_t i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = job[i].answer, .events = POLLIN};
    poll(p, n, 20);
    nanosleep(&(struct timespec){0, 200000}, NULL); /* it has answered, and ends now */
}

tn_status check_run_all(const struct check_subject *s, struct check_list *l, uint32_t jobs,
                        void (*done)(const struct check_test *t))
{
    struct job job[MOST_JOBS];
    uint32_t n = 0, next = 0;

    jobs = jobs < 1 ? 1 : jobs > MOST_JOBS ? MOST_JOBS : jobs;
    while (next < l->n || n) {
        const int alone = n && job[0].test->alone;

        if (next < l->n && n < jobs && !alone && !(n && l->test[next].alone)) {
            const tn_status st = begin(s, &l->test[next], &job[n]);

            if (st < 0)
                return st;
            next++, n++;
            continue;
        }
        wait_for_one(job, n);
        for (uint32_t i = 0; i < n;)
            if (finish(&job[i])) {
                if (done)
                    done(job[i].test);
                job[i] = job[--n];
            } else
                i++;
    }
    return TN_OK;
}
