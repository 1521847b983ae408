/* test_comm.c - communicators that were built, against the list that all have to pass.
 *
 *     test_comm                              all that need no launcher
 *     test_comm PLUGIN [RANKS [CASE]]        some of it; TN_COMM_VERBOSE=1 says how long each case takes
 *     test_comm silent PLUGIN                what one of kit_comm.h says of a rank that is late, and one that is stopped
 *     test_comm time [PLUGIN]                latency and rate of two ranks, to look at */
#include <signal.h>
#include <stdlib.h>
#include "comm.h"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void time_one(struct tn_rank *r, uint64_t bytes, int n)
{
    float *x = calloc(1, bytes + 4);
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, x, x, bytes / 4, NULL, NULL, 0};
    double took[2000];

    for (int i = -n / 4; i < n; i++) {
        double begin = tn_comm_now();
        must(r, tn_comm_do(r, r->world, &t, 1) == TN_OK);
        if (i >= 0)
            took[i] = tn_comm_now() - begin;
    }
    qsort(took, (size_t)n, sizeof *took, by_size);
    if (r->rank == 0)
        printf("all_reduce of %8llu bytes: best %9.1f us, median %9.1f us\n", (unsigned long long)bytes,
               took[0] * 1e6, took[n / 2] * 1e6);
    free(x);
}

static void timed(struct tn_rank *r)
{
    time_one(r, 4 << 10, 2000);
    time_one(r, 64 << 10, 1000);
    time_one(r, 1 << 20, 200);
    time_one(r, 16 << 20, 20);
    time_one(r, 64 << 20, 8);
}

/* What a communicator of kit_comm.h says of a rank that is silent. */
static void silent(struct tn_rank *r, int sig, const char *sentence)
{
    float x = 1;
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, &x, &x, 1, NULL, NULL, 5};

    r->limit = 1;
    if (r->rank == 1 && sig)
        raise(sig);
    else if (r->rank == 1)
        tn_comm_sleep(2);
    must(r, tn_comm_do(r, r->world, &t, 1) < 0);
    must(r, tn_comm_says(sentence) && tn_comm_says("all_reduce 5"));
}

static void silent_late(struct tn_rank *r)
{
    silent(r, 0, "rank 1 runs, but is late or elsewhere: after 1 s it has not sent");
}

static void silent_stopped(struct tn_rank *r)
{
    silent(r, SIGSTOP, "rank 1 is stopped: after 1 s it has not sent");
}

static const struct tn_comm_case silences[] = {
    {"late", silent_late, 2, NOBODY, 0},
    {"stopped", silent_stopped, 2, 1, 0},
    {0},
};

/* How a plugin is tried: with these ranks, in this environment. */
static const struct {
    const char *plugin, *variable, *value;
    uint32_t from, to;
    int fails, hosts; /* the cases of failure, of two hosts, too */
    int launched;     /* by mpirun, else forked */
} tries[] = {
    {"self", NULL, NULL, 1, 1, 0, 0, 0},        {"gloo", NULL, NULL, 1, 4, 1, 1, 0},
    {"gloo", "TENON_SHM", "no", 2, 3, 1, 0, 0}, {"mpi", NULL, NULL, 1, 4, 0, 0, 1},
    {"gloo", "TENON_CMA", "no", 2, 3, 1, 0, 0}, {"mpi", "TENON_SHM", "no", 2, 2, 0, 0, 1},
    {"mpi", "TENON_SHM", "no", 3, 3, 1, 0, 1},
};

static const struct tn_comm_case timing[] = {
    {"time", timed, 2, NOBODY, 0},
    {0},
};

const struct tn_comm_case *tn_comm_list(const char *name)
{
    return !strcmp(name, "time") ? timing : !strcmp(name, "values") ? tn_comm_values : tn_comm_failures;
}

/* Cases of failure have limits of a second, which a busy machine may pass for reasons of its own: one counts
 * as failed when it has failed three times in a row. What is right is right at once. */
static int run_case(const char *plugin, const struct tn_comm_case *c, uint32_t n, int tries_left)
{
    while (tn_comm_run(plugin, c, n))
        if (--tries_left == 0)
            return 1;
    return 0;
}

static int run_list(const char *plugin, const struct tn_comm_case *c, uint32_t n, const char *only)
{
    int failed = 0, attempts = c == tn_comm_values ? 1 : 3;

    for (; c->name; c++)
        if (n >= c->least && (!only || !strcmp(only, c->name))) {
            double begin = tn_comm_now();
            failed += run_case(plugin, c, n, attempts);
            if (getenv("TN_COMM_VERBOSE"))
                printf("    %5.1f s %s\n", tn_comm_now() - begin, c->name);
        }
    return failed;
}

static int is_harmless(const struct tn_comm_case *c)
{
    return c->rank_fails == NOBODY;
}

