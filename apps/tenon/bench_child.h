/* bench_child.h - a command that is run to be compared: what it printed about its speed, and its memory. */
#ifndef TENON_BENCH_CHILD_H
#define TENON_BENCH_CHILD_H
#include <tenon/abi.h>

struct bench_child {
    double tokens_per_second;
    uint64_t peak_rss; /* bytes, of it or of its largest child */
};

/* Runs argv, which ends with NULL; its stderr is ours. An error if it fails, takes longer than limit seconds
 * or prints no speed. */
tn_status bench_child_run(char *const *argv, double limit, struct bench_child *out);

/* The speed in a text, numbers before tok/s and after "tokens_per_second": the median of all. 0: there is
 * none. */
double bench_child_speed(const char *text);
#endif
