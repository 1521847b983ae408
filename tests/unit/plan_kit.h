/* plan_kit.h - for tests of plan and run: the reference plugin, small graphs, and plugins that refuse. */
#ifndef PLAN_KIT_H
#define PLAN_KIT_H
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/status.h"
#include "model/model.h"
#include "pass/pass.h"
#include "plan/report.h"
#include "run/run.h"
#include "plugin_file.h"

#define KIT __attribute__((unused)) static

KIT const void *kit_ref(const char *id)
{
    return plugin_file("ref", id);
}

/* A plugin that does what ref does, if `refuses` lets it. kit_asked counts, kit_live: prepared and not
 * released. */
struct kit_state {
    struct tn_kernel inner;
};
static int (*kit_refuses)(const struct tn_problem *p);
static int kit_asked, kit_live;

KIT tn_status kit_launch(void *state, const struct tn_launch *l)
{
    struct kit_state *s = state;

    return s->inner.launch(s->inner.state, l);
}
KIT void kit_release(void *state)
{
    struct kit_state *s = state;

    if (s->inner.release)
        s->inner.release(s->inner.state);
    free(s);
    kit_live--;
}
KIT tn_status kit_prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    const struct tn_kernels *ref = kit_ref(TN_KERNELS_ID);
    struct kit_state *s;
    tn_status status;

    kit_asked++;
    if (kit_refuses && kit_refuses(p))
        return TN_DECLINED;
    s = calloc(1, sizeof *s);
    s->inner.struct_size = sizeof s->inner;
    status = ref->prepare(p, &s->inner);
    if (status) {
        free(s);
        return status;
    }
    *out = (struct tn_kernel){.struct_size = sizeof *out,
                              .state = s,
                              .launch = kit_launch,
                              .release = kit_release,
                              .workspace = s->inner.workspace};
    kit_live++;
    return TN_OK;
}
KIT const struct tn_kernels *kit_picky(void)
{
    static struct tn_kernels k;

    k = *(const struct tn_kernels *)kit_ref(TN_KERNELS_ID);
    k.prepare = kit_prepare;
    return &k;
}

#define DIMS(...)                                                                                            \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }
#define SIZES(...)                                                                                           \
    (const int64_t[])                                                                                        \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

KIT struct tn_value *kit_param(struct tn_graph *g, const char *name, uint32_t rank, const char *const *dim,
                               const int64_t *size)
{
    struct tn_param_spec spec = {.dim = dim, .size = size, .rank = rank, .file_rank = 1, .file_shape = {1}};

    for (uint32_t d = 0; d < rank; d++)
        spec.file_shape[0] *= size[d];
    return tn_graph_param(g, name, &spec);
}

KIT struct tn_graph *kit_graph(void)
{
    struct tn_mesh m = tn_mesh_single();
    struct tn_graph *g;

    tn_host = &tn_host_table;
    g = tn_graph_new(&m);
    tn_at_end(g, TN_FORWARD, "unit");
    tn_set_role(g, "role");
    return g;
}

/* A plan by ref; kernels NULL: ref's own. o may be NULL. */
KIT struct tn_plan *kit_plan(struct tn_graph *g, const struct tn_kernels *kernels,
                             const struct tn_plan_options *o)
{
    struct tn_plan_options own = o ? *o : (struct tn_plan_options){0};
    struct tn_plan_kernels k = {"ref", kernels ? kernels : kit_ref(TN_KERNELS_ID)};
    struct tn_mesh m = tn_mesh_single();
    struct tn_plan *plan;

    if (!own.kernels) {
        own.kernels = &k;
        own.n_kernels = 1;
    }
    ck_assert_msg(!tn_graph_status(g), "%s", tn_error_text());
    if (tn_plan_new(g, &m, &own, &plan))
        ck_abort_msg("%s", tn_error_text());
    return plan;
}

KIT struct tn_memory *kit_memory(void)
{
    const struct tn_device_api *api = kit_ref(TN_DEVICE_ID);
    static struct tn_device *d; /* one for all tests, never closed */
    struct tn_memory *m;

    if (!d)
        ck_assert_int_eq(api->open(0, &d), TN_OK);
    ck_assert_int_eq(tn_memory_new(api, d, &m), TN_OK);
    return m;
}

KIT int kit_count(const struct tn_plan *plan, const char *op)
{
    int n = 0;

    for (uint32_t i = 0; i < plan->n_row; i++)
        n += !strcmp(plan->row[i].op, op);
    return n;
}