static int launch(const char *plugin, const char *list, uint32_t n, uint32_t from, uint32_t to)
{
    const struct tn_comm_case *c = tn_comm_list(list);
    double begin = tn_comm_now();
    int failed = 1;

    for (int attempts = c == tn_comm_values ? 1 : 3; attempts && failed; attempts--)
        failed = tn_comm_launch(plugin, list, n, from, to);
    if (getenv("TN_COMM_VERBOSE"))
        printf("    %5.1f s %s to %s\n", tn_comm_now() - begin, c[from].name, c[to - 1].name);
    return failed;
}

/* Cases that leave all processes alive share one start of MPI; the others have one each. What is gloo's alone
 * is left out. */
static int launch_list(const char *plugin, const char *list, uint32_t n, const char *only)
{
    const struct tn_comm_case *c = tn_comm_list(list);
    int failed = 0;

    for (uint32_t from = 0, to; c[from].name; from = to) {
        to = from + 1;
        if (c[from].rank_fails == UNOPENED || c[from].least > n || (only && strcmp(only, c[from].name)))
            continue;
        while (!only && is_harmless(&c[from]) && c[to].name && is_harmless(&c[to]))
            to++;
        failed += launch(plugin, list, n, from, to);
    }
    return failed;
}

static int run_lists(size_t i, uint32_t n, const char *only)
{
    int failed = 0;

    if (tries[i].launched) {
        failed += launch_list(tries[i].plugin, "values", n, only);
        if (tries[i].fails)
            failed += launch_list(tries[i].plugin, "failures", n, only);
        return failed +
               (n == 2 && !tries[i].variable ? run_list(tries[i].plugin, tn_comm_unlaunched, n, only) : 0);
    }
    failed += run_list(tries[i].plugin, tn_comm_values, n, only);
    if (tries[i].fails)
        failed += run_list(tries[i].plugin, tn_comm_failures, n, only) +
                  run_list(tries[i].plugin, tn_comm_interface, n, only);
    return failed;
}

static int run_try(size_t i, uint32_t ranks, const char *only)
{
    int failed = 0;

    if (tries[i].variable)
        setenv(tries[i].variable, tries[i].value, 1);
    for (uint32_t n = tries[i].from; n <= tries[i].to; n++) {
        if (ranks && n != ranks)
            continue;
        double begin = tn_comm_now();
        int before = failed;
        failed += run_lists(i, n, only);
        printf("%s %s%s%s%s, %u ranks, %.1f s\n", failed == before ? "ok" : "FAIL", tries[i].plugin,
               tries[i].variable ? " " : "", tries[i].variable ? tries[i].variable : "",
               tries[i].variable ? "=no" : "", n, tn_comm_now() - begin);
    }
    if (tries[i].variable)
        unsetenv(tries[i].variable);
    return failed;
}

/* Half of the ranks on another host. */
static int run_hosts(const char *plugin, uint32_t ranks, const char *only)
{
    int failed = 0, ran = 0;

    for (uint32_t n = 3; n <= 4; n++)
        for (int cable = 0; cable < 2 && (!ranks || n == ranks); cable++) {
            if (tn_hosts_up(cable)) {
                failed += cable ? run_list(plugin, tn_comm_values, n, only) +
                                      run_list(plugin, tn_comm_two_hosts, n, only)
                                : run_list(plugin, tn_comm_no_cable, n, only);
                ran = 1;
            }
            tn_hosts_down();
        }
    printf("%s %s on two hosts\n",
           failed ? "FAIL"
           : ran  ? "ok"
                  : "left out (needs root and network namespaces):",
           plugin);
    return failed;
}

static int is_built(const char *plugin)
{
    char path[4096];
    const char *top = getenv("top_builddir");
    FILE *f;

    snprintf(path, sizeof path, "%s/plugins/%s/.libs/%s.so", top ? top : ".", plugin, plugin);
    f = fopen(path, "rb");
    return f && !fclose(f);
}

int main(int argc, char **argv)
{
    int failed = 0, ran = 0;

    tn_comm_words = 1;
    if (argc > 6 && !strcmp(argv[1], "launched"))
        return tn_comm_launched(argv + 2);
    if (argc > 2 && !strcmp(argv[1], "silent"))
        return tn_comm_run(argv[2], &silences[0], 2) | tn_comm_run(argv[2], &silences[1], 2);
    if (argc > 1 && !strcmp(argv[1], "time"))
        return argc > 2 && !strcmp(argv[2], "mpi") ? tn_comm_launch("mpi", "time", 2, 0, 1)
                                                   : tn_comm_run(argc > 2 ? argv[2] : "gloo", timing, 2);
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        if ((argc < 2 ? !tries[i].launched : !strcmp(argv[1], tries[i].plugin)) &&
            is_built(tries[i].plugin)) {
            const uint32_t ranks = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
            failed += run_try(i, ranks, argc > 3 ? argv[3] : NULL);
            if (tries[i].hosts)
                failed += run_hosts(tries[i].plugin, ranks, argc > 3 ? argv[3] : NULL);
            ran++;
        }
    return failed ? 1 : ran ? 0 : 77;
}
