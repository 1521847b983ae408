/* child.c - tests in a process of their own.
 *
 * The child is a group of processes, writes each test's result into a pipe and leaves by _exit; what it prints goes to a
 * file in memory, of which a failure shows the end. Where no result comes, the way it ended is the result: a signal, an
 * exit, or the time limit. Whatever it has started ends with it.
 *
 * Tests that say so share a child, one after the other, for what they need may be slow to open. The first failure ends
 * that child, and another one goes on behind it. A failure that was not the first test of its child is tried again alone,
 * so that it is known whether the problem fails or what came before it has done the damage. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
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
#define LEAST_SHARED 32u
#define MOST_SHARED 256u                         /* tests in one child */
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
static jmp_buf next_test;
static int is_last;

/* At most PIPE_BUF bytes, so it arrives as a whole. */
static void answer(const struct check_result *result)
{
    if (getpid() == tester && write(answer_to, result, sizeof *result) != sizeof *result)
        _exit(3);
}

/* Of a test that has come to its end before its function has. */
_Noreturn static void leave(struct check_result *result)
{
    answer(result);
    if (getpid() == tester && !is_last && result->state != CHECK_FAILED)
        longjmp(next_test, 1);
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

static void run_one(struct check_run *r, const struct check_test *t, int first)
{
    *r->result = (struct check_result){0};
    r->test = t;
    if (!first) {                                /* as in a process that is new */
        tn_error_clear();
        tn_bench_threads(1);
        fflush(NULL);
        if (!ftruncate(STDOUT_FILENO, 0))
            lseek(STDOUT_FILENO, 0, SEEK_SET);
    }
    if (setjmp(next_test))
        return;
    t->run(r);
    r->result->state = CHECK_PASSED;
    answer(r->result);
}

_Noreturn static void child(const struct check_subject *s, const struct check_test *t, uint32_t n, int answers, int printed)
{
    static struct check_result result;
    static struct check_run r;
    const struct rlimit none = {0, 0};

    r.subject = s, r.result = &result;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &none);
    dup2(printed, STDOUT_FILENO), dup2(printed, STDERR_FILENO);
    setvbuf(stdout, NULL, _IOLBF, 0);
    answer_to = answers, tester = getpid(), current = &r;
    tn_guard_mute();
    tn_rules_begin();
    catch_faults();
    for (uint32_t i = 0; i < n; i++) {
        is_last = i + 1 == n;
        run_one(&r, &t[i], !i);
    }
    _exit(0);
}

/* --- in the parent */

struct job {                                     /* a child, and its tests */
    struct check_test *test;
    uint32_t n, ended, failed;                   /* ended: how many have; failed: the last of those, which is the end */
    pid_t pid;
    int answer, printed;
    double begin;                                /* of the test that is under way */
};

struct stretch {                                 /* of the list, still to be run */
    struct check_test *test;
    uint32_t n, reserved0;
};

struct schedule {
    const struct check_subject *subject;
    struct check_list *list;
    uint32_t next, jobs, n, running;             /* next: of the list; n: stretches that come before it */
    struct stretch *stretch;                     /* room for two for each test */
    struct job job[MOST_JOBS];
    void (*done)(const struct check_test *t);
};