KIT double kit_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (double)(*s >> 40) / (double)(1 << 24) - 0.5;
}

/* --- a small GPT-2 that trains */

KIT int kit_claims(void *ctx, const char *op)
{
    const char *const *o = ((const struct tn_kernels *)kit_ref(TN_KERNELS_ID))->ops;

    for (; *o; o++)
        if (!strcmp(*o, op))
            return !ctx || strcmp(ctx, op);
    return 0;
}

static const struct tn_slot kit_slots[] = {{"m", TN_F32, 0}, {"v", TN_F32, 0}, {NULL, 0, 0}};

/* without: an operation that no kernel claims, or NULL. */
KIT struct tn_graph *kit_gpt2(int64_t micro, int64_t batch, double dropout, int tied, const char *without)
{
    struct tn_model_config c = {.arch = "gpt2",
                                .n_layer = 2,
                                .n_head = 2,
                                .n_embd = 8,
                                .vocab_size = 13,
                                .block_size = 6,
                                .n_inner = 20,
                                .dropout = dropout,
                                .norm_eps = 1e-5,
                                .init_std = 0.02,
                                .bias = 1,
                                .tie_embeddings = tied,
                                .gelu = "tanh"};
    struct tn_model_use use = {.batch = batch, .seq = 5, .micro = micro, .train = 1, .loss = 1};
    struct tn_finish f = {.slots = kit_slots,
                          .clip = 0.5,
                          .update = "m = 0.9*m + 0.1*g; v = 0.99*v + 0.01*g^2; w = w - lr*(m/(1 - "
                                    "0.9^t))/(sqrt(v/(1 - 0.99^t)) + 1e-4)"};
    struct tn_pipeline p = {.finish = &f, .claims = kit_claims, .claims_ctx = (void *)(uintptr_t)without};
    struct tn_graph *g = kit_graph();

    if (tn_model_build(g, &c, &use) || tn_pipeline_run(&p, g))
        ck_abort_msg("%s", tn_error_text());
    return g;
}

/* Parameters and data are functions of names and numbers alone. */
KIT void kit_fill(struct tn_memory *m)
{
    uint64_t bytes;
    const char *name;

    for (uint32_t k = 0; (name = tn_memory_name(m, k, &bytes)); k++) {
        uint64_t seed = 1;
        float *w = calloc(1, bytes + 1);
        for (const char *c = name; *c; c++)
            seed = seed * 31 + (uint64_t)*c;
        for (uint64_t i = 0; i < bytes / sizeof *w && !strchr(name, ':'); i++)
            w[i] = (float)kit_random(&seed);
        ck_assert_int_eq(tn_memory_write(m, name, w, bytes), TN_OK);
        free(w);
    }
}

KIT void kit_batch(struct tn_run *run, uint32_t n, int64_t vocab)
{
    int32_t *token = malloc(n * sizeof *token), *target = malloc(n * sizeof *target);
    uint64_t seed = 7;

    for (uint32_t i = 0; i < n; i++) {
        token[i] = (int32_t)((kit_random(&seed) + 0.5) * (double)vocab);
        target[i] = i % 7 == 3 ? -1 : (int32_t)((kit_random(&seed) + 0.5) * (double)vocab);
    }
    if (tn_run_input(run, "tokens", token, n * 4) || tn_run_input(run, "targets", target, n * 4) ||
        tn_run_input(run, "targets_all", target, n * 4))
        ck_abort_msg("%s", tn_error_text());
    free(token);
    free(target);
}

KIT float kit_scalar(struct tn_run *run, struct tn_graph *g, const char *name)
{
    float x;

    if (tn_run_read(run, tn_graph_find_output(g, name), 0, &x, sizeof x))
        ck_abort_msg("%s", tn_error_text());
    return x;
}

#define KIT_MAIN(NAME, ...)                                                                                  \
    int main(void)                                                                                           \
    {                                                                                                        \
        const TTest *const test[] = {__VA_ARGS__};                                                           \
        Suite *s = suite_create(NAME);                                                                       \
        TCase *c = tcase_create(NAME);                                                                       \
        for (size_t i = 0; i < sizeof test / sizeof *test; i++)                                              \
            tcase_add_test(c, test[i]);                                                                      \
        tcase_set_timeout(c, 120);                                                                           \
        suite_add_tcase(s, c);                                                                               \
        return plugin_suite_run(s);                                                                          \
    }
#endif
