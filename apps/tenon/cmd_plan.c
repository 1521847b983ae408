/* cmd_plan.c - tenon plan: what a run would cost, before anything is allocated.
 *
 * The graph is built and planned as for training, and nothing else: no memory of a device, no data but the
 * size of their vocabulary. --dump-after shows the graph between the passes, as text. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/config.h"
#include "base/near.h"
#include "graph/graph.h"
#include "options.h"
#include "plan.h"
#include "ranks.h"
#include "train/engine.h"
#include "train/schedule.h"
#include "vocabulary.h"

/* --- the graph between the passes */
struct dump {
    struct tn_arena *arena;
    const char *wanted;                          /* a step, all or list; NULL: none */
    const char **step;                           /* [steps]: those that came */
    size_t steps, shown;
};

static void dump_step(void *ctx, const char *step, struct tn_graph *g)
{
    struct dump *d = ctx;

    d->step = tn_alloc_grow(d->arena, d->step, d->steps, sizeof *d->step);
    d->step[d->steps++] = tn_text(d->arena, "%s", step);
    if (!d->wanted || !strcmp(d->wanted, "list") || (strcmp(d->wanted, "all") && strcmp(d->wanted, step)))
        return;
    printf("# after %s\n%s", step, tn_graph_dump(g, d->arena, NULL));
    d->shown++;
}

static tn_status dump_end(const struct dump *d)
{
    struct tn_near near = {.word = d->wanted};
    char all[400] = "";

    for (size_t i = 0; i < d->steps; i++) {
        tn_near_try(&near, d->step[i]);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", d->step[i]);
    }
    if (!strcmp(d->wanted, "list"))
        printf("%s\n", all);
    else if (d->shown == 0)
        return tn_error(TN_ERR_CONFIG,
                        "plan: --dump-after %.60s: there is no such step; there are all, %s%s%s%s", d->wanted,
                        all, near.best ? "; did you mean " : "", near.best ? near.best : "",
                        near.best ? "?" : "");
    return TN_OK;
}

/* --- does it fit? */

/* "80G", "512 MB": powers of ten, as plan prints them. 0: no size. */
static double read_size(const char *text)
{
    static const char unit[] = "kMGT";
    char *end;
    double x = strtod(text, &end);

    end += strspn(end, " ");
    for (int u = 0; unit[u] && *end; u++)
        if (*end == unit[u] || (u == 0 && *end == 'K')) {
            for (int k = 0; k <= u; k++)
                x *= 1000;
            end++;
            break;
        }
    end += *end == 'B';
    return *end || !(x > 0) ? 0 : x;
}

/* Of the device that is here; 0 if it does not say. */
static double device_memory(const struct tn_session *s)
{
    const struct tn_device_api *api = tn_session_engine(s)->device_api;
    struct tn_device_info info = {.struct_size = sizeof info};
    struct tn_device *d = NULL;

    if (api->open(0, &d) < 0)
        return 0;
    if (api->info(d, &info) < 0)
        info.memory_total = 0;
    api->close(d);
    return (double)info.memory_total;
}

static tn_status check_fit(const struct options *o, const struct tn_session *s, double most, double all)
{
    const char *given = options_text(o, "memory");
    double have = given ? read_size(given) : device_memory(s);
    int64_t world = tn_session_shape(s)->world;
    char need[32], there[32], total[32];

    plan_size(most, need), plan_size(have, there), plan_size(all, total);
    if (have == 0)
        return TN_OK;
    printf("%-18s %12s   %s; a rank needs %s", "memory", there,
           given ? "of a device, as --memory says" : "of the device that is here", need);
    if (world > 1)
        printf(", all %lld ranks %s", (long long)world, total);
    printf("\n");
    if (most <= have)
        return TN_OK;
    return tn_error(TN_ERR_MEMORY,
                    "plan: a rank needs %s, and a device has %s: fewer sequences at once "
                    "(train.micro_batch), train.recompute = yes "
                    "or backend.dtype = bf16 make activations smaller; parallel.zero = 3 over more ranks, or "
                    "parallel.tp, the rest",
                    need, there);
}

/* --- the command */

