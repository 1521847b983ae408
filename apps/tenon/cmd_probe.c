/* cmd_probe.c - tenon probe: who is here, do the collectives give the right numbers, and how fast are they?
 *
 * The first thing to run on a new cluster, and on a new communicator. Nothing of a model is built; the ranks
 * meet, agree and connect as those of a training do, along the axes that [parallel] has. Rank 0 prints. */
#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/config.h"
#include "base/near.h"
#include "base/status.h"
#include "base/value.h"
#include "probe.h"
#include "ranks.h"

#define MOST_SIZES 64
#define LARGE 20011 /* elements of a part in the check of values */

struct plan { /* what the options ask for */
    uint64_t bytes[MOST_SIZES];
    uint32_t n_bytes;
    const struct probe_dtype *dtype;
};

/* --- options */

/* "64K" and "1M" are powers of two. */
static int size_add(void *arg, const char *word, size_t length)
{
    struct plan *plan = arg;
    char *end, text[32];
    double x;

    snprintf(text, sizeof text, "%.*s", (int)(length < 31 ? length : 31), word);
    x = strtod(text, &end);
    for (const char *unit = "KMG"; *unit && *end; unit++)
        if (toupper((unsigned char)*end) == *unit) {
            x *= *unit == 'K' ? 0x1p10 : *unit == 'M' ? 0x1p20 : 0x1p30;
            end++;
            break;
        }
    if (end == text || *end || !(x >= 1 && x <= 0x1p36) || plan->n_bytes == MOST_SIZES)
        return 1;
    plan->bytes[plan->n_bytes++] = (uint64_t)x;
    return 0;
}

struct choice {
    struct probe *probe;
    char bad[40];
};

static int op_add(void *arg, const char *word, size_t length)
{
    struct choice *c = arg;

    snprintf(c->bad, sizeof c->bad, "%.*s", (int)(length < 39 ? length : 39), word);
    for (int o = 0; probe_ops[o].name; o++)
        if (!strcmp(probe_ops[o].name, c->bad))
            return !(c->probe->ops[o] = 1);
    return 1;
}

static tn_status read_options(struct probe *p, struct plan *plan)
{
    const char *sizes = options_text(p->options, "sizes"), *ops = options_text(p->options, "collectives");
    struct choice c = {.probe = p};
    struct tn_near near = {.word = c.bad};

    if (tn_value_words(sizes, ',', size_add, plan) || !plan->n_bytes)
        return tn_error(
            TN_ERR_CONFIG,
            "probe: --sizes %.100s: expected sizes from 1 byte to 64G, separated by commas, such as 4K,1M",
            sizes);
    for (int o = 0; probe_ops[o].name && !ops; o++)
        p->ops[o] = 1;
    if (ops && tn_value_words(ops, ',', op_add, &c)) {
        for (int o = 0; probe_ops[o].name; o++)
            tn_near_try(&near, probe_ops[o].name);
        return tn_error(TN_ERR_CONFIG,
                        "probe: --collectives: there is no %s%s%s%s; there are all_reduce, all_gather, "
                        "reduce_scatter, all_to_all, broadcast and send",
                        c.bad, near.best ? ", did you mean " : "", near.best ? near.best : "",
                        near.best ? "?" : "");
    }
    for (plan->dtype = probe_dtypes; strcmp(plan->dtype->name, options_text(p->options, "dtype"));)
        plan->dtype++;
    return TN_OK;
}

/* --- who is here */

static struct probe_group group_of(const struct probe *p, int axis, struct tn_arena *a)
{
    struct tn_world *w = p->world;
    int64_t n = axis < 0 ? w->size : w->mesh.size[axis], *ranks = tn_alloc_array(a, (size_t)n, sizeof *ranks);
    struct probe_group g = {axis < 0 ? "the world" : tn_axis_name[axis], axis < 0 ? w->comm : w->group[axis],
                            (uint32_t)n, axis < 0 ? w->rank : (uint32_t)w->mesh.coord[axis], ranks};

    for (int64_t r = 0; r < n; r++)
        ranks[r] = r;
    if (axis >= 0)
        tn_mesh_group(&w->mesh, axis, ranks);
    return g;
}

