/* bench.h - what the files of tenon bench share.
 *
 *   cmd_bench.c        options, the session, the order of measurements
 *   bench_workload.c   settings of the workloads that go by name
 *   bench_text.c       the report for people, bench_json.c the one for programs
 *   bench_versus.c     two commands in turn, bench_child.c: running one */
#ifndef TENON_BENCH_H
#define TENON_BENCH_H
#include "options.h"
#include "train/measure.h"
#include "train/trace.h"

struct tn_config;

struct bench {
    const struct options *options;
    struct tn_arena *arena;
    struct tn_session *session;
    const char *name;                       /* of the workload, or of the configuration's file */
    double start;                           /* tn_measure_now of the command's beginning */
    double configured, opened, initialized; /* seconds since then: plugins, plan and memory, weights */
    struct tn_measure steps;
    int has_rates, has_nodes, has_trace;
    struct tn_trace_told trace;
    uint64_t traced;                        /* the update, counted from 0 */
    struct tn_measure_product *product, square;
    uint32_t n_product, side;
    double memory_rate;           /* bytes a second */
    struct tn_measure_node *node; /* worst first */
    uint32_t n_node;
    double node_seconds; /* of all */
    uint64_t *resident;  /* bytes after each launch of the first update; NULL: not asked for */
};

/* Seconds of a node that the roofline does not explain: its time less the longer of its FLOPs at the rate of
 * the square product and its bytes at the memory's rate; never below 0. */
double bench_lost(const struct bench *b, const struct tn_measure_node *n);

/* The step's share of what the device says is its peak: model FLOPs utilisation; the device says one. */
double bench_share(const struct bench *b);

void bench_text(const struct bench *b);
tn_status bench_json(const struct bench *b);

/* The settings of a workload, weaker than the command line, and how many updates say enough about it. */
void bench_workload(const char *name, struct tn_config *c, struct tn_measure_options *o);

/* Runs this program and the command of --vs in turn and prints the ratios. */
tn_status bench_versus(const struct options *o);
#endif