static tn_status begin(const struct check_subject *s, const struct stretch *of, struct job *j)
{
    int fd[2];

    *j = (struct job){.test = of->test, .n = of->n, .begin = check_now()};
    if (pipe2(fd, O_CLOEXEC))
        return tn_error(TN_ERR_IO, "no pipe for a test: %s", strerror(errno));
    j->printed = memfd_create("test", MFD_CLOEXEC);
    fflush(NULL);
    j->pid = j->printed < 0 ? -1 : fork();
    if (!j->pid)
        child(s, of->test, of->n, fd[1], j->printed);
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

/* To be run before what follows in the list. */
static void put(struct schedule *s, struct check_test *t, uint32_t n)
{
    if (n)
        s->stretch[s->n++] = (struct stretch){.test = t, .n = n};
}

/* The test under way has come to this end. */
static void settle(struct schedule *s, struct job *j, struct check_result r)
{
    struct check_test *t = &j->test[j->ended++];
    const int again = t->result.state == CHECK_FAILED;           /* it has failed behind others; now it was alone */

    r.why[sizeof r.why - 1] = 0;
    r.state = r.state > CHECK_SKIPPED ? CHECK_FAILED : r.state;
    r.seconds = check_now() - j->begin;
    j->begin = check_now();
    j->failed = r.state == CHECK_FAILED;
    if (j->failed)
        add_printed(j, r.why, sizeof r.why);
    tn_plain(r.why, 0);
    if (!again || j->failed)
        t->result = r;
    if (j->failed && j->ended > 1) {
        snprintf(t->result.why, sizeof t->result.why, "not alone, but behind others in one process, from %s on: %.1000s",
                 j->test[0].name, r.why);
        put(s, t, 1);
    } else if (s->done) {
        s->done(t);
    }
}

static void receive(struct schedule *s, struct job *j)
{
    struct pollfd p = {.fd = j->answer, .events = POLLIN};
    struct check_result r;

    while (j->ended < j->n && !j->failed && poll(&p, 1, 0) == 1 && read(j->answer, &r, sizeof r) == sizeof r)
        settle(s, j, r);
}

/* Without an answer: how the child ended. */
static void blame(struct schedule *s, struct job *j, int status, int late)
{
    struct check_result r = {.state = CHECK_FAILED};

    if (late)
        snprintf(r.why, sizeof r.why, "did not end within %g s", j->test[j->ended].limit);
    else if (WIFSIGNALED(status))
        snprintf(r.why, sizeof r.why, "was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == TN_GUARD_EXITED)
        snprintf(r.why, sizeof r.why, "called exit()");
    else
        snprintf(r.why, sizeof r.why, "left the process with status %d", WEXITSTATUS(status));
    settle(s, j, r);
}

/* Did it end, or must it? */
static int finish(struct schedule *s, struct job *j)
{
    int status = 0, late;

    receive(s, j);
    late = j->ended < j->n && check_now() - j->begin > j->test[j->ended].limit;
    if (late)
        kill(-j->pid, SIGKILL), kill(j->pid, SIGKILL);      /* it may have left its group */
    if (waitpid(j->pid, &status, late ? 0 : WNOHANG) != j->pid)
        return 0;
    kill(-j->pid, SIGKILL);                      /* what it left behind */
    receive(s, j);
    if (j->ended < j->n && !j->failed)
        blame(s, j, status, late);
    put(s, j->test + j->ended, j->n - j->ended);
    close(j->answer), close(j->printed);
    return 1;
}

/* Until one of them has answered, or ended. */
static void wait_for_one(const struct schedule *s)
{
    struct pollfd p[MOST_JOBS];

    for (uint32_t i = 0; i < s->running; i++)
        p[i] = (struct pollfd){.fd = s->job[i].answer, .events = POLLIN};
    poll(p, s->running, 20);
    nanosleep(&(struct timespec){0, 200000}, NULL); /* it has answered, and may end now */
}

/* What comes next; of tests that share a child a part, so that the others have something to do at the end too. */
static struct stretch next_stretch(struct schedule *s)
{
    struct stretch out = {.test = &s->list->test[s->next], .n = 1};
    uint32_t shared = 0;

    if (s->n)
        return s->stretch[--s->n];
    while (s->next + shared < s->list->n && out.test[shared].shared)
        shared++;
    if (shared) {
        const uint32_t part = shared / (2 * s->jobs);

        out.n = part < LEAST_SHARED ? LEAST_SHARED : part > MOST_SHARED ? MOST_SHARED : part;
        out.n = out.n < shared ? out.n : shared;
    }
    s->next += out.n;
    return out;
}

static int has_next(const struct schedule *s)
{
    const uint32_t alone = s->next < s->list->n && s->list->test[s->next].alone;

    if (s->running == s->jobs || (s->running && s->job[0].test->alone))
        return 0;
    return s->n || (s->next < s->list->n && !(s->running && alone));
}

static tn_status run_schedule(struct schedule *s)
{
    tn_status st = TN_OK;

    while (!st && (s->next < s->list->n || s->n || s->running)) {
        if (has_next(s)) {
            const struct stretch of = next_stretch(s);

            st = begin(s->subject, &of, &s->job[s->running]);
            s->running += !st;
            continue;
        }
        wait_for_one(s);
        for (uint32_t i = 0; i < s->running;)
            if (finish(s, &s->job[i]))
                s->job[i] = s->job[--s->running];
            else
                i++;
    }
    return st;
}

tn_status check_run_all(const struct check_subject *s, struct check_list *l, uint32_t jobs,
                        void (*done)(const struct check_test *t))
{
    struct schedule schedule = {.subject = s, .list = l, .done = done};
    tn_status st;

    schedule.jobs = jobs < 1 ? 1 : jobs > MOST_JOBS ? MOST_JOBS : jobs;
    schedule.stretch = calloc(2 * (size_t)l->n + 1, sizeof *schedule.stretch);
    if (!schedule.stretch)
        return tn_error(TN_ERR_MEMORY, "no memory for a list of %u tests", l->n);
    st = run_schedule(&schedule);
    free(schedule.stretch);
    return st;
}
