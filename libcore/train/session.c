/* session.c - see session.h. Graphs, plans, memory and runs of one configuration.
 *
 * All graphs are planned before anything is allocated; the arena is that of the largest. */
#include "train/session.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "base/debug.h"
#include "base/pool.h"
#include "base/status.h"
#include "graph/op.h"
#include "run/collective.h"
#include "run/run.h"
#include "train/engine.h"
#include "train/groups.h"
#include "train/initial.h"
#include "train/whole.h"

enum { TRAIN, EVAL, LOGITS, PARTS };

#define SCALE_FIRST 65536.0
#define SCALE_MOST 0x1p40
#define SCALE_PATIENCE 2000                      /* updates until it is doubled */

/* An input of the graph and what this rank holds of it. */
struct feed {
    const struct tn_value *value;                /* NULL: the graph has none of this name */
    struct tn_local local;
};

struct part {
    struct tn_graph *graph;
    struct tn_plan *plan;
    struct tn_run *run;
    const struct tn_value *loss, *count, *gnorm, *logits;
    struct feed tokens, targets, targets_all;
    uint32_t lr, t, scale;                       /* numbers of the symbols */
};

struct tn_session {
    struct tn_config *config;
    struct tn_engine engine;
    struct tn_arena *arena;
    struct tn_model_config model;
    struct tn_mesh mesh;
    struct tn_session_shape shape;
    struct tn_session_options options;
    struct part part[PARTS];
    struct tn_memory *memory;
    struct tn_collectives collectives;
    struct tn_session_tensor *tensor;
    uint32_t n_tensor;
    uint64_t seed;
    uint32_t changed;                            /* states may be anything but the zeros that they begin as */
    double scale, used_scale;                    /* of the loss: for the next update, in the last one; 1: none */
    uint64_t good;                               /* updates since the scale changed */
    int32_t *staged;                             /* this rank's part of an input, all micro-batches */
    char bad[256];
};

/* --- from the configuration */

tn_status tn_session_configure_at(struct tn_config *c, const struct tn_place *place, struct tn_session **out)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_session *s = tn_alloc(arena, sizeof *s);
    tn_status status;

    s->arena = arena;
    s->config = c;
    status = tn_engine_find(c, place, &s->engine);
    if (status) {
        tn_arena_free(arena);
        return status;
    }
    s->mesh = s->engine.world->mesh;
    s->shape.world = tn_mesh_world(&s->mesh);
    s->shape.rank = tn_mesh_rank(&s->mesh);
    *out = s;
    return TN_OK;
}

tn_status tn_session_configure(struct tn_config *c, struct tn_session **out)
{
    return tn_session_configure_at(c, NULL, out);
}

static void read_model(struct tn_session *s)
{
    const struct tn_config *c = s->config;
    int64_t inner = tn_config_int(c, "model.n_inner"), width = tn_config_int(c, "model.n_embd");

    s->model = (struct tn_model_config){
        .arch = tn_config_text(c, "model.arch"),
        .n_layer = tn_config_int(c, "model.n_layer"),
        .n_head = tn_config_int(c, "model.n_head"),
        .n_embd = width,
        .vocab_size = tn_config_int(c, "model.vocab_size"),
        .block_size = tn_config_int(c, "model.block_size"),
        .n_inner = inner ? inner : 4 * width,
        .dropout = tn_config_float(c, "model.dropout"),
        .norm_eps = tn_config_float(c, "model.norm_eps"),
        .init_std = tn_config_float(c, "model.init_std"),
        .bias = tn_config_flag(c, "model.bias"),
        .tie_embeddings = !tn_config_text(c, "model.tie_embeddings") || tn_config_flag(c, "model.tie_embeddings"),
        .gelu = tn_config_text(c, "model.gelu"),
    };
}

