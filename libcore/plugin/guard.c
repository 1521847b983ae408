/* guard.c - signal handlers, an exit handler and an alarm around plugin code, and a look at the process after it: see
 * guard.h.
 *
 * All text is made before; the handlers only copy and write. They run on a stack of their own, since what
 * crashes may have used up the other. */
#include "plugin/guard.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/status.h"
#include "plugin/process.h"

static const struct {
    int number;
    const char *name;
} signals[] = {
    {SIGSEGV, "crashed (segmentation fault, SIGSEGV) "},
    {SIGBUS, "crashed (bus error, SIGBUS) "},
    {SIGILL, "crashed (illegal instruction, SIGILL: perhaps one that this CPU does not have) "},
    {SIGFPE, "crashed (arithmetic error, SIGFPE) "},
    {SIGABRT, "gave up (abort, SIGABRT: what an exception does that nobody catches) "},
    {SIGALRM, "did not return in time "},
};
#define SIGNALS (sizeof signals / sizeof *signals)

static volatile sig_atomic_t active, muted;
static char head[600], tail[160];
static char stack[65536];
static struct sigaction old_action[SIGNALS];
static stack_t old_stack;
static struct itimerval old_timer;
static struct tn_process before;

/* Async-signal-safe. Exit status 2: a file that the user named is to blame. */
_Noreturn static void leave(const char *cause)
{
    char text[sizeof head + sizeof tail + 64];
    size_t n = 0;
    const char *part[3] = {head, cause, tail};

    for (int i = 0; i < 3; i++) {
        size_t k = strlen(part[i]);
        memcpy(text + n, part[i], k);
        n += k;
    }
    while (n && write(STDERR_FILENO, text, n) < 0)
        break;
    _exit(2);
}

static void on_signal(int number)
{
    for (size_t i = 0; i < SIGNALS; i++)
        if (signals[i].number == number)
            leave(signals[i].name);
    leave("crashed ");
}

static void on_exit_called(void)
{
    if (!active)
        return;
    if (muted)
        _exit(TN_GUARD_EXITED);
    leave("called exit() ");
}

static void set_alarm(unsigned seconds)
{
    struct itimerval t = {{0, 0}, {(time_t)seconds, 0}};

    setitimer(ITIMER_REAL, &t, &old_timer);
}

void tn_guard_begin(const char *path, const char *doing, unsigned seconds)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};

    /* last in, first out: again each time, so that it comes before those of plugins loaded since */
    atexit(on_exit_called);
    at_quick_exit(on_exit_called);
    active = 1;
    if (muted)
        return;
    snprintf(head, sizeof head, "tenon: %s ", path);
    snprintf(tail, sizeof tail, "%s\n", doing);
    tn_process_note(&before);
    sigaltstack(&own, &old_stack);
    for (size_t i = 0; i < SIGNALS; i++)
        sigaction(signals[i].number, &a, &old_action[i]);
    set_alarm(seconds);
}

/* head and tail: "tenon: PATH " and "while it was loaded\n". */
static void mend(void)
{
    char what[400];

    if (tn_process_compare(&before, what, sizeof what)) {
        tn_process_restore(&before);
        tn_log(TN_LOG_WARNING, "%s%s %.*s; it was put back", head + strlen("tenon: "), what, (int)strcspn(tail, "\n"), tail);
    }
    tn_process_drop(&before);
}

void tn_guard_end(void)
{
    active = 0;
    if (muted)
        return;
    setitimer(ITIMER_REAL, &old_timer, NULL);
    for (size_t i = 0; i < SIGNALS; i++)
        sigaction(signals[i].number, &old_action[i], NULL);
    sigaltstack(&old_stack, NULL);
    mend();
}

void tn_guard_mute(void)
{
    muted = 1;
}

int tn_guard_is_muted(void)
{
    return muted;
}
