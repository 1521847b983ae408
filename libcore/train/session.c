/* session.c - see session.h. Graphs, plans, memory and runs of one configuration.
 *
 * All graphs are planned before anything is allocated; the arena is that of the largest. */
#include "train/session.h"
#include <math.h>
#include <stdlib.h>
#include "base/pool.h"
#include "base/status.h"
#include "graph/op.h"
#include "run/run.h"
#include "train/engine.h"
#include "train/groups.h"
#include "train/initial.h"

enum { TRAIN, EVAL, LOGITS, PARTS };

#define SCALE_FIRST 65536.0
#define SCALE_MOST 0x1p40
#define SCALE_PATIENCE 2000                      /* updates until it is doubled */

struct part {
    struct tn_graph *graph;
    struct tn_plan *plan;
    struct tn_run *run;
    const struct tn_value *loss, *count, *gnorm, *logits;
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
    struct tn_session_tensor *tensor;
    uint32_t n_tensor;
    uint64_t seed;
    double scale, used_scale;                    /* of the loss: for the next update, in the last one; 1: none */
    uint64_t good;                               /* updates since the scale changed */
    int32_t *staged;                             /* this rank's part of an input, all micro-batches */
    char bad[256];
};

/* --- from the configuration */

tn_status tn_session_configure(struct tn_config *c, struct tn_session **out)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_session *s = tn_alloc(arena, sizeof *s);
    tn_status status;

    s->arena = arena;
    s->config = c;
    status = tn_engine_find(c, &s->engine);
    if (status) {
        tn_arena_free(arena);
        return status;
    }
    *out = s;
    return TN_OK;
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
    h->n_micro = h->global_batch / (h->micro_batch * dp);
    h->world = tn_mesh_world(&s->mesh);
    h->rank = tn_mesh_rank(&s->mesh);
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
                                .n_micro = which == TRAIN ? (uint32_t)s->shape.n_micro : 1};

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
                                        .rank = v->param->spec.file_rank, .bytes = tn_plan_bytes(any_plan(s), v)};
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

static tn_status open_runs(struct tn_session *s)
{
    double seconds = tn_config_float(s->config, "backend.timeout");
    tn_status status = tn_engine_open(&s->engine, s->config);

    if (!status)
        status = tn_memory_new(s->engine.device_api, s->engine.device, &s->memory);
    for (int i = 0; i < PARTS && !status; i++)
        if (s->part[i].plan)
            tn_memory_reserve(s->memory, s->part[i].plan);
    for (int i = 0; i < PARTS && !status; i++)
        if (s->part[i].plan)
            status = tn_run_open(s->part[i].plan, s->memory, seconds, &s->part[i].run);
    if (!status)
        s->staged = tn_alloc(s->arena, (size_t)(s->shape.global_batch * s->shape.seq_len) * sizeof *s->staged);
    return status;
}

tn_status tn_session_open(struct tn_session *s, const struct tn_session_options *o)
{
    tn_status status;

    s->options = *o;
    s->scale = s->used_scale = dtype_of(s->config) == TN_F16 ? SCALE_FIRST : 1;
    s->mesh = tn_mesh_single();
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

uint32_t tn_session_tensors(const struct tn_session *s)
{
    return s->n_tensor;
}

const struct tn_session_tensor *tn_session_tensor(const struct tn_session *s, uint32_t i)
{
    return &s->tensor[i];
}

tn_status tn_session_get(struct tn_session *s, uint32_t i, void *host)
{
    return tn_memory_read(s->memory, s->tensor[i].name, host, s->tensor[i].bytes);
}

tn_status tn_session_set(struct tn_session *s, uint32_t i, const void *host)
{
    return tn_memory_write(s->memory, s->tensor[i].name, host, s->tensor[i].bytes);
}

tn_status tn_session_initialize(struct tn_session *s, uint64_t seed)
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < s->n_tensor && !status; i++) {
        const struct tn_session_tensor *t = &s->tensor[i];
        void *host = calloc(1, t->bytes ? t->bytes : 1);
        struct tn_local local;

        if (!host)
            return tn_error(TN_ERR_MEMORY, "no memory for the initial %s (%llu bytes)", t->name, (unsigned long long)t->bytes);
        tn_value_local(t->value, &s->mesh, s->arena, &local);
        if (!t->is_state)
            tn_initial_weights(t->value->param, &local, seed, host);
        status = tn_session_set(s, i, host);
        free(host);
    }
    return status;
}