static tn_status read_shape(struct tn_session *s)
{
    struct tn_session_shape *h = &s->shape;
    const struct tn_config *c = s->config;
    int64_t dp = s->mesh.size[0] * s->mesh.size[1];

    if (!s->model.vocab_size)
        return tn_config_fail(c, "model.vocab_size", "it is not set, and there are no data to take it from: set it, or data.dir");
    h->seq_len = tn_config_text(c, "train.seq_len") ? tn_config_int(c, "train.seq_len") : s->model.block_size;
    h->global_batch = tn_config_int(c, "train.global_batch");
    h->micro_batch = tn_config_text(c, "train.micro_batch") ? tn_config_int(c, "train.micro_batch") : h->global_batch / dp;
    if (h->seq_len > s->model.block_size)
        return tn_config_fail(c, "train.seq_len", "it is more than model.block_size = %lld, the positions that the model has",
                              (long long)s->model.block_size);
    if (h->micro_batch < 1 || h->global_batch % (h->micro_batch * dp))
        return tn_config_fail(c, "train.micro_batch", "%lld sequences on each of %lld data-parallel ranks do not divide train.global_batch = %lld",
                              (long long)h->micro_batch, (long long)dp, (long long)h->global_batch);
    h->eval_batch = h->micro_batch * dp;
    h->n_micro = h->global_batch / h->eval_batch;
    s->seed = (uint64_t)tn_config_int(c, "train.seed");
    return TN_OK;
}

/* --- graphs and plans */

static uint32_t dtype_of(const struct tn_config *c)
{
    return tn_config_is(c, "backend.dtype", "bf16") ? TN_BF16 : tn_config_is(c, "backend.dtype", "fp16") ? TN_F16 : TN_F32;
}

static void dump(void *ctx, const char *step, struct tn_graph *g)
{
    struct tn_session *s = ctx;
    const struct tn_session_options *o = &s->options;

    if (o->dump && o->dump_after && (!strcmp(o->dump_after, "all") || !strcmp(o->dump_after, step)))
        o->dump(o->dump_ctx, step, g);
}

static struct tn_model_use use_of(const struct tn_session *s, int which)
{
    const struct tn_session_shape *h = &s->shape;
    int64_t batch = h->micro_batch * s->mesh.size[0] * s->mesh.size[1];
    int step = (s->options.use & TN_SESSION_STEP) != 0;

    switch (which) {
    case TRAIN: return (struct tn_model_use){batch, h->seq_len, h->n_micro, 1, 1, step};
    case EVAL: return (struct tn_model_use){batch, h->seq_len, 1, 0, 1, 0};
    default: return (struct tn_model_use){1, h->seq_len, 1, 0, 0, 1};
    }
}

static tn_status make_graph(struct tn_session *s, int which)
{
    struct tn_model_use use = use_of(s, which);
    struct part *part = &s->part[which];
    struct tn_pipeline pipeline = {.pass = s->engine.pass, .n_pass = s->engine.n_pass, .finish = which == TRAIN ? &s->engine.finish : NULL,
                                   .dtype = dtype_of(s->config),
                                   .recompute = (uint32_t)tn_config_flag(s->config, "train.recompute"),
                                   .claims = tn_engine_claims, .claims_ctx = &s->engine, .after = dump, .after_ctx = s};
    tn_status status;

    part->graph = tn_graph_new(&s->mesh);
    status = tn_model_build(part->graph, &s->model, &use);
    if (!status && which == TRAIN)
        status = tn_groups_apply(s->config, part->graph);
    if (!status)
        status = tn_pipeline_run(&pipeline, part->graph);
    part->loss = tn_graph_find_output(part->graph, "loss");
    part->count = tn_graph_find_output(part->graph, "count");
    part->gnorm = tn_graph_find_output(part->graph, "gnorm");
    part->logits = tn_graph_find_output(part->graph, "logits");
    return status;
}