static tn_status print(const struct options *o, struct tn_session *s)
{
    const struct tn_plan *plan = tn_session_plan(s, TN_SESSION_TRAIN);
    struct tn_plan_report report;
    double most, all;
    tn_status status = TN_OK;

    tn_plan_sum(plan, &report);
    most = all = (double)report.total;
    plan_print_model(s);
    if (tn_session_shape(s)->world == 1) {
        plan_print_memory(&report);
        plan_print_work(s, &report, 0);
        plan_print_launches(plan, &report);
    }
    if (options_given(o, "kernels"))
        plan_print_kernels(plan);
    if (options_given(o, "schedule"))
        status = plan_schedule(s);
    if (status == TN_OK && tn_session_shape(s)->world > 1)
        status = plan_ranks(s, &most, &all);
    return status ? status : check_fit(o, s, most, all);
}

static tn_status show(const struct options *o, struct tn_session *s)
{
    struct dump d = {.arena = tn_arena_new(), .wanted = options_text(o, "dump-after")};
    const struct tn_session_options use = {
        .use = TN_SESSION_TRAIN, .plan_only = 1, .dump_after = "all", .dump = dump_step, .dump_ctx = &d};
    tn_status status = tn_session_open(s, &use);

    if (status == TN_OK)
        status = d.wanted ? dump_end(&d) : print(o, s);
    tn_arena_free(d.arena);
    return status;
}

/* How many ranks: as --world says, else those of [parallel]; 0: those that a launcher started, or this one
 * alone. */
static tn_status count_ranks(const struct options *o, const struct tn_config *c, int64_t *world)
{
    int launched;
    tn_status status = ranks_launched(c, &launched);

    *world = options_given(o, "world")         ? options_int(o, "world")
             : launched || ranks_asked(c) == 1 ? 0
                                               : ranks_asked(c);
    if (options_given(o, "memory") && read_size(options_text(o, "memory")) == 0)
        return tn_error(TN_ERR_CONFIG, "plan: --memory %.60s: expected a size such as 80G",
                        options_text(o, "memory"));
    return status;
}

static tn_status plan(const struct options *o)
{
    struct tn_place place = {.struct_size = sizeof place};
    struct tn_config *c = NULL;
    struct tn_session *s = NULL;
    int64_t world = 0;
    tn_status status = tn_config_open(o->file[0], o->settings, o->setting, &c);

    if (status == TN_OK)
        status = count_ranks(o, c, &world);
    if (status == TN_OK) {
        tn_schedule_check(c);
        place.size = (uint32_t)world;
        status = tn_session_configure_at(c, world ? &place : NULL, &s);
    }
    if (status == TN_OK)
        status = vocabulary_settle(c);
    if (status == TN_OK && tn_session_shape(s)->rank == 0)
        status = show(o, s);
    tn_session_close(s);
    tn_config_free(c);
    return status;
}

static int cmd_plan(int argc, char **argv)
{
    struct options o;
    tn_status status = options_parse(&plan_command, argc, argv, &o);

    if (status >= 0)
        status = plan(&o);
    options_free(&o);
    return command_end(status);
}

static const struct option options[] = {
    {.name = "dump-after",
     .value = "STEP",
     .help = "Print the graph after this step of the passes; all: after every one; list: the names"},
    {.name = "kernels",
     .help = "Print every launch: where in the model, by which plugin, how often, how much"},
    {.name = "schedule",
     .help = "Print the stages of the pipeline, the order in which each rank works, and its pauses"},
    {.name = "world",
     .value = "N",
     .help = "Plan for N ranks, whatever is here (default: those of the launcher, else the product of the "
             "axes in [parallel])",
     .type = TN_KEY_INT,
     .low = 1,
     .high = 65536},
    {.name = "memory",
     .value = "SIZE",
     .help = "Memory of one device, such as 80G (default: that of the device that is here)"},
    {0},
};

const struct command plan_command = {
    .name = "plan",
    .help = "Says what a run costs before it begins: memory, FLOPs, launches, bytes on the wire; for one "
            "rank or many",
    .usage = "[CFG] [section.key=value ...] [--world N] [--memory SIZE] [--dump-after STEP] [--kernels] "
             "[--schedule]",
    .detail = "Nothing is allocated on the device and no file is read but the configuration and the data's "
              "meta.json. Many ranks need no launcher: their plans, groups and collectives follow from the "
              "mesh; ranks that are "
              "alike share a line. What cannot fit the memory of a device ends with status 1.",
    .options = options,
    .files_max = 1,
    .settings = 1,
    .run = cmd_plan,
};
