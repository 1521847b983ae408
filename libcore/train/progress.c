/* progress.c - see progress.h. */
#include "train/progress.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define DRAW_EVERY 0.1                           /* seconds */
#define SMOOTH 0.05                              /* weight of the newest update in the pace */
#define LINE 256

double tn_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *tn_progress_time(double seconds, char *out, size_t bytes)
{
    long long s = seconds > 0 && seconds < 1e15 ? llround(seconds) : 0;

    if (s < 60)
        snprintf(out, bytes, "%llds", s);
    else if (s < 3600)
        snprintf(out, bytes, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, bytes, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        snprintf(out, bytes, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    return out;
}

void tn_progress_start(FILE *out, int64_t steps, int64_t interval, struct tn_progress *p)
{
    *p = (struct tn_progress){
        .out = out, .steps = steps, .interval = interval, .terminal = out && isatty(fileno(out))};
}

static int columns(const struct tn_progress *p)
{
    struct winsize w;

    if (p->width > 0)
        return p->width;
    return !ioctl(fileno(p->out), TIOCGWINSZ, &w) && w.ws_col > 0 ? w.ws_col : 80;
}

/* Adds a part if it fits: parts that matter more come first. */
__attribute__((format(printf, 3, 4))) static void part(char *line, size_t room, const char *fmt, ...)
{
    char text[64];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (strlen(line) + strlen(text) < room)
        strcat(line, text);
}

static void rate_text(double rate, char *out, size_t bytes)
{
    if (rate < 10000)
        snprintf(out, bytes, "%.0f", rate);
    else
        snprintf(out, bytes, rate < 1e7 ? "%.1fk" : "%.0fk", rate / 1000);
}

static void compose(const struct tn_progress *p, const struct tn_progress_update *u, char line[LINE],
                    size_t room)
{
    char rate[32], left[32];

    *line = 0;
    part(line, room, "step %lld/%lld", (long long)u->step, (long long)p->steps);
    part(line, room, "  loss %.4f", u->loss);
    part(line, room, "  lr %.2e", u->lr);
    part(line, room, "  norm %.3f", u->gnorm);
    rate_text(p->seconds > 0 ? p->tokens / p->seconds : 0, rate, sizeof rate);
    part(line, room, "  %s tokens/s", rate);
    tn_progress_time(p->pace * (double)(p->steps - u->step), left, sizeof left);
    if (u->step < p->steps)
        part(line, room, "  %s left", left);
}

/* Over what stands there; blanks cover what was longer. */
static void draw(struct tn_progress *p, const char *line)
{
    int n = (int)strlen(line);

    fprintf(p->out, "\r%s%*s", line, p->drawn > n ? p->drawn - n : 0, "");
    if (p->drawn > n)
        fprintf(p->out, "\r%s", line);
    fflush(p->out);
    p->drawn = n;
}

static void line_done(struct tn_progress *p)
{
    p->tokens = p->seconds = 0;
}

void tn_progress_update(struct tn_progress *p, const struct tn_progress_update *u)
{
    char line[LINE];
    double now = tn_seconds();
    int last = u->step >= p->steps;

    if (!p->out)
        return;
    p->pace = p->pace > 0 ? p->pace + SMOOTH * (u->seconds - p->pace) : u->seconds;
    p->tokens += u->tokens;
    p->seconds += u->seconds;
    if (++p->updates > TN_PROGRESS_WARMUP)
        p->all_tokens += u->tokens, p->all_seconds += u->seconds;
    if (p->terminal && (last || now - p->last_draw >= DRAW_EVERY)) {
        int width = columns(p);
        compose(p, u, line, width < LINE ? (size_t)(width > 1 ? width : 1) : LINE);
        draw(p, line);
        p->last_draw = now;
        line_done(p);
        if (last)
            tn_progress_end(p);
    } else if (!p->terminal && (last || u->step % p->interval == 0)) {
        compose(p, u, line, LINE);
        fprintf(p->out, "%s\n", line);
        fflush(p->out);
        line_done(p);
    }
}

double tn_progress_rate(const struct tn_progress *p)
{
    return p->all_seconds > 0 ? p->all_tokens / p->all_seconds : 0;
}

void tn_progress_sum(struct tn_progress *p)
{
    char rate[32];

    rate_text(tn_progress_rate(p), rate, sizeof rate);
    if (tn_progress_rate(p) > 0)
        tn_progress_say(p, "%s tokens/s over %lld updates, the first %d, validation and saving left out", rate,
                        (long long)p->updates - TN_PROGRESS_WARMUP, TN_PROGRESS_WARMUP);
}

void tn_progress_say(struct tn_progress *p, const char *fmt, ...)
{
    va_list ap;

    if (!p->out)
        return;
    if (p->drawn)
        draw(p, "");
    if (p->terminal)
        fputc('\r', p->out);
    va_start(ap, fmt);
    vfprintf(p->out, fmt, ap);
    va_end(ap);
    fputc('\n', p->out);
    fflush(p->out);
    p->last_draw = 0;
}

void tn_progress_end(struct tn_progress *p)
{
    if (!p->out)
        return;
    if (p->drawn)
        fputc('\n', p->out);
    fflush(p->out);
    p->drawn = 0;
}