static tn_status make_plan(struct tn_session *s, int which)
{
    struct part *part = &s->part[which];
    struct tn_graph *g = part->graph;
    struct tn_value **keep = tn_alloc(s->arena, (g->n_param + 2) * sizeof *keep);
    struct tn_plan_options o = {.kernels = s->engine.kernels, .n_kernels = s->engine.n_kernels, .keep = keep,
                                .n_micro = which == TRAIN ? (uint32_t)s->shape.n_micro : 1,
                                .collective = tn_collective_prepare, .collective_ctx = &s->collectives};

    if (which == TRAIN && s->options.use & TN_SESSION_STEP)
        for (struct tn_value *v = g->params; v; v = v->next)
            keep[o.n_keep++] = v->param->grad;
    if (part->logits)
        keep[o.n_keep++] = (struct tn_value *)part->logits;
    return tn_plan_new(g, &s->mesh, &o, &part->plan);
}

static tn_status make_parts(struct tn_session *s)
{
    static const uint32_t use[PARTS] = {TN_SESSION_TRAIN, TN_SESSION_EVAL, TN_SESSION_LOGITS};
    tn_status status = TN_OK;

    for (int i = 0; i < PARTS && !status; i++)
        if (s->options.use & use[i]) {
            status = make_graph(s, i);
            if (!status)
                status = make_plan(s, i);
        }
    return status;
}

/* --- tensors */

static const struct tn_graph *any_graph(const struct tn_session *s)
{
    for (int i = 0; i < PARTS; i++)
        if (s->part[i].graph)
            return s->part[i].graph;
    return NULL;
}

static const struct tn_plan *any_plan(const struct tn_session *s)
{
    for (int i = 0; i < PARTS; i++)
        if (s->part[i].plan)
            return s->part[i].plan;
    return NULL;
}

static void add_tensors(struct tn_session *s, const struct tn_value *v)
{
    for (; v; v = v->next) {
        struct tn_session_tensor *t = &s->tensor[s->n_tensor++];

        *t = (struct tn_session_tensor){.name = v->name, .value = v, .is_state = v->kind == TN_VALUE_STATE, .dtype = v->dtype,
                                        .rank = v->param->spec.file_rank, .held = tn_plan_bytes(any_plan(s), v),
                                        .bytes = (uint64_t)tn_value_count(v) * tn_dtype_bytes(v->dtype)};
        memcpy(t->shape, v->param->spec.file_shape, sizeof t->shape);
    }
}

static void list_tensors(struct tn_session *s)
{
    const struct tn_graph *g = any_graph(s);
    uint32_t n = 0;

    for (const struct tn_value *v = g->params; v; v = v->next) {
        n += 1 + v->param->n_state;
        if (v->param->twin)
            continue;
        s->shape.n_parameters += tn_value_count(v);
        if (tn_value_find_dim(v, "posn") < 0)
            s->shape.n_parameters_no_position += tn_value_count(v);
    }
    s->tensor = tn_alloc(s->arena, (n + 1) * sizeof *s->tensor);
    add_tensors(s, g->params);
    add_tensors(s, g->states);
}

/* --- opening */

static void find_feed(struct tn_session *s, const struct part *part, const char *name, struct feed *f)
{
    f->value = tn_graph_find_input(part->graph, name);
    if (f->value)
        tn_value_local(f->value, &s->mesh, s->arena, &f->local);
}

static tn_status open_run(struct tn_session *s, struct part *part, double seconds)
{
    tn_status status = tn_run_open(part->plan, s->memory, seconds, &part->run);

    if (status)
        return status;
    find_feed(s, part, "tokens", &part->tokens);
    find_feed(s, part, "targets", &part->targets);
    find_feed(s, part, "targets_all", &part->targets_all);
    part->lr = tn_run_symbol_number(part->run, "lr");
    part->t = tn_run_symbol_number(part->run, "t");
    part->scale = tn_run_symbol_number(part->run, TN_LOSS_SCALE);
    return TN_OK;
}

