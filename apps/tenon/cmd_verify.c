/* cmd_verify.c - tenon verify: is a parallel run equal to one process?
 *
 * The ranks make some updates together. Then rank 0 makes the same updates alone, in the same process, with
 * all axes 1, and compares: loss, norm before clipping, every gradient, every parameter. The other ranks are
 * done by then. So what is compared is the program as it trains, launcher, communicator and strategies
 * included. */
#include <stdlib.h>
#include "base/config.h"
#include "base/pool.h"
#include "base/status.h"
#include "ranks.h"
#include "verify.h"
#include "world/world.h"

#define ALONE 16 /* settings that make a run one of one process */

/* --- alone */

/* Everything is named: where threads have run, plugins cannot be asked any more. */
static tn_status open_alone(const struct options *o, const struct verify_result *p, struct tn_config **out)
{
    static const char *const axes[] = {"parallel.dp=1",  "parallel.ep=1",     "parallel.pp=1",
                                       "parallel.cp=1",  "parallel.tp=1",     "parallel.zero=0",
                                       "parallel.sp=no", "backend.comm=self", "backend.debug=no"};
    char **setting = tn_alloc_array(p->arena, (size_t)o->settings + ALONE, sizeof *setting);
    int n = 0;
    tn_status s;

    for (int i = 0; i < o->settings; i++)
        setting[n++] = o->setting[i];
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        setting[n++] = tn_text(p->arena, "%s", axes[i]);
    setting[n++] = tn_text(p->arena, "train.micro_batch=%lld", (long long)p->micro_batch);
    setting[n++] = tn_text(p->arena, "model.vocab_size=%lld", (long long)p->vocab_size);
    setting[n++] = tn_text(p->arena, "backend.device=%s", p->device);
    setting[n++] = tn_text(p->arena, "backend.kernels=%s", p->kernels);
    s = tn_config_open(o->file[0], n, setting, out);
    if (s >= 0)
        tn_config_excuse(*out, "parallel"); /* options of strategies that a single process does not load */
    return s;
}

static tn_status run_alone(const struct options *o, const struct verify_task *t,
                           const struct verify_result *p, struct verify_result *out)
{
    const struct tn_place place = {.struct_size = sizeof place, .size = 1, .local_size = 1, .nodes = 1};
    struct tn_config *c = NULL;
    tn_status s;

    tn_pool_stop();
    s = open_alone(o, p, &c);
    *out = (struct verify_result){0};
    if (s >= 0)
        s = verify_run(c, t, &place, out);
    tn_config_free(c);
    return s;
}

/* --- the table */

static const char *mesh_text(const struct tn_mesh *m, char *out, size_t room)
{
    size_t k = 0;

    *out = 0;
    for (int a = 0; a < TN_AXES && k < room; a++)
        if (m->size[a] > 1)
            k += (size_t)snprintf(out + k, room - k, "%s%s %lld", k ? ", " : "", tn_axis_name[a],
                                  (long long)m->size[a]);
    return out;
}

static void print_row(const struct verify_row *r)
{
    printf("%-10s %-44s %12.6g %12.3g %12.3g%s\n", r->what, r->name, r->most, r->difference, r->times,
           r->times <= 1 ? "" : "  too much");
}

static int by_size(const void *a, const void *b)
{
    double x = (*(const struct verify_row *const *)a)->times,
           y = (*(const struct verify_row *const *)b)->times;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* In order, or the worst ones. */
static const struct verify_row *print_rows(struct tn_arena *arena, const struct verify_row *row, uint32_t n,
                                           int64_t worst, uint32_t *bad)
{
    const struct verify_row **order = tn_alloc_array(arena, n, sizeof *order);

    *bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = &row[i];
        *bad += !(row[i].times <= 1);
    }
    printf("%-10s %-44s %12s %12s %12s\n", "what", "", "largest", "difference", "of allowed");
    for (uint32_t i = 0; i < n && !worst; i++)
        print_row(&row[i]);
    qsort(order, n, sizeof *order, by_size);
    for (uint32_t i = 0; i < n && i < worst; i++)
        print_row(order[i]);
    return order[0];
}

static tn_status judge(const struct options *o, const struct verify_task *t, double tolerance, int adaptive,
                       const struct verify_result *p, const struct verify_result *a)
{
    uint32_t n, bad;
    struct verify_row *row = verify_compare(a, p, t->steps, tolerance, adaptive, &n);
    const struct verify_row *worst = print_rows(a->arena, row, n, options_int(o, "worst"), &bad);
    char mesh[120], element[40] = "";

    mesh_text(&p->mesh, mesh, sizeof mesh);
    if (worst->element >= 0)
        snprintf(element, sizeof element, ", element %lld", (long long)worst->element);
    if (p->replicas)
        printf("%s\n", p->replicas);
    else
        printf("replicas are equal to the bit\n");
    if (bad)
        return tn_error(TN_ERR,
                        "verify: %lld ranks (%s) are not one process: %u of %u differ by too much; worst is "
                        "%s %s%s: %.9g in parallel, "
                        "%.9g alone, %.3g times what is allowed with --tolerance %g",
                        (long long)p->world, mesh, bad, n, worst->what, worst->name, element, worst->parallel,
                        worst->alone, worst->times, tolerance);
    if (p->replicas)
        return tn_error(TN_ERR, "verify: %.450s", p->replicas);
    printf(
        "equal: %lld ranks (%s) and one process; worst is %s %s, %.2g of what is allowed with tolerance %g\n",
        (long long)p->world, mesh, worst->what, worst->name, worst->times, tolerance);
    return TN_OK;
}

