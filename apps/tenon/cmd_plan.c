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
#include "timeline.h"
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

/* What the device that is here says of itself; zeros if it does not. */
static struct tn_device_info look_at_device(const struct tn_session *s)
{
    const struct tn_device_api *api = tn_session_engine(s)->device_api;
    struct tn_device_info info = {.struct_size = sizeof info};
    struct tn_device *d = NULL;

    if (api->open(0, &d) < 0)
        return info;
    if (api->info(d, &info) < 0)
        info = (struct tn_device_info){.struct_size = sizeof info};
    api->close(d);
    return info;
}

/* How many parameters there could be, if all state were spread as it is here. */
static void print_room(const struct tn_session *s, const struct plan_total *t, double have)
{
    double n = (double)tn_session_shape(s)->n_parameters, world = (double)tn_session_shape(s)->world;

    printf("%-18s %12.3g   parameters at %.4g B each, all ranks together: itself, its gradient and the optimizer's state; "
           "no activations\n",
           "room for", world * have / (t->state / n), t->state / n);
}

static tn_status check_fit(const struct options *o, const struct tn_session *s, const struct plan_total *t, double have)
{
    int64_t world = tn_session_shape(s)->world;
    char need[32], there[32], total[32];

    plan_size(t->most, need), plan_size(have, there), plan_size(t->all, total);
    if (have == 0)
        return TN_OK;
    printf("%-18s %12s   %s; a rank needs %s", "memory", there,
           options_given(o, "memory") ? "of a device, as --memory says" : "of the device that is here", need);
    if (world > 1)
        printf(", all %lld ranks %s", (long long)world, total);
    printf("\n");
    print_room(s, t, have);
    if (t->most <= have)
        return TN_OK;
    return tn_error(TN_ERR_MEMORY,
                    "plan: a rank needs %s, and a device has %s: fewer sequences at once "
                    "(train.micro_batch), train.recompute = yes "
                    "or backend.dtype = bf16 make activations smaller; parallel.zero = 3 over more ranks, or "
                    "parallel.tp, the rest",
                    need, there);
}

/* --- the command */

static void print_one(const struct options *o, const struct tn_session *s, const struct plan_rates *rates, struct plan_total *out)
{
    const struct tn_plan *plan = tn_session_plan(s, TN_SESSION_TRAIN);
    struct tn_plan_report r;

    tn_plan_sum(plan, &r);
    *out = (struct plan_total){.most = (double)r.total,
                               .all = (double)r.total,
                               .state = (double)(r.parameters + r.gradients + r.states)};
    if (rates->flops > 0)
        out->slowest = tn_plan_roofline(plan, rates->flops, rates->memory);
    if (tn_session_shape(s)->world == 1) {
        plan_print_memory(&r);
        plan_print_work(s, &r, 0);
        plan_print_launches(plan, &r);
    }
    if (options_given(o, "kernels"))
        plan_print_kernels(plan);
    if (options_given(o, "memory-timeline"))
        timeline_print(plan, NULL);
}

static tn_status print(const struct options *o, const struct tn_config *c, struct tn_session *s)
{
    struct tn_device_info here = look_at_device(s);
    struct plan_rates rates;
    struct plan_total total;
    tn_status status = plan_rates_read(o, &here, tn_session_shape(s)->dtype, &rates);

    if (status < 0)
        return status;
    rates.updates = (double)tn_config_int(c, "train.steps");
    plan_print_model(s);
    print_one(o, s, &rates, &total);
    if (options_given(o, "schedule"))
        status = plan_schedule(s);
    if (status == TN_OK && tn_session_shape(s)->world > 1)
        status = plan_ranks(s, &rates, &total);
    if (status < 0)
        return status;
    plan_print_time(s, &rates, &total.slowest);
    return check_fit(o, s, &total,
                     options_given(o, "memory") ? plan_amount(options_text(o, "memory")) : (double)here.memory_total);
}

static tn_status show(const struct options *o, const struct tn_config *c, struct tn_session *s)
{
    struct dump d = {.arena = tn_arena_new(), .wanted = options_text(o, "dump-after")};
    const struct tn_session_options use = {
        .use = TN_SESSION_TRAIN, .plan_only = 1, .dump_after = "all", .dump = dump_step, .dump_ctx = &d};
    tn_status status = tn_session_open(s, &use);

    if (status == TN_OK)
        status = d.wanted ? dump_end(&d) : print(o, c, s);
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
    if (options_given(o, "memory") && plan_amount(options_text(o, "memory")) == 0)
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
        status = show(o, c, s);
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
    {.name = "memory-timeline",
     .help = "Print how much of the arena each launch needs, and which needs the most (tenon bench has the same option, and "
             "measures)"},
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
    {.name = "peak",
     .value = "RATE",
     .help = "FLOP/s of one device in the type that is computed in, dense, such as 989.5T (default: what the device that is "
             "here says of itself); prints the time of an update and of the training"},
    {.name = "bandwidth",
     .value = "RATE",
     .help = "Bytes a second of the device's memory, such as 3.35T (default: what the device that is here says)"},
    {.name = "mfu",
     .value = "SHARE",
     .help = "Share of the peak that training reaches, for one more line of the training's time",
     .type = TN_KEY_FLOAT,
     .low = 0.001,
     .high = 1},
    {.name = "tokens",
     .value = "N",
     .help = "Tokens of the whole training, such as 15T (default: those of train.steps updates)"},
    {.name = "parameters",
     .value = "N",
     .help = "Parameters to count in the training's time, such as 70G (default: the model's without its positions)"},
    {0},
};

const struct command plan_command = {
    .name = "plan",
    .help = "Says what a run costs before it begins: memory, FLOPs, launches, bytes on the wire; for one "
            "rank or many",
    .usage = "[CFG] [section.key=value ...] [--world N] [--memory SIZE] [--peak RATE] [--bandwidth RATE] "
             "[--mfu SHARE] [--tokens N] [--parameters N] [--dump-after STEP] [--kernels] "
             "[--memory-timeline] [--schedule]",
    .detail = "Nothing is allocated on the device and no file is read but the configuration and the data's "
              "meta.json. Many ranks need no launcher: their plans, groups and collectives follow from the "
              "mesh; ranks that are "
              "alike share a line. What cannot fit the memory of a device ends with status 1. Where the peak of a device is known, "
              "the time of an update follows from its launches (roofline) and that of the training from 6ND.",
    .options = options,
    .files_max = 1,
    .settings = 1,
    .run = cmd_plan,
};
