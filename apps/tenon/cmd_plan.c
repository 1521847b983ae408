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
#include "plan/report.h"
#include "train/schedule.h"
#include "train/session.h"
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

/* --- the numbers */

/* "12.3 MB"; sizes are powers of ten, as in the keys of memory of most tools. */
static const char *size_text(double bytes, char out[32])
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    int u = 0;

    while (bytes >= 1000 && u < 4)
        bytes /= 1000, u++;
    snprintf(out, 32, u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
    return out;
}

static void line(const char *name, double bytes, const char *note)
{
    char text[32];

    printf("%-18s %12s%s%s\n", name, size_text(bytes, text), *note ? "   " : "", note);
}

static void print_model(const struct tn_session *s)
{
    const struct tn_model_config *m = tn_session_model(s);
    const struct tn_session_shape *h = tn_session_shape(s);

    printf("%-18s %s: %lld layers, %lld heads, width %lld, vocabulary %lld, positions %lld\n", "model",
           m->arch, (long long)m->n_layer, (long long)m->n_head, (long long)m->n_embd,
           (long long)m->vocab_size, (long long)m->block_size);
    printf("%-18s %lld sequences of %lld tokens, %lld x %lld\n", "update", (long long)h->global_batch,
           (long long)h->seq_len, (long long)h->n_micro, (long long)h->micro_batch);
    printf("%-18s %lld, %lld without positions\n", "parameters", (long long)h->n_parameters,
           (long long)h->n_parameters_no_position);
}

static void print_memory(const struct tn_plan_report *r)
{
    char note[96], peak[32];

    printf("\nmemory of one rank\n");
    line("parameters", (double)r->parameters, "");
    line("optimizer state", (double)r->states, "");
    line("gradients", (double)r->gradients, "in the arena");
    line("activations", (double)r->arena - (double)r->gradients, "in the arena");
    snprintf(note, sizeof note, "%s alive at once at most", size_text((double)r->live_peak, peak));
    line("arena", (double)r->arena, note);
    line("workspace", (double)r->workspace, "of kernels");
    line("inputs", (double)(r->inputs + r->uniforms), "");
    line("total", (double)r->total, "");
}

static void print_work(const struct tn_session *s, const struct tn_plan_report *r)
{
    const struct tn_model_config *m = tn_session_model(s);
    const struct tn_session_shape *h = tn_session_shape(s);
    double tokens = (double)(h->global_batch * h->seq_len),
           all = r->flops_forward + r->flops_backward + r->flops_update;
    double model =
        (6.0 * (double)h->n_parameters_no_position + 6.0 * (double)(m->n_layer * m->n_embd * h->seq_len)) *
        tokens;

    printf("\nwork of one update\n");
    printf("%-18s %12.4g   forward %.4g, backward %.4g, update %.4g\n", "FLOPs", all, r->flops_forward,
           r->flops_backward, r->flops_update);
    printf("%-18s %12.4g   6N + 6LCT for each of %.0f tokens\n", "FLOPs by formula", model, tokens);
    line("bytes moved", r->bytes_moved, "read and written, each operand of a launch once");
}

/* --- launches */

/* "cpu 120, ref 3" */
static void print_plugins(const struct tn_plan *plan, const struct tn_plan_report *r)
{
    const char *name[16];
    uint64_t count[16] = {0};
    uint32_t n = 0;
    struct tn_plan_launch l;

    for (uint32_t i = 0; i < plan->n_row; i++) {
        uint32_t k = 0;
        if (plan->row[i].kernel[0] < 0 && plan->row[i].kernel[1] < 0)
            continue;
        tn_plan_launch_at(plan, i, &l);
        while (k < n && strcmp(name[k], l.kernel))
            k++;
        if (k == n && n < 16)
            name[n++] = l.kernel;
        if (k < n)
            count[k] += l.micro;
    }
    printf("%-18s %12llu   ", "launches", (unsigned long long)r->launches);
    for (uint32_t k = 0; k < n; k++)
        printf("%s%s %llu", k ? ", " : "", name[k], (unsigned long long)count[k]);
    printf("; of %u nodes\n", r->nodes);
}

static void print_kernels(const struct tn_plan *plan)
{
    struct tn_plan_launch l;
    char workspace[32];

    printf("\n%-28s %-10s %-14s %-14s %-8s %5s %6s %10s %10s %10s\n", "list", "unit", "role", "operation",
           "kernels", "nodes", "times", "MFLOP", "MB", "workspace");
    for (uint32_t i = 0; i < plan->n_row; i++) {
        if (plan->row[i].kernel[0] < 0 && plan->row[i].kernel[1] < 0)
            continue;
        tn_plan_launch_at(plan, i, &l);
        printf("%-28s %-10s %-14s %-14s %-8s %5u %6u %10.3f %10.3f %10s\n", tn_list_name(l.list), l.unit,
               l.role, l.op, l.kernel, l.merged, l.micro, l.flops / 1e6, l.bytes / 1e6,
               l.workspace ? size_text((double)l.workspace, workspace) : "");
    }
}

/* --- the command */

static tn_status show(const struct options *o, struct tn_session *s)
{
    struct dump d = {.arena = tn_arena_new(), .wanted = options_text(o, "dump-after")};
    const struct tn_session_options use = {
        .use = TN_SESSION_TRAIN, .plan_only = 1, .dump_after = "all", .dump = dump_step, .dump_ctx = &d};
    struct tn_plan_report report;
    tn_status status = tn_session_open(s, &use);

    if (status == TN_OK && d.wanted) {
        status = dump_end(&d);
    } else if (status == TN_OK) {
        const struct tn_plan *plan = tn_session_plan(s, TN_SESSION_TRAIN);
        tn_plan_sum(plan, &report);
        print_model(s);
        print_memory(&report);
        print_work(s, &report);
        print_plugins(plan, &report);
        if (options_given(o, "kernels"))
            print_kernels(plan);
    }
    tn_arena_free(d.arena);
    return status;
}

static tn_status plan(const struct options *o)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_config *c = NULL;
    struct tn_session *s = NULL;
    tn_status status = tn_config_open(o->file[0], o->settings, o->setting, &c);

    if (status == TN_OK) {
        tn_schedule_check(c);
        status = tn_session_configure(c, &s);
    }
    if (status == TN_OK)
        status = vocabulary_settle(c);
    if (status == TN_OK && tn_session_shape(s)->rank == 0)
        status = show(o, s);
    tn_session_close(s);
    tn_config_free(c);
    tn_arena_free(a);
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
    {0},
};

const struct command plan_command = {
    .name = "plan",
    .help = "Says what a run costs before it begins: memory, FLOPs, launches",
    .usage = "[CFG] [section.key=value ...] [--dump-after STEP] [--kernels]",
    .detail = "Nothing is allocated on the device and no file is read but the configuration and the data's "
              "meta.json.",
    .options = options,
    .files_max = 1,
    .settings = 1,
    .run = cmd_plan,
};