static tn_status open_runs(struct tn_session *s)
{
    double seconds = tn_config_float(s->config, "backend.timeout");
    tn_status status = tn_engine_open(&s->engine, s->config);

    if (!status)
        status = tn_collectives_open(&s->collectives, s->engine.world);
    if (!status)
        status = tn_memory_new(s->engine.device_api, s->engine.device, &s->memory);
    for (int i = 0; i < PARTS && !status; i++)
        if (s->part[i].plan)
            tn_memory_reserve(s->memory, s->part[i].plan);
    for (int i = 0; i < PARTS && !status; i++)
        if (s->part[i].plan)
            status = open_run(s, &s->part[i], seconds);
    if (!status)
        s->staged = tn_alloc(s->arena, (size_t)(s->shape.global_batch * s->shape.seq_len) * sizeof *s->staged);
    return status;
}

tn_status tn_session_open(struct tn_session *s, const struct tn_session_options *o)
{
    tn_status status;

    s->options = *o;
    s->scale = s->used_scale = dtype_of(s->config) == TN_F16 ? SCALE_FIRST : 1;
    s->collectives = (struct tn_collectives){.comm = s->engine.world->comm_api, .device = s->engine.device_api, .mesh = s->mesh,
                                             .kernels = s->engine.kernels, .n_kernels = s->engine.n_kernels,
                                             .seconds = tn_config_float(s->config, "backend.timeout")};
    read_model(s);
    status = read_shape(s);
    if (!status)
        status = make_parts(s);
    if (status)
        return status;
    list_tensors(s);
    return o->plan_only ? TN_OK : open_runs(s);
}

void tn_session_close(struct tn_session *s)
{
    if (!s)
        return;
    for (int i = 0; i < PARTS; i++)
        tn_run_close(s->part[i].run);
    tn_memory_free(s->memory);
    for (int i = 0; i < PARTS; i++) {
        tn_plan_free(s->part[i].plan);
        tn_graph_free(s->part[i].graph);
    }
    tn_engine_close(&s->engine);
    tn_arena_free(s->arena);
}

/* --- what came out */

const struct tn_session_shape *tn_session_shape(const struct tn_session *s)
{
    return &s->shape;
}

const struct tn_model_config *tn_session_model(const struct tn_session *s)
{
    return &s->model;
}

static int which(uint32_t use)
{
    return use & TN_SESSION_TRAIN ? TRAIN : use & TN_SESSION_EVAL ? EVAL : LOGITS;
}

const struct tn_plan *tn_session_plan(const struct tn_session *s, uint32_t use)
{
    return s->part[which(use)].plan;
}

const struct tn_graph *tn_session_graph(const struct tn_session *s, uint32_t use)
{
    return s->part[which(use)].graph;
}

const char *tn_session_device(const struct tn_session *s)
{
    return s->engine.device ? s->engine.device_text : s->engine.device_api->kind;
}

const char *tn_session_kernels(const struct tn_session *s)
{
    return s->engine.kernel_names;
}

uint32_t tn_session_threads(const struct tn_session *s)
{
    (void)s;
    return tn_host->threads();
}

const struct tn_engine *tn_session_engine(const struct tn_session *s)
{
    return &s->engine;
}

uint32_t tn_session_tensors(const struct tn_session *s)
{
    return s->n_tensor;
}

const struct tn_session_tensor *tn_session_tensor(const struct tn_session *s, uint32_t i)
{
    return &s->tensor[i];
}

/* Reads v, as held, by read(), and makes it whole on rank 0. */
static tn_status gather(struct tn_session *s, const struct tn_value *v, uint64_t held, void *whole,
                        tn_status (*read)(struct tn_session *s, uint32_t i, void *host), uint32_t i)
{
    void *part;
    tn_status status;

    if (s->shape.world == 1)
        return read(s, i, whole);
    part = malloc(held ? held : 1);
    status = part ? read(s, i, part) : tn_error(TN_ERR_MEMORY, "no memory for %s (%llu bytes)", v->name, (unsigned long long)held);
    if (!status)
        status = tn_whole_gather(s->engine.world, v, part, whole);
    free(part);
    return status;
}

