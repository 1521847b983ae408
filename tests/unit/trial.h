/* trial.h - for tests of numbers: a small graph made by hand, through the passes, planned, run by plugins.
 *
 *   struct trial t = trial_begin(kernels[i]);      a graph, and where new nodes go
 *   w = trial_param(&t, ...), x = trial_input(&t, ...), tn_expr(...)
 *   trial_loss(&t, loss); trial_count(&t, x);      what the pipeline wants of a model
 *   trial_open(&t);                                passes, plan, memory, run, inputs
 *   trial_step(&t, lr); trial_close(&t);
 *
 * Everything is a real part: device and kernels are plugins of the build tree, the update is an optimizer
 * plugin's. */
#ifndef TRIAL_H
#define TRIAL_H
#include <math.h>
#include <unistd.h>

#include "base/arena.h"
#include "pass/pass.h"
#include "plan/report.h"
#include "plugin_file.h"
#include "run/run.h"

#define TRIAL __attribute__((unused)) static
#define DIMS(...) (const char *const[]){__VA_ARGS__}
#define SIZES(...) (const int64_t[]){__VA_ARGS__}
#define SCALAR 0, NULL, NULL /* rank, dims, sizes */
#define NO_DIMS TN_WITH({"out", TN_ATTR_NAMES, 0, {.names = NULL}})

struct trial {
    struct tn_graph *g;
    struct tn_plan *plan;
    struct tn_device *device;
    struct tn_memory *memory;
    struct tn_run *run;
    struct tn_plan_kernels kernels[2];
    uint32_t n_kernels, n_micro, n_keep, n_given;
    const char *optimizer, *without; /* without: an operation that is to be decomposed */
    double value[TN_FINISH_OPTIONS];
    const double *option; /* NULL: the plugin's presets */
    struct tn_value *keep[32];
    struct {
        const char *name;
        const void *data;
        uint64_t bytes;
    } given[16];
    int updates;
};

#define TRIAL_OK(call) ck_assert_msg((call) == TN_OK, "%s", tn_error_text())

/* Is the plugin cpu part of this build? */
TRIAL int trial_has_cpu(void)
{
    const char *top = getenv("top_builddir");
    char path[4096];

    snprintf(path, sizeof path, "%s/plugins/cpu/.libs/cpu.so", top ? top : ".");
    return access(path, R_OK) == 0;
}

/* kernels 0: those of ref; 1: those of cpu, and ref where cpu declines. */
TRIAL struct trial trial_begin(int kernels)
{
    struct tn_mesh mesh = tn_mesh_single();
    struct trial t = {.n_micro = 1, .optimizer = "sgd"};

    tn_host = &tn_host_table;
    if (kernels)
        t.kernels[t.n_kernels++] = (struct tn_plan_kernels){"cpu", plugin_file("cpu", TN_KERNELS_ID)};
    t.kernels[t.n_kernels++] = (struct tn_plan_kernels){"ref", plugin_file("ref", TN_KERNELS_ID)};
    t.g = tn_graph_new(&mesh);
    tn_at_end(t.g, TN_FORWARD, "unit");
    tn_set_role(t.g, "role");
    return t;
}

/* --- the graph */

TRIAL struct tn_value *trial_param(struct trial *t, const char *name, uint32_t rank, const char *const *dim,
                                   const int64_t *size)
{
    struct tn_param_spec spec = {.dim = dim, .size = size, .rank = rank, .file_rank = rank};

    if (rank)
        memcpy(spec.file_shape, size, rank * sizeof *size);
    return tn_graph_param(t->g, name, &spec);
}

/* What every micro-batch has its own part of. data: floats or int32_t of all of them; borrowed until
 * trial_close. */
TRIAL struct tn_value *trial_input(struct trial *t, const char *name, uint32_t dtype, uint32_t rank,
                                   const char *const *dim, const int64_t *size, const void *data)
{
    struct tn_value *v = tn_graph_input(t->g, name, dtype, rank, dim, size, 1);

    ck_assert_msg(v != NULL && t->n_given < 16, "%s", tn_graph_status(t->g) ? tn_error_text() : "inputs");
    t->given[t->n_given].name = v->name;
    t->given[t->n_given].data = data;
    t->given[t->n_given++].bytes = (uint64_t)tn_value_count(v) * 4 * t->n_micro;
    return v;
}

TRIAL struct tn_value *trial_sum(struct trial *t, struct tn_value *v)
{
    return tn_add(t->g, "sum", TN_IN(v), NO_DIMS);
}

TRIAL void trial_loss(struct trial *t, struct tn_value *each)
{
    tn_graph_output(t->g, "loss", each && each->rank ? trial_sum(t, each) : each);
}

/* The loss is a mean over the elements of x that are not negative (targets) or over all (squares): what f
 * says. */
TRIAL void trial_count(struct trial *t, struct tn_value *x, const char *f)
{
    tn_at_end(t->g, TN_PROLOGUE, "count");
    tn_graph_output(t->g, "count",
                    tn_add(t->g, "accum", TN_IN(trial_sum(t, tn_expr(t->g, f, TN_IN(x)))), TN_NONE));
    tn_at_end(t->g, TN_FORWARD, "unit");
}
#define ALL "ge(a*a, 0)"
#define VALID "ge(a, 0)"

/* Mean squared error of pred against the input y. */
TRIAL void trial_mse(struct trial *t, struct tn_value *pred, struct tn_value *y)
{
    trial_loss(t, tn_expr(t->g, "square(a - b)", TN_IN(pred, y)));
    trial_count(t, y, ALL);
}

TRIAL void trial_keep(struct trial *t, struct tn_value *v)
{
    ck_assert_uint_lt(t->n_keep, 32);
    t->keep[t->n_keep++] = v;
}

