/* cmd_bench.c - tenon bench: how fast a model trains here, and how fast the machine would let it.
 *
 * Whole updates are measured first, since only then the process holds what a training run would; after them
 * the rates of the machine, and last, where asked for, launches one by one. */
#include <stdlib.h>

#include "base/config.h"
#include "base/status.h"
#include "bench.h"
#include "train/schedule.h"
#include "vocabulary.h"
#include "world/world.h"

#define SEED 1
#define SQUARE 2048
#define SQUARE_DEVICE 8192 /* where the device says how fast it is, 2048 would be too small to show it */

double bench_lost(const struct bench *b, const struct tn_measure_node *n)
{
    double square = tn_measure_rate(&b->square, 1), compute = square > 0 ? n->flops / square : 0,
           moved = b->memory_rate > 0 ? n->bytes / b->memory_rate : 0,
           least = compute > moved ? compute : moved;

    return n->seconds > least ? n->seconds - least : 0;
}

double bench_share(const struct bench *b)
{
    return b->steps.flops / b->steps.median / (double)tn_session_shape(b->session)->world / b->steps.peak;
}

/* --- measuring */

static tn_status measure_rates(struct bench *b)
{
    tn_status s = tn_measure_products(b->session, b->arena, &b->product, &b->n_product);

    if (!s)
        s = tn_measure_square(b->session, b->steps.peak > 0 ? SQUARE_DEVICE : SQUARE, b->steps.peak > 0, b->arena,
                              &b->square, &b->side);
    if (!s)
        s = tn_measure_memory(b->session, &b->memory_rate);
    b->has_rates = !s;
    return s;
}

static const struct bench *sorted; /* for compare */

static int compare(const void *x, const void *y)
{
    const struct tn_measure_node *m = x, *n = y;
    double a = bench_lost(sorted, m), b = bench_lost(sorted, n);

    if (a == b)
        a = m->seconds, b = n->seconds;
    return a < b ? 1 : a > b ? -1 : 0;
}

static tn_status measure_nodes(struct bench *b)
{
    uint32_t steps = b->steps.steps < 5 ? b->steps.steps : 5;
    tn_status s = tn_measure_nodes(b->session, steps, SEED, b->arena, &b->node, &b->n_node, &b->node_seconds);

    if (s)
        return s;
    b->has_nodes = 1;
    sorted = b;
    qsort(b->node, b->n_node, sizeof *b->node, compare);
    return TN_OK;
}

static tn_status measure(struct bench *b, struct tn_measure_options o)
{
    tn_status s;

    if (options_given(b->options, "steps"))
        o.steps = (uint32_t)options_int(b->options, "steps");
    if (options_given(b->options, "warmup"))
        o.warmup = (uint32_t)options_int(b->options, "warmup");
    s = options_given(b->options, "memory-timeline") ? tn_measure_timeline(b->session, SEED, b->arena, &b->resident) : TN_OK;
    if (!s)
        s = tn_measure_steps(b->session, &o, b->arena, &b->steps);
    if (!s && (b->has_trace = options_given(b->options, "trace")))
        s = tn_measure_trace(b->session, options_text(b->options, "trace"), b->traced = o.warmup + o.steps, SEED, b->arena, &b->trace);
    if (!s && !options_given(b->options, "no-rates"))
        s = measure_rates(b);
    if (!s && options_given(b->options, "ops"))
        s = measure_nodes(b);
    return s;
}

/* --- the session */

static tn_status open_session(struct bench *b, struct tn_config *c)
{
    const struct tn_session_options use = {.use = TN_SESSION_TRAIN};
    tn_status s;

    tn_schedule_check(c);
    s = tn_session_configure(c, &b->session);
    b->configured = tn_measure_now() - b->start;
    if (!s)
        s = vocabulary_settle(c);
    if (!s)
        s = tn_session_open(b->session, &use);
    b->opened = tn_measure_now() - b->start;
    if (!s)
        s = tn_session_initialize(b->session, (uint64_t)tn_config_int(c, "train.seed"));
    b->initialized = tn_measure_now() - b->start;
    return s;
}

static tn_status bench(const struct options *o, double start)
{
    struct bench b = {.options = o, .arena = tn_arena_new(), .start = start, .name = "default"};
    const char *workload = options_text(o, "workload"), *slash = o->files ? strrchr(o->file[0], '/') : NULL;
    struct tn_measure_options measured = {.warmup = 2, .steps = 20, .seed = SEED};
    struct tn_config *c = NULL;
    tn_status s = tn_config_open(o->file[0], o->settings, o->setting, &c);

    if (!s && workload)
        bench_workload(workload, c, &measured);
    if (workload || o->files)
        b.name = workload ? workload : slash ? slash + 1 : o->file[0];
    if (!s)
        s = open_session(&b, c);
    if (!s)
        s = measure(&b, measured);
    if (!s && tn_session_shape(b.session)->rank == 0) {
        if (options_given(o, "json"))
            s = bench_json(&b);
        else
            bench_text(&b);
    }
    if (s < 0)
        tn_world_abandon(tn_session_world(b.session), tn_error_text());
    tn_session_close(b.session);
    tn_config_free(c);
    tn_arena_free(b.arena);
    return s;
}