tn_status tn_session_get_held(struct tn_session *s, uint32_t i, void *host)
{
    return tn_memory_read(s->memory, s->tensor[i].name, host, s->tensor[i].held);
}

tn_status tn_session_get(struct tn_session *s, uint32_t i, void *host)
{
    return gather(s, s->tensor[i].value, s->tensor[i].held, host, tn_session_get_held, i);
}

tn_status tn_session_set(struct tn_session *s, uint32_t i, const void *host)
{
    const struct tn_session_tensor *t = &s->tensor[i];
    void *part;
    tn_status status;

    s->changed = 1;
    if (s->shape.world == 1)
        return tn_memory_write(s->memory, t->name, host, t->held);
    part = malloc(t->held ? t->held : 1);
    if (!part)
        return tn_error(TN_ERR_MEMORY, "no memory for %s (%llu bytes)", t->name, (unsigned long long)t->held);
    tn_whole_cut(s->engine.world, t->value, host, part);
    status = tn_memory_write(s->memory, t->name, part, t->held);
    free(part);
    return status;
}

int tn_session_any(struct tn_session *s, int here)
{
    int anywhere = here;

    return tn_whole_any(s->engine.world, here, &anywhere) ? 1 : anywhere;
}

/* Weights are made where they lie if the host sees that memory, else in memory of the host. */
static tn_status initialize_weights(struct tn_session *s, uint32_t i, uint64_t seed)
{
    const struct tn_session_tensor *t = &s->tensor[i];
    void *at = s->engine.info.host_access ? tn_memory_at(s->memory, t->name) : NULL, *host = at ? at : malloc(t->held + 1);
    struct tn_local local;
    tn_status status = TN_OK;

    if (!host)
        return tn_error(TN_ERR_MEMORY, "no memory for the initial %s (%llu bytes)", t->name, (unsigned long long)t->held);
    tn_value_local(t->value, &s->mesh, s->arena, &local);
    tn_initial_weights(t->value->param, &local, seed, host);
    if (!at) {
        status = tn_memory_write(s->memory, t->name, host, t->held);
        free(host);
    }
    return status;
}

static tn_status clear_state(struct tn_session *s, uint32_t i)
{
    const struct tn_session_tensor *t = &s->tensor[i];
    void *host = calloc(1, t->held + 1);
    tn_status status;

    if (!host)
        return tn_error(TN_ERR_MEMORY, "no memory to clear %s (%llu bytes)", t->name, (unsigned long long)t->held);
    status = tn_memory_write(s->memory, t->name, host, t->held);
    free(host);
    return status;
}

tn_status tn_session_initialize(struct tn_session *s, uint64_t seed)
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < s->n_tensor && !status; i++)
        if (!s->tensor[i].is_state)
            status = initialize_weights(s, i, seed);
        else if (s->changed)
            status = clear_state(s, i);
    return status;
}

/* --- work */

/* This rank's part of [n_micro, batch, seq]: batch and seq are the last dims of the input. Returns elements staged. */
static int64_t stage(struct tn_session *s, const struct feed *f, int64_t n_micro, const int32_t *all)
{
    const struct tn_local *l = &f->local;
    uint32_t db = f->value->rank - 2, ds = f->value->rank - 1;
    int64_t batch = f->value->size[db], seq = f->value->size[ds], k = 0;

    for (int64_t m = 0; m < n_micro; m++)
        for (int64_t b = 0; b < l->size[db]; b++) {
            const int32_t *row = all + (m * batch + (l->index[db] ? l->index[db][b] : l->origin[db] + b)) * seq;

            for (int64_t t = 0; t < l->size[ds]; t++)
                s->staged[k++] = row[l->index[ds] ? l->index[ds][t] : l->origin[ds] + t];
        }
    return k;
}

static tn_status feed(struct tn_session *s, struct part *part, const struct feed *f, int64_t n_micro, const int32_t *all)
{
    if (!f->value)
        return TN_OK;
    return tn_run_feed(part->run, f->value, s->staged, (uint64_t)stage(s, f, n_micro, all) * sizeof(int32_t));
}