/* --- work */

/* This rank's part of [n_micro, batch, seq]: v has batch and seq as its last dims. Returns elements staged. */
static int64_t stage(struct tn_session *s, const struct tn_value *v, int64_t n_micro, const int32_t *all)
{
    int64_t batch = v->size[v->rank - 2], seq = v->size[v->rank - 1], k = 0;
    uint32_t db = v->rank - 2, ds = v->rank - 1;
    struct tn_local l;

    tn_value_local(v, &s->mesh, s->arena, &l);
    for (int64_t m = 0; m < n_micro; m++)
        for (int64_t b = 0; b < l.size[db]; b++) {
            const int32_t *row = all + (m * batch + (l.index[db] ? l.index[db][b] : l.origin[db] + b)) * seq;

            for (int64_t t = 0; t < l.size[ds]; t++)
                s->staged[k++] = row[l.index[ds] ? l.index[ds][t] : l.origin[ds] + t];
        }
    return k;
}

static tn_status feed(struct tn_session *s, struct part *part, const char *name, int64_t n_micro, const int32_t *all)
{
    const struct tn_value *v = tn_graph_find_input(part->graph, name);

    if (!v)
        return TN_OK;
    return tn_run_input(part->run, name, s->staged, (uint64_t)stage(s, v, n_micro, all) * sizeof(int32_t));
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

tn_status tn_session_update(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                            struct tn_session_result *out)
{
    struct part *part = &s->part[TRAIN];
    int64_t n = s->shape.n_micro;
    tn_status status = feed(s, part, "tokens", n, tokens);

    *out = (struct tn_session_result){.scale = s->scale};
    if (!status)
        status = feed(s, part, "targets", n, targets);
    if (!status)
        status = feed(s, part, "targets_all", n, targets);
    if (!status)
        status = tn_run_symbol(part->run, "lr", lr);
    if (!status)
        status = tn_run_symbol(part->run, "t", (double)step + 1);
    if (!status)
        status = tn_run_symbol(part->run, TN_LOSS_SCALE, s->scale);
    if (status)
        return status;
    tn_run_seed(part->run, s->seed, step);
    status = tn_run_compute(part->run);
    if (!status)
        status = read_scalar(part, part->loss, &out->loss);
    if (!status)
        status = read_scalar(part, part->gnorm, &out->gnorm);
    if (status)
        return status;
    s->used_scale = s->scale;
    out->skipped = !isfinite(out->loss) || !isfinite(out->gnorm);
    settle_scale(s, out);
    return out->skipped ? TN_OK : tn_run_update(part->run);
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
    tn_status status = feed(s, part, "tokens", 1, tokens);

    if (!status)
        status = feed(s, part, "targets", 1, targets);
    if (!status)
        status = tn_run_step(part->run);
    if (!status)
        status = read_scalar(part, part->loss, sum);
    return status ? status : read_scalar(part, part->count, count);
}

tn_status tn_session_logits(struct tn_session *s, const int32_t *tokens, float *logits)
{
    struct part *part = &s->part[LOGITS];
    tn_status status = feed(s, part, "tokens", 1, tokens);

    if (!status)
        status = tn_run_step(part->run);
    return status ? status : tn_run_read(part->run, part->logits, 0, logits, tn_plan_bytes(part->plan, part->logits));
}

tn_status tn_session_gradient(struct tn_session *s, uint32_t i, void *host)
{
    const struct tn_value *grad = s->tensor[i].value->param->grad;
    const struct tn_plan *plan = s->part[TRAIN].plan;
    tn_status status = tn_run_read(s->part[TRAIN].run, grad, 0, host, tn_plan_bytes(plan, grad));
    float *x = host;

    for (int64_t k = 0; k < tn_plan_count(plan, grad) && !status && s->used_scale != 1; k++)
        x[k] = (float)(x[k] / s->used_scale);
    return status;
}

tn_status tn_session_step_logits(struct tn_session *s, void *host)
{
    const struct part *part = &s->part[TRAIN];

    return tn_run_read(part->run, part->logits, 0, host, tn_plan_bytes(part->plan, part->logits));
}
