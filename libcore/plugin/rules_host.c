/* rules_host.c - the host's functions that plugins call, with their rules in front: see rules.h. */
#include <tenon/pass.h>
#include "base/pool.h"
#include "plugin/host.h"
#include "plugin/rules_own.h"

struct body {
    void (*range)(void *arg, int64_t lo, int64_t hi);
    void (*team)(void *arg, uint32_t thread, uint32_t threads);
    void *arg;
};

static void in_range(void *arg, int64_t lo, int64_t hi)
{
    const struct body *b = arg;

    tn_rule_thread.body++;
    b->range(b->arg, lo, hi);
    tn_rule_thread.body--;
}

static void in_members(void *arg, uint32_t thread, uint32_t threads)
{
    const struct body *b = arg;

    tn_rule_thread.body++, tn_rule_thread.team++;
    b->team(b->arg, thread, threads);
    tn_rule_thread.body--, tn_rule_thread.team--;
}

static void host_parallel(int64_t n, int64_t grain, void (*body)(void *arg, int64_t lo, int64_t hi), void *arg)
{
    struct body b = {.range = body, .arg = arg};

    if (!body)
        tn_rule_broken(HERE, "parallel is called without a body");
    if (!tn_rule_may_compute())
        tn_rule_broken(HERE, "parallel is called on a thread of the plugin's own; it is for the executor's thread");
    tn_pool_parallel(n, grain, in_range, &b);
}

static void host_team(void (*body)(void *arg, uint32_t thread, uint32_t threads), void *arg)
{
    struct body b = {.team = body, .arg = arg};

    if (!body)
        tn_rule_broken(HERE, "team is called without a body");
    if (!tn_rule_may_compute())
        tn_rule_broken(HERE, "team is called on a thread of the plugin's own; it is for the executor's thread");
    tn_pool_team(in_members, &b);
}

static void host_barrier(void)
{
    if (!tn_rule_thread.team)
        tn_rule_broken(HERE, "barrier is called outside of a team");
    tn_pool_barrier();
}

static void (*error_below)(tn_status code, const char *text, const char *file, int32_t line);

static void host_error(tn_status code, const char *text, const char *file, int32_t line)
{
    if (!text || !*text)
        tn_rule_broken(HERE, "an error is recorded without a sentence");
    if (code >= 0)
        tn_rule_broken(HERE, "the error \"%.200s\" is recorded with status %d, which is none", text, (int)code);
    error_below(code, text, file, line);
}

/* In place of every function of the graph's table. */
static void outside(void)
{
    tn_rule_broken(HERE, "a function of the graph is called, and no graph is being built");
}

static const struct tn_graph_api *building;      /* the real table, while the other one is shown */
static union {
    struct tn_graph_api api;
    void (*function[sizeof(struct tn_graph_api) / sizeof(void (*)(void))])(void);
} nothing;

void tn_rules_show_graph(int shown)
{
    if (shown && building) {
        tn_host_table.graph = building;
        building = NULL;
    } else if (!shown && !building && tn_host_table.graph) {
        for (size_t i = 1; i < sizeof nothing / sizeof nothing.function[0]; i++)
            nothing.function[i] = outside;
        nothing.api.struct_size = sizeof nothing.api;
        building = tn_host_table.graph;
        tn_host_table.graph = &nothing.api;
    }
}

void tn_rules_host(void)
{
    error_below = tn_host_table.error;
    tn_host_table.error = host_error;
    tn_host_table.parallel = host_parallel;
    tn_host_table.team = host_team;
    tn_host_table.barrier = host_barrier;
}