static tn_status read_scalar(struct part *part, const struct tn_value *v, double *out)
{
    float x = 0;
    tn_status status = tn_run_read(part->run, v, 0, &x, sizeof x);

    *out = x;
    return status;
}

static int has_scale(const struct tn_session *s)
{
    return dtype_of(s->config) == TN_F16;
}

int tn_session_scale_get(const struct tn_session *s, double *scale, uint64_t *good)
{
    *scale = s->scale;
    *good = s->good;
    return has_scale(s);
}

tn_status tn_session_scale_set(struct tn_session *s, double scale, uint64_t good)
{
    int exponent;

    if (!has_scale(s))
        return TN_OK;
    if (!(scale >= 1 && scale <= SCALE_MOST) || frexp(scale, &exponent) != 0.5 || good >= SCALE_PATIENCE)
        return tn_error(TN_ERR_INPUT, "%g, unchanged for %llu updates, is no scale of the loss: it is a power of two from 1 to %g, and "
                        "doubled after %d updates", scale, (unsigned long long)good, SCALE_MOST, SCALE_PATIENCE);
    s->scale = scale;
    s->good = good;
    return TN_OK;
}

/* After an update: down at once, up slowly. A loss that is not finite, or a norm that is not even without a scale, is no
 * matter of the scale. */
