/* progress.h - what a run shows while it goes on.
 *
 * On a terminal one line that is drawn again and again, no wider than the terminal and no oftener than an eye
 * sees; elsewhere (a file, a pipe) one plain line for every train.log_interval updates. Messages have lines
 * of their own in both cases. Time is that of updates alone: validation and saving do not count in tokens per
 * second. */
#ifndef TN_TRAIN_PROGRESS_H
#define TN_TRAIN_PROGRESS_H
#include <stdint.h>
#include <stdio.h>

struct tn_progress_update {
    int64_t step;                                /* completed updates, this one included */
    double loss, gnorm, lr;
    double tokens, seconds;                      /* of this update */
};

struct tn_progress {
    FILE *out;                                   /* borrowed; NULL: nothing is shown */
    int64_t steps, interval;
    int terminal, width;                         /* width: columns; 0 asks the terminal */
    int drawn;                                   /* columns of the line that stands on the terminal */
    double last_draw, pace;                      /* seconds by the clock; seconds of an update, smoothed */
    double tokens, seconds;                      /* since the last line */
    int64_t updates;                             /* since the start */
    double all_tokens, all_seconds;              /* of those behind the warm-up */
};

#define TN_PROGRESS_WARMUP 5                     /* updates whose time says little: memory is touched, kernels are chosen */

/* steps: of the whole run. out NULL: a rank that says nothing. */
void tn_progress_start(FILE *out, int64_t steps, int64_t interval, struct tn_progress *p);
void tn_progress_update(struct tn_progress *p, const struct tn_progress_update *u);
/* Tokens a second since the start, without the warm-up; seconds are those of the updates alone. 0: none is behind it. */
double tn_progress_rate(const struct tn_progress *p);
/* That as the last line of a run; nothing where it is 0. */
void tn_progress_sum(struct tn_progress *p);
/* A line of its own. */
__attribute__((format(printf, 2, 3))) void tn_progress_say(struct tn_progress *p, const char *fmt, ...);
/* The line that stands on the terminal stays, what follows begins below it. */
void tn_progress_end(struct tn_progress *p);

/* "12s", "3m05s", "2h07m", "4d03h". Returns out. */
const char *tn_progress_time(double seconds, char *out, size_t bytes);
double tn_seconds(void);                         /* a clock that only goes forward */
#endif