/* --- the command */

/* bf16 has 8 bits, fp16 has 11; what a sum of rounded numbers loses is some units of their last place. */
static double tolerance_of(const struct options *o, const struct tn_config *c)
{
    if (options_given(o, "tolerance"))
        return options_float(o, "tolerance");
    return tn_config_is(c, "backend.dtype", "bf16")   ? 0.05
           : tn_config_is(c, "backend.dtype", "fp16") ? 0.01
                                                      : 1e-5;
}

static tn_status compare(const struct options *o, struct tn_config *c)
{
    const struct verify_task t = {
        .steps = options_int(o, "steps"),
        .seed =
            (uint64_t)(options_given(o, "seed") ? options_int(o, "seed") : tn_config_int(c, "train.seed"))};
    int adaptive = !tn_config_is(c, "optimizer.name", "sgd");
    double tolerance = tolerance_of(o, c);
    struct verify_result p, a = {0};
    tn_status s = verify_run(c, &t, NULL, &p);

    if (!s && p.world == 1)
        s = tn_error(TN_ERR_CONFIG, "verify: there is one rank, so there is nothing to compare: start "
                                    "several by a launcher, or say --ranks N");
    else if (!s && p.rank == 0) {
        s = run_alone(o, &t, &p, &a);
        if (!s)
            s = judge(o, &t, tolerance, adaptive, &p, &a);
        if (a.arena)
            verify_release(&a);
    }
    verify_release(&p);
    return s;
}

/* How many ranks shall be started here; 0: they are there already. */
static tn_status ranks_wanted(const struct options *o, const struct tn_config *c, int64_t *n)
{
    int launched;
    tn_status s = ranks_launched(c, &launched);

    *n = 0;
    if (s < 0 || launched)
        return s;
    *n = options_given(o, "ranks") ? options_int(o, "ranks") : ranks_asked(c);
    if (*n < 2)
        return tn_error(TN_ERR_CONFIG, "verify: which ranks shall be compared with one process? Say so in "
                                       "[parallel], such as parallel.tp=2, "
                                       "or --ranks N, or start them by a launcher");
    return TN_OK;
}

static int cmd_verify(int argc, char **argv)
{
    struct tn_config *c = NULL;
    struct options o;
    int64_t n = 0;
    int here = 1, code = 0;
    tn_status s = options_parse(&verify_command, argc, argv, &o);

    if (s >= 0)
        s = tn_config_open(o.file[0], o.settings, o.setting, &c);
    if (s >= 0)
        s = ranks_wanted(&o, c, &n);
    if (s >= 0 && n)
        s = ranks_start(&o, n, argc, argv, &here, &code);
    if (s >= 0 && here)
        s = compare(&o, c);
    tn_config_free(c);
    options_free(&o);
    return here || s < 0 ? command_end(s) : code;
}

static const struct option options[] = {
    {.name = "steps",
     .value = "K",
     .help = "Updates to make",
     .type = TN_KEY_INT,
     .low = 1,
     .high = 1000,
     .preset = "2"},
    {.name = "seed",
     .value = "N",
     .help = "Seed of weights and tokens (default: train.seed)",
     .type = TN_KEY_INT,
     .low = 0,
     .high = 9007199254740991.0},
    {.name = "tolerance",
     .value = "X",
     .help = "What rounding may change, relative to a tensor's largest element (default 1e-5; 0.05 for bf16, "
             "0.01 for fp16)",
     .type = TN_KEY_FLOAT,
     .low = 1e-12,
     .high = 1},
    {.name = "worst",
     .value = "N",
     .help = "Print the N rows that differ most; 0: all rows",
     .type = TN_KEY_INT,
     .low = 0,
     .high = 1e6,
     .preset = "0"},
    RANKS_OPTION,
    {0},
};

const struct command verify_command = {
    .name = "verify",
    .help = "Compares a parallel run with one process: loss, norm, every gradient, every parameter",
    .usage = "[CFG] [section.key=value ...] [--ranks N] [--steps K] [--tolerance X] [--worst N]",
    .detail = "The ranks make some updates on random tokens, then rank 0 makes the same ones alone. Started "
              "by a launcher, its ranks are "
              "compared; started alone, as many processes as [parallel] or --ranks says are started on this "
              "host. A difference that "
              "rounding does not explain ends with status 1 and the name of the worst tensor. Rank 0 holds "
              "the whole model.",
    .options = options,
    .files_max = 1,
    .settings = 1,
    .run = cmd_verify,
};