static void print_ranks(const struct probe *p)
{
    const struct tn_world *w = p->world;
    char text[4096];

    printf("%u rank%s on %u host%s, communicator %s, found by %s, limit of a wait %g s\n", w->size,
           w->size == 1 ? "" : "s", w->place.nodes ? w->place.nodes : 1, w->place.nodes > 1 ? "s" : "",
           w->comm_name, w->bootstrap_name, w->timeout);
    for (uint32_t r = 0; r < w->size; r++) {
        struct tn_world_where at;

        if (tn_world_peer(w, r, &at))
            printf("  rank %-5u host %s, process %lld, address %s on %s, %u of %u CPUs\n", r, at.host,
                   (long long)at.pid, at.address, at.iface, at.cpus, at.host_cpus);
    }
    for (int a = 0; a < TN_AXES; a++)
        if (w->mesh.size[a] > 1)
            printf("  groups of %s: %s\n", tn_axis_name[a], ranks_groups(&w->mesh, a, text, sizeof text));
    if (p->way.way == TN_STAGED)
        printf("  through memory of the host, since %s does not take that of the device %s; what follows is without the "
               "copies between the two\n", w->comm_name, p->engine.device_api->kind);
}

/* --- the report */

static void size_text(uint64_t bytes, char out[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB"};
    double x = (double)bytes;
    int u = 0;

    while (x >= 1024 && u < 3)
        x /= 1024, u++;
    snprintf(out, 32, "%.4g %s", x, unit[u]);
}

static void print_sweep(const struct plan *plan, const struct probe_point *point, uint32_t n, uint32_t repeat)
{
    char size[32];

    printf("sweep of %s, medians of %u, slowest rank\n  %-15s %10s %12s %12s %14s %12s\n", plan->dtype->name,
           repeat, "", "bytes", "time us", "least us", "payload GB/s", "bus GB/s");
    for (uint32_t i = 0; i < n; i++) {
        size_text(point[i].bytes, size);
        printf("  %-15s %10s %12.1f %12.1f %14.3f %12.3f\n", point[i].op, size, point[i].seconds * 1e6,
               point[i].least * 1e6, point[i].payload / 1e9, point[i].bus / 1e9);
    }
}

static json_t *json_ranks(const struct probe *p)
{
    json_t *all = json_array();

    for (uint32_t r = 0; r < p->world->size; r++) {
        struct tn_world_where at;

        if (tn_world_peer(p->world, r, &at))
            json_array_append_new(all, json_pack("{s:i s:s s:I s:s s:s}", "rank", (int)r, "host", at.host,
                                                 "process", (json_int_t)at.pid, "address", at.address,
                                                 "interface", at.iface));
    }
    return all;
}

static tn_status print_json(const struct probe *p, const struct plan *plan, const struct probe_point *point,
                            uint32_t n)
{
    json_t *sweep = json_array(), *all;
    int failed;

    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(sweep,
                              json_pack("{s:s s:I s:f s:f s:f s:f}", "collective", point[i].op, "bytes",
                                        (json_int_t)point[i].bytes, "seconds", point[i].seconds,
                                        "least_seconds", point[i].least, "payload_gbps",
                                        point[i].payload / 1e9, "bus_gbps", point[i].bus / 1e9));
    all = json_pack("{s:i s:i s:s s:s s:s s:o s:s s:o}", "ranks", (int)p->world->size, "hosts",
                    (int)(p->world->place.nodes ? p->world->place.nodes : 1), "communicator",
                    p->world->comm_name, "bootstrap", p->world->bootstrap_name, "dtype", plan->dtype->name,
                    "places", json_ranks(p), "values", "right", "sweep", sweep);
    failed = !all || json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6)) || printf("\n") < 0;
    json_decref(all);
    return failed ? tn_error(TN_ERR_IO, "cannot write the report") : TN_OK;
}

/* --- the work */

static tn_status check_values(struct probe *p, int print)
{
    struct probe_group g = group_of(p, -1, p->arena);
    tn_status s;

    if (print)
        printf("values, of rank 0; every rank compares all of its own\n");
    s = probe_values(p, &g, print);
    for (int a = 0; a < TN_AXES && !s; a++) {
        if (!p->world->group[a])
            continue;
        g = group_of(p, a, p->arena);
        s = probe_values(p, &g, 0);
        if (!s && print)
            printf("  the same along %s, %u ranks each\n", g.name, g.n);
    }
    return s;
}

static uint64_t room_for(const struct probe *p, const struct plan *plan)
{
    uint64_t most = (uint64_t)p->world->size * LARGE * 8;

    for (uint32_t i = 0; i < plan->n_bytes; i++)
        most = plan->bytes[i] > most ? plan->bytes[i] : most;
    return most + 8 * (uint64_t)p->world->size;
}