/* --- running it */

TRIAL int trial_claims(void *ctx, const char *op)
{
    const struct trial *t = ctx;

    for (uint32_t i = 0; i < t->n_kernels; i++)
        for (const char *const *o = t->kernels[i].table->ops; *o; o++)
            if (!strcmp(*o, op))
                return !t->without || strcmp(t->without, op);
    return 0;
}

/* As the session asks the optimizer: presets where the test gives nothing. */
TRIAL struct tn_finish trial_finish(struct trial *t)
{
    const struct tn_optimizer *o = plugin_file(t->optimizer, TN_OPTIMIZER_ID);
    struct tn_finish f = {
        .option = o->options, .value = t->value, .slots = o->slots, .update = o->update, .build = o->build};

    for (; o->options[f.n_option].key; f.n_option++)
        t->value[f.n_option] =
            t->option ? t->option[f.n_option] : strtod(o->options[f.n_option].preset, NULL);
    if (o->choose)
        o->choose(t->value, &f.slots, &f.update);
    return f;
}

TRIAL void trial_plan(struct trial *t)
{
    struct tn_mesh mesh = tn_mesh_single();
    struct tn_finish f = trial_finish(t);
    struct tn_pipeline p = {.finish = &f, .claims = trial_claims, .claims_ctx = t};
    struct tn_plan_options o = {
        .kernels = t->kernels, .n_kernels = t->n_kernels, .n_micro = t->n_micro, .keep = t->keep};

    TRIAL_OK(tn_graph_status(t->g));
    TRIAL_OK(tn_pipeline_run(&p, t->g));
    for (struct tn_value *v = t->g->params; v; v = v->next)
        trial_keep(t, v->param->grad);
    o.n_keep = t->n_keep;
    TRIAL_OK(tn_plan_new(t->g, &mesh, &o, &t->plan));
}

TRIAL void trial_open(struct trial *t)
{
    const struct tn_device_api *api = plugin_file("ref", TN_DEVICE_ID);

    trial_plan(t);
    TRIAL_OK(api->open(0, &t->device));
    TRIAL_OK(tn_memory_new(api, t->device, &t->memory));
    TRIAL_OK(tn_run_open(t->plan, t->memory, 10, &t->run));
    for (uint32_t i = 0; i < t->n_given; i++)
        TRIAL_OK(tn_run_input(t->run, t->given[i].name, t->given[i].data, t->given[i].bytes));
    tn_run_seed(t->run, 42, 0);
}

TRIAL void trial_set(struct trial *t, const char *param, const float *w, uint64_t n)
{
    TRIAL_OK(tn_memory_write(t->memory, param, w, n * sizeof *w));
}

TRIAL void trial_get(struct trial *t, const char *name, float *w, uint64_t n)
{
    TRIAL_OK(tn_memory_read(t->memory, name, w, n * sizeof *w));
}

TRIAL void trial_read(struct trial *t, const struct tn_value *v, float *x, uint64_t n)
{
    TRIAL_OK(tn_run_read(t->run, v, 0, x, n * sizeof *x));
}

TRIAL void trial_gradient(struct trial *t, const struct tn_value *param, float *x)
{
    trial_read(t, param->param->grad, x, (uint64_t)tn_value_count(param));
}

/* Loss and gradients, nothing else changes. */
TRIAL double trial_compute(struct trial *t)
{
    float loss;

    TRIAL_OK(tn_run_compute(t->run));
    trial_read(t, tn_graph_find_output(t->g, "loss"), &loss, 1);
    return (double)loss;
}

/* An update; the loss before it. */
TRIAL double trial_step(struct trial *t, double lr)
{
    double loss;

    TRIAL_OK(tn_run_symbol(t->run, "lr", lr));
    TRIAL_OK(tn_run_symbol(t->run, "t", ++t->updates));
    loss = trial_compute(t);
    TRIAL_OK(tn_run_update(t->run));
    return loss;
}

TRIAL void trial_close(struct trial *t)
{
    tn_run_close(t->run);
    tn_memory_free(t->memory);
    if (t->device)
        ((const struct tn_device_api *)plugin_file("ref", TN_DEVICE_ID))->close(t->device);
    tn_plan_free(t->plan);
    tn_graph_free(t->g);
}

/* --- comparing */

TRIAL void trial_near(double is, double want, double tolerance, const char *what)
{
    ck_assert_msg(is == want || fabs(is - want) <= tolerance, "%s is %.9g, expected %.9g", what, is, want);
}

TRIAL void trial_same(const float *is, const float *want, uint32_t n, double tolerance, const char *what)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert_msg(is[i] == want[i] || fabs((double)is[i] - (double)want[i]) <= tolerance,
                      "%s[%u] is %.9g, expected %.9g", what, i, (double)is[i], (double)want[i]);
}

/* Away from zero: between 0.2 and 1, or below zero as far. */
TRIAL float trial_random(uint64_t *s)
{
    double u;

    *s = *s * 6364136223846793005u + 1442695040888963407u;
    u = (double)(*s >> 40) / (double)(1 << 24);
    return (float)(u < 0.5 ? -0.2 - 1.6 * u : 0.2 + 1.6 * (u - 0.5));
}

/* Each test with each set of kernels, whose number is _i. */
TRIAL int trial_main(const char *name, const TTest *const *test, size_t n)
{
    Suite *s = suite_create(name);
    TCase *c = tcase_create(name);

    for (size_t i = 0; i < n; i++)
        tcase_add_loop_test(c, test[i], 0, 1 + trial_has_cpu());
    suite_add_tcase(s, c);
    return plugin_suite_run(s);
}
#endif