/* --- the command */

static tn_status check(const struct options *o)
{
    if (options_given(o, "workload") && o->files)
        return tn_error(TN_ERR_CONFIG,
                        "bench: %.200s and --workload %s both say what to train: give one of them",
                        o->file[0], options_text(o, "workload"));
    if (!options_given(o, "workload") && !o->files && !o->settings)
        return tn_error(TN_ERR_CONFIG,
                        "bench: what shall be trained? Give a configuration, or --workload W1, W2, W3 or W4");
    if (options_given(o, "vs") && (options_given(o, "ops")))
        return tn_error(TN_ERR_CONFIG,
                        "bench: --vs compares whole updates, and --ops looks into one: give one of them");
    if (options_given(o, "vs") && options_given(o, "trace"))
        return tn_error(TN_ERR_CONFIG, "bench: --vs compares whole updates, and --trace looks into one: give one of them");
    if (options_given(o, "ops") && options_given(o, "no-rates"))
        return tn_error(TN_ERR_CONFIG,
                        "bench: --ops holds launches against the rates that --no-rates leaves out");
    return TN_OK;
}

static int cmd_bench(int argc, char **argv)
{
    double start = tn_measure_now();
    struct options o;
    tn_status s = options_parse(&bench_command, argc, argv, &o);

    if (s >= 0)
        s = check(&o);
    if (!s)
        s = options_given(&o, "vs") ? bench_versus(&o) : bench(&o, start);
    options_free(&o);
    return command_end(s);
}

static const struct option options[] = {
    {.name = "workload",
     .value = "NAME",
     .help = "One of the workloads that are compared everywhere: a small character model, a larger one, "
             "GPT-2 124M "
             "with short and with long sequences",
     .type = TN_KEY_CHOICE,
     .choices = "W1|W2|W3|W4"},
    {.name = "steps",
     .value = "N",
     .help = "Updates to measure; 60 for W1, 8 for the other workloads, else 20",
     .type = TN_KEY_INT,
     .low = 1,
     .high = 100000},
    {.name = "warmup",
     .value = "N",
     .help = "Updates before them; 10 for W1, else 2",
     .type = TN_KEY_INT,
     .low = 1,
     .high = 100000},
    {.name = "json", .help = "Print one JSON object"},
    {.name = "ops", .help = "Time every launch, and hold it against what the machine could do, worst first"},
    {.name = "memory-timeline",
     .help = "Print what each launch of the first update needs of the arena by the plan, and what is resident after it"},
    {.name = "no-rates", .help = "Leave out the rates of products and of memory"},
    {.name = "trace",
     .value = "FOLDER",
     .help = "Trace one more update: FOLDER/trace-rank-N.json of each process, for chrome://tracing or Perfetto"},
    {.name = "vs",
     .value = "COMMAND",
     .help = "Run this shell command and this benchmark in turn, and print the ratio of their tokens a "
             "second; COMMAND "
             "prints \"... N tok/s ...\" or JSON with tokens_per_second"},
    {.name = "pairs",
     .value = "N",
     .help = "With --vs: how often each of the two runs",
     .type = TN_KEY_INT,
     .low = 3,
     .high = 1000,
     .preset = "3"},
    {.name = "limit",
     .value = "SECONDS",
     .help = "With --vs: the longest that one run may take",
     .type = TN_KEY_FLOAT,
     .low = 0.1,
     .high = 604800,
     .preset = "1800"},
    {0},
};

const struct command bench_command = {
    .name = "bench",
    .help = "Measures how fast a model trains here: tokens a second, share of the machine's peak, memory",
    .usage = "[CFG | --workload NAME] [section.key=value ...] [--steps N] [--ops] [--memory-timeline] [--trace FOLDER] [--json] [--vs COMMAND]",
    .detail =
        "Trains on random tokens and keeps nothing; no data are needed where model.vocab_size is set. Times "
        "are medians. The peak is what the same kernel plugins reach in the same run: on matrix products of "
        "the "
        "step's own shapes, and on a product of 2048 x 2048 x 2048 (8192 on a GPU, which also says what its data sheet "
        "calls the peak: the share of that is what others call MFU).",
    .options = options,
    .files_max = 1,
    .settings = 1,
    .run = cmd_bench,
};