static tn_status work(struct probe *p, const struct plan *plan)
{
    int lead = p->world->rank == 0, json = options_given(p->options, "json"),
        sweep = !options_given(p->options, "no-sweep");
    uint32_t repeat = (uint32_t)options_int(p->options, "repeat"), n = 0;
    struct probe_group g = group_of(p, -1, p->arena);
    struct probe_point *point = NULL;
    tn_status s = probe_buffers(p, room_for(p, plan));

    if (lead && !json)
        print_ranks(p);
    if (!s)
        s = check_values(p, lead && !json);
    if (!s && sweep)
        s = probe_sweep(p, &g, plan->bytes, plan->n_bytes, plan->dtype,
                        (uint32_t)options_int(p->options, "warmup"), repeat, &point, &n);
    if (s || !lead)
        return s;
    if (json)
        return print_json(p, plan, point, n);
    if (sweep)
        print_sweep(plan, point, n, repeat);
    return TN_OK;
}

/* The others are told what this rank has found, and do not wait for it. */
static tn_status report(struct probe *p, tn_status s)
{
    char text[600];

    if (s >= 0 || !p->world || tn_world_has_failed(p->world))
        return s;
    snprintf(text, sizeof text, "%s", tn_error_text());
    tn_world_abandon(p->world, text);
    return tn_error(s, "%s", text);
}

static tn_status probe(const struct options *o)
{
    struct probe p = {.options = o, .arena = tn_arena_new()};
    struct plan plan = {0};
    struct tn_config *c = NULL;
    tn_status s = read_options(&p, &plan);

    if (!s)
        s = tn_config_open(o->file[0], o->settings, o->setting, &c);
    if (!s)
        s = tn_engine_find(c, NULL, &p.engine);
    p.world = p.engine.world;
    if (!s)
        s = tn_engine_open(&p.engine, c);
    if (!s)
        s = report(&p, work(&p, &plan));
    if (p.engine.device)
        probe_buffers_free(&p);
    if (p.world)
        tn_engine_close(&p.engine);
    tn_config_free(c);
    tn_arena_free(p.arena);
    return s;
}

static int cmd_probe(int argc, char **argv)
{
    struct options o;
    int code = 0, here = 1;
    tn_status s = options_parse(&probe_command, argc, argv, &o);

    if (s >= 0 && options_given(&o, "ranks"))
        s = ranks_start(&o, options_int(&o, "ranks"), argc, argv, &here, &code);
    if (s >= 0 && here)
        s = probe(&o);
    options_free(&o);
    return here ? command_end(s) : s < 0 ? command_end(s) : code;
}

static const struct option options[] = {
    {.name = "sizes",
     .value = "LIST",
     .help = "Sizes of the sweep, K, M and G being powers of two",
     .preset = "4K,64K,1M,16M,64M"},
    {.name = "collectives",
     .value = "LIST",
     .help = "Those to check and to measure: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, "
             "send (default: all)"},
    {.name = "dtype",
     .value = "TYPE",
     .help = "Type of the numbers in the sweep",
     .type = TN_KEY_CHOICE,
     .choices = "fp32|fp64|bf16|fp16|int32|int64|uint8",
     .preset = "fp32"},
    {.name = "warmup",
     .value = "N",
     .help = "Runs of each that do not count",
     .type = TN_KEY_INT,
     .low = 0,
     .high = 100000,
     .preset = "20"},
    {.name = "repeat",
     .value = "N",
     .help = "Runs of each that are measured",
     .type = TN_KEY_INT,
     .low = 1,
     .high = 100000,
     .preset = "50"},
    {.name = "no-sweep", .help = "Check the values only"},
    {.name = "json", .help = "Print one JSON object"},
    RANKS_OPTION,
    {0},
};

const struct command probe_command = {
    .name = "probe",
    .help = "Says which ranks are here, checks the values of every collective, and measures them",
    .usage = "[CFG] [section.key=value ...] [--sizes LIST] [--collectives LIST] [--dtype TYPE] [--ranks N] "
             "[--json]",
    .detail = "Run it by the launcher that will run the training, or alone with --ranks. Every collective is "
              "checked with every type of "
              "numbers, even, uneven and empty parts, over all ranks and along each axis of [parallel]; "
              "wrong numbers end with status 1 "
              "and a sentence. Times are those of the slowest rank. The payload rate is the size divided by "
              "the time; the bus bandwidth "
              "is what the links of a ring would carry.",
    .options = options,
    .files_max = 1,
    .settings = 1,
    .run = cmd_probe,
};
