/* bench_versus.c - two commands in turn: A B A B ..., since a machine that others use too is now faster, now
 * slower, and neighbours in time are what can be compared. Each run is a process of its own, ours too, so
 * memory of the one does not weigh on the other. */
#include <jansson.h>
#include <stdlib.h>

#include "bench.h"
#include "bench_child.h"

#define MOST_ARGUMENTS 8

/* This program, measuring what was asked for, for a program to read. */
static char **own_command(const struct options *o, struct tn_arena *arena)
{
    static const char *const passed[] = {"workload", "steps", "warmup"};
    char **argv =
        tn_alloc_array(arena, (size_t)o->files + (size_t)o->settings + MOST_ARGUMENTS + 1, sizeof *argv);
    int n = 0;

    argv[n++] = tn_text(arena, "/proc/self/exe");
    argv[n++] = tn_text(arena, "bench");
    argv[n++] = tn_text(arena, "--json");
    argv[n++] = tn_text(arena, "--no-rates");
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (options_given(o, passed[i]))
            argv[n++] = tn_text(arena, "--%s=%s", passed[i], options_text(o, passed[i]));
    for (int i = 0; i < o->settings; i++)
        argv[n++] = o->setting[i];
    for (int i = 0; i < o->files; i++)
        argv[n++] = o->file[i];
    return argv;
}

struct pairs {
    uint32_t n;
    double *own, *other, *ratio, *own_rss, *other_rss;
};

static tn_status run_pairs(const struct options *o, struct pairs *p, struct tn_arena *arena)
{
    char *other[] = {tn_text(arena, "/bin/sh"), tn_text(arena, "-c"),
                     tn_text(arena, "%s", options_text(o, "vs")), NULL};
    char **own = own_command(o, arena);
    double limit = options_float(o, "limit");
    struct bench_child a, b;

    for (uint32_t i = 0; i < p->n; i++) {
        tn_status s = bench_child_run(own, limit, &a);
        if (!s)
            s = bench_child_run(other, limit, &b);
        if (s)
            return s;
        p->own[i] = a.tokens_per_second, p->other[i] = b.tokens_per_second;
        p->ratio[i] = p->own[i] / p->other[i];
        p->own_rss[i] = (double)a.peak_rss / 1e6, p->other_rss[i] = (double)b.peak_rss / 1e6;
        if (options_given(o, "json"))
            continue;
        printf("pair %u: tenon %.0f tok/s, other %.0f tok/s, ratio %.3f\n", i + 1, p->own[i], p->other[i],
               p->ratio[i]);
        fflush(stdout);
    }
    return TN_OK;
}

static void span(const double *x, uint32_t n, double *low, double *high)
{
    *low = *high = x[0];
    for (uint32_t i = 1; i < n; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
}

static json_t *list(const double *x, uint32_t n)
{
    json_t *a = json_array();

    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(a, json_real(x[i]));
    return a;
}

static tn_status report(const struct options *o, const struct pairs *p)
{
    double own = tn_measure_median(p->own, p->n), other = tn_measure_median(p->other, p->n),
           ratio = tn_measure_median(p->ratio, p->n), own_rss = tn_measure_median(p->own_rss, p->n),
           other_rss = tn_measure_median(p->other_rss, p->n), low, high;
    json_t *j;
    int failed;

    span(p->ratio, p->n, &low, &high);
    if (!options_given(o, "json")) {
        printf("tenon  %.0f tok/s  peak RSS %.0f MB\nother  %.0f tok/s  peak RSS %.0f MB   %s\n", own,
               own_rss, other, other_rss, options_text(o, "vs"));
        printf("ratio  %.3f of tokens a second, median of %u pairs, from %.3f to %.3f; %.3f of peak memory\n",
               ratio, p->n, low, high, own_rss / other_rss);
        return TN_OK;
    }
    j = json_pack("{s:s s:i s:f s:f s:f s:f s:f s:f s:f s:o s:o}", "other_command", options_text(o, "vs"),
                  "pairs", (int)p->n, "tokens_per_second", own, "other_tokens_per_second", other, "ratio",
                  ratio, "ratio_min", low, "ratio_max", high, "peak_rss_mb", own_rss, "other_peak_rss_mb",
                  other_rss, "all", list(p->own, p->n), "other_all", list(p->other, p->n));
    failed = !j || json_dumpf(j, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(j);
    putchar('\n');
    return failed ? tn_error(TN_ERR_IO, "bench: the report could not be written as JSON") : TN_OK;
}

tn_status bench_versus(const struct options *o)
{
    struct tn_arena *arena = tn_arena_new();
    uint32_t n = (uint32_t)options_int(o, "pairs");
    struct pairs p = {n,
                      tn_alloc_array(arena, n, sizeof(double)),
                      tn_alloc_array(arena, n, sizeof(double)),
                      tn_alloc_array(arena, n, sizeof(double)),
                      tn_alloc_array(arena, n, sizeof(double)),
                      tn_alloc_array(arena, n, sizeof(double))};
    tn_status s = run_pairs(o, &p, arena);

    if (!s)
        s = report(o, &p);
    tn_arena_free(arena);
    return s;
}