static void settle_scale(struct tn_session *s, struct tn_session_result *r)
{
    if (!has_scale(s))
        return;
    if (r->skipped) {
        r->overflow = isfinite(r->loss) && s->scale > 1;
        s->scale = r->overflow ? s->scale / 2 : s->scale;
        s->good = 0;
    } else if (++s->good == SCALE_PATIENCE) {
        s->scale = s->scale < SCALE_MOST ? 2 * s->scale : s->scale;
        s->good = 0;
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tn_status feed_update(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr)
{
    struct part *part = &s->part[TRAIN];
    int64_t n = s->shape.n_micro;
    tn_status status = feed(s, part, &part->tokens, n, tokens);

    if (!status)
        status = feed(s, part, &part->targets, n, targets);
    if (!status)
        status = feed(s, part, &part->targets_all, n, targets);
    tn_run_set_symbol(part->run, part->lr, lr);
    tn_run_set_symbol(part->run, part->t, (double)step + 1);
    tn_run_set_symbol(part->run, part->scale, s->scale);
    tn_run_seed(part->run, s->seed, step);
    return status;
}

/* times NULL: nobody asks. */
static tn_status update(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                        struct tn_session_times *times, struct tn_session_result *out)
{
    struct part *part = &s->part[TRAIN];
    uint64_t before = tn_debug_allocations();
    double start = times ? now() : 0;
    tn_status status = feed_update(s, step, tokens, targets, lr);

    *out = (struct tn_session_result){.scale = s->scale};
    if (times)
        times->feed += now() - start;
    if (!status)
        status = times ? tn_run_compute_timed(part->run, &times->run) : tn_run_compute(part->run);
    if (!status)
        status = read_scalar(part, part->loss, &out->loss);
    if (!status)
        status = read_scalar(part, part->gnorm, &out->gnorm);
    if (status)
        return status;
    s->used_scale = s->scale;
    out->skipped = !isfinite(out->loss) || !isfinite(out->gnorm);
    settle_scale(s, out);
    s->changed = 1;
    if (!out->skipped)
        status = times ? tn_run_update_timed(part->run, &times->run) : tn_run_update(part->run);
    tn_debug_no_allocation_since(before, "an update");
    return status;
}

tn_status tn_session_update(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                            struct tn_session_result *out)
{
    return update(s, step, tokens, targets, lr, NULL, out);
}

tn_status tn_session_update_timed(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                                  struct tn_session_times *times, struct tn_session_result *out)
{
    return update(s, step, tokens, targets, lr, times, out);
}

tn_status tn_session_apply(struct tn_session *s)
{
    return tn_run_update(s->part[TRAIN].run);
}

const char *tn_session_nonfinite(struct tn_session *s)
{
    struct tn_bad bad;

    if (tn_run_first_nonfinite(s->part[TRAIN].run, &bad))
        snprintf(s->bad, sizeof s->bad, "a tensor that could not be found (%s)", tn_error_text());
    else if (!bad.value)
        snprintf(s->bad, sizeof s->bad, "no tensor: all are finite when computed again");
    else if (!bad.row)
        snprintf(s->bad, sizeof s->bad, "%s, element %lld = %g", bad.value->name, (long long)bad.element, bad.number);
    else
        snprintf(s->bad, sizeof s->bad, "the output of %s (unit %s, role %s), micro-batch %u, element %lld = %g", bad.row->node->op->name,
                 bad.row->node->unit, bad.row->node->role, bad.micro, (long long)bad.element, bad.number);
    return s->bad;
}

tn_status tn_session_evaluate(struct tn_session *s, const int32_t *tokens, const int32_t *targets, double *sum, double *count)
{
    struct part *part = &s->part[EVAL];
    tn_status status = feed(s, part, &part->tokens, 1, tokens);

    if (!status)
        status = feed(s, part, &part->targets, 1, targets);
    if (!status)
        status = tn_run_step(part->run);
    if (!status)
        status = read_scalar(part, part->loss, sum);
    return status ? status : read_scalar(part, part->count, count);
}

tn_status tn_session_logits(struct tn_session *s, const int32_t *tokens, float *logits)
{
    struct part *part = &s->part[LOGITS];
    tn_status status = feed(s, part, &part->tokens, 1, tokens);

    if (!status)
        status = tn_run_step(part->run);
    return status ? status : tn_run_read(part->run, part->logits, 0, logits, tn_plan_bytes(part->plan, part->logits));
}

const struct tn_value *tn_session_gradient_value(const struct tn_session *s, uint32_t i)
{
    return s->tensor[i].value->param->grad;
}

tn_status tn_session_gradient_held(struct tn_session *s, uint32_t i, void *host)
{
    const struct tn_value *grad = tn_session_gradient_value(s, i);
    const struct tn_plan *plan = s->part[TRAIN].plan;
    tn_status status = tn_run_read(s->part[TRAIN].run, grad, 0, host, tn_plan_bytes(plan, grad));
    float *x = host;

    for (int64_t k = 0; k < tn_plan_count(plan, grad) && !status && s->used_scale != 1; k++)
        x[k] = (float)(x[k] / s->used_scale);
    return status;
}

tn_status tn_session_gradient(struct tn_session *s, uint32_t i, void *host)
{
    const struct tn_value *grad = tn_session_gradient_value(s, i);

    return gather(s, grad, tn_plan_bytes(s->part[TRAIN].plan, grad), host, tn_session_gradient_held, i);
}

static tn_status read_logits(struct tn_session *s, uint32_t micro, void *host)
{
    const struct part *part = &s->part[TRAIN];

    return tn_run_read(part->run, part->logits, micro, host, tn_plan_bytes(part->plan, part->logits));
}

tn_status tn_session_step_logits(struct tn_session *s, int64_t sequences, void *host)
{
    const struct part *part = &s->part[TRAIN];
    int64_t batch = part->logits->size[0], row = tn_value_count(part->logits) / batch;
    float *whole = malloc((size_t)(batch * row) * sizeof *whole), *out = host;
    tn_status status = whole ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for the logits of a micro-batch");

    for (int64_t m = 0; m * batch < sequences && m < s->shape.n_micro && !status; m++) {
        int64_t n = sequences - m * batch < batch ? sequences - m * batch : batch;

        status = gather(s, part->logits, tn_plan_bytes(part->plan, part->logits), whole, read_logits, (uint32_t)m);
        if (!status && !s->shape.rank)
            memcpy(out + m * batch * row, whole, (size_t)(n * row) * sizeof *whole);
    }
    free(whole);
    return status;
}
