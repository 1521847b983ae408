/* bench_child.c - see bench_child.h.
 *
 * The child leads a process group of its own, so that a shell and all that it started end together: when the
 * time is over, and when a signal ends this program. */
#include "bench_child.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "train/measure.h"

#define MOST_TEXT (16u << 20)

/* --- what it says */

static double scale(char letter)
{
    return letter == 'k' || letter == 'K' ? 1e3 : letter == 'M' ? 1e6 : 1;
}

static const char *before_spaces(const char *text, const char *end)
{
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    return end;
}

/* "12.3k" or "12.3 k" that ends before `end`; 0 if there is no number. */
static double number_before(const char *text, const char *end)
{
    double factor = 1;

    end = before_spaces(text, end);
    if (end > text && scale(end[-1]) > 1) {
        factor = scale(end[-1]);
        end = before_spaces(text, end - 1);
    }
    const char *at = end;
    while (at > text && (isdigit((unsigned char)at[-1]) || at[-1] == '.'))
        at--;
    return at < end ? factor * strtod(at, NULL) : 0;
}

/* ": 123" */
static double number_after(const char *at)
{
    at += strspn(at, " \t");
    return *at == ':' ? strtod(at + 1, NULL) : 0;
}

static void add(struct tn_arena *arena, double **all, uint32_t *n, double x)
{
    if (!(x > 0))
        return;
    *all = tn_alloc_grow(arena, *all, *n, sizeof **all);
    (*all)[(*n)++] = x;
}

double bench_child_speed(const char *text)
{
    static const char key[] = "\"tokens_per_second\"", unit[] = "tok/s";
    struct tn_arena *arena = tn_arena_new();
    double *all = NULL, speed;
    uint32_t n = 0;

    for (const char *at = text; (at = strstr(at, unit)); at += sizeof unit - 1)
        add(arena, &all, &n, number_before(text, at));
    for (const char *at = text; (at = strstr(at, key));) {
        at += sizeof key - 1;
        add(arena, &all, &n, number_after(at));
    }
    speed = tn_measure_median(all, n);
    tn_arena_free(arena);
    return speed;
}

/* --- running it */

static volatile sig_atomic_t group; /* of the child, 0: none */

static void pass_on(int signal_number)
{
    if (group)
        kill(-(pid_t)group, SIGKILL);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void become(char *const *argv, const int out[2])
{
    int null = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL), signal(SIGHUP, SIG_DFL);
    dup2(null, 0);
    dup2(out[1], 1);
    close(out[0]), close(out[1]), close(null);
    execvp(argv[0], argv);
    dprintf(2, "tenon: %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* All that comes until the end or until `end`; 0 when the time was over. What is over MOST_TEXT is dropped.
 */
static int read_all(int fd, double end, char *text)
{
    size_t n = 0;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        double left = end - tn_measure_now();
        int ready = left <= 0 ? 0 : poll(&p, 1, left < 1 ? (int)(left * 1000) + 1 : 1000);
        char over[4096];
        if (left <= 0)
            break;
        if (ready <= 0)
            continue;
        int full = n >= MOST_TEXT;
        ssize_t got = read(fd, full ? over : text + n, full ? sizeof over : MOST_TEXT - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            text[n] = 0;
            return 1;
        }
        n += full ? 0 : (size_t)got;
    }
    text[n] = 0;
    return 0;
}

/* Waits for the end of the child too: it may have closed its output long before. */
static int wait_until(pid_t pid, double end, int *status, struct rusage *usage)
{
    for (;;) {
        pid_t got = wait4(pid, status, WNOHANG, usage);
        if (got == pid)
            return 1;
        if ((got < 0 && errno != EINTR) || tn_measure_now() > end)
            return 0;
        usleep(2000);
    }
}

static tn_status judge(const char *name, int in_time, double limit, int status, const char *text,
                       const struct rusage *u, struct bench_child *out)
{
    size_t length = strlen(text), tail = length > 200 ? length - 200 : 0;

    *out = (struct bench_child){bench_child_speed(text), (uint64_t)u->ru_maxrss * 1024};
    if (!in_time)
        return tn_error(TN_ERR_TIMEOUT, "bench: %.200s was not done after %g s (--limit) and was ended", name,
                        limit);
    if (WIFSIGNALED(status))
        return tn_error(TN_ERR, "bench: %.200s was ended by signal %d", name, WTERMSIG(status));
    if (WEXITSTATUS(status))
        return tn_error(TN_ERR, "bench: %.200s failed with exit status %d", name, WEXITSTATUS(status));
    if (!(out->tokens_per_second > 0))
        return tn_error(TN_ERR_INPUT,
                        "bench: %.200s printed neither a number before tok/s nor tokens_per_second; its "
                        "output ends with: %s",
                        name, text + tail);
    return TN_OK;
}

tn_status bench_child_run(char *const *argv, double limit, struct bench_child *out)
{
    const char *name = argv[1] && !strcmp(argv[1], "-c") && argv[2] ? argv[2] : "tenon bench";
    char *text = malloc(MOST_TEXT + 1);
    int pipes[2], status = 0, in_time;
    double end = tn_measure_now() + limit;
    struct rusage usage = {0};
    tn_status s;

    *out = (struct bench_child){0};
    if (!text || pipe(pipes)) {
        free(text);
        return tn_error(TN_ERR_IO, "bench: no pipe to %.200s: %s", name, strerror(errno));
    }
    pid_t pid = fork();
    if (!pid)
        become(argv, pipes);
    close(pipes[1]);
    setpgid(pid, pid);
    group = pid > 0 ? pid : 0;
    signal(SIGINT, pass_on), signal(SIGTERM, pass_on), signal(SIGHUP, pass_on);
    in_time = pid > 0 && read_all(pipes[0], end, text) && wait_until(pid, end, &status, &usage);
    close(pipes[0]);
    if (pid > 0 && !in_time) {
        kill(-pid, SIGKILL);
        wait4(pid, &status, 0, &usage);
    }
    group = 0;
    s = pid > 0 ? judge(name, in_time, limit, status, text, &usage, out)
                : tn_error(TN_ERR_IO, "bench: %.200s could not be started: %s", name, strerror(errno));
    free(text);
    return s;
}
