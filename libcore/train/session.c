/* session.c - see session.h. Graphs, plans, memory and runs of one configuration.
 *
 * All graphs are planned before anything is allocated; the arena is that of the largest. */
#include "train/session_own.h"
#include "base/status.h"
#include "plugin/rules.h"
#include "run/compare.h"
#include "train/groups.h"
#include "train/model_config.h"

/* --- from the configuration */

tn_status tn_session_configure_at(struct tn_config *c, const struct tn_place *place, struct tn_session **out)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_session *s = tn_alloc(arena, sizeof *s);
    tn_status status;

    s->arena = arena;
    s->config = c;
    if (tn_config_flag(c, "backend.debug"))
        tn_rules_begin();
    tn_rules_build();
    status = tn_engine_find(c, place, &s->engine);
    if (status) {
        tn_arena_free(arena);
        return status;
    }
    s->mesh = s->engine.world->mesh;
    s->shape.mesh = s->mesh;
    s->shape.world = tn_mesh_world(&s->mesh);
    s->shape.rank = tn_mesh_rank(&s->mesh);
    s->shape.dtype = session_dtype(c);
    *out = s;
    return TN_OK;
}

tn_status tn_session_configure(struct tn_config *c, struct tn_session **out)
{
    return tn_session_configure_at(c, NULL, out);
}

/* Elements of the largest values, by the keys that make them: more cannot be counted, let alone held. */
static tn_status check_sizes(const struct tn_session *s)
{
    const struct tn_session_shape *h = &s->shape;
    const struct tn_model_config *m = &s->model;
    const double most = 0x1p58, tokens = (double)h->eval_batch * (double)h->seq_len;
    const struct {
        const char *key, *what;
        double elements;
    } large[] = {
        {"model.n_embd", "model.vocab_size x model.n_embd", (double)m->vocab_size * (double)m->n_embd},
        {"model.n_inner", "model.n_inner x model.n_embd", (double)m->n_inner * (double)m->n_embd},
        {"train.micro_batch", "train.micro_batch x train.seq_len x model.n_inner",
         tokens * (double)m->n_inner},
        {"train.micro_batch", "train.micro_batch x train.seq_len x 3 model.n_embd",
         3 * tokens * (double)m->n_embd},
        {"train.micro_batch", "train.micro_batch x train.seq_len x model.vocab_size",
         tokens * (double)m->vocab_size},
        {"train.seq_len", "train.micro_batch x model.n_head x train.seq_len x train.seq_len",
         tokens * (double)h->seq_len * (double)m->n_head},
    };

    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        if (large[i].elements > most)
            return tn_config_fail(s->config, large[i].key,
                                  "%s is %.3g elements of one tensor, more than can be counted",
                                  large[i].what, large[i].elements);
    return TN_OK;
}

int64_t tn_session_seq_len(const struct tn_session *s)
{
    const struct tn_config *c = s->config;

    return tn_config_int(c, tn_config_text(c, "train.seq_len") ? "train.seq_len" : "model.block_size");
}

static tn_status read_shape(struct tn_session *s)
{
    struct tn_session_shape *h = &s->shape;
    const struct tn_config *c = s->config;
    int64_t dp = s->mesh.size[0] * s->mesh.size[1];

    if (!s->model.vocab_size)
        return tn_config_fail(c, "model.vocab_size", "it is not set, and there are no data to take it from: set it, or data.dir");
    h->seq_len = tn_session_seq_len(s);
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
    return check_sizes(s);
}

/* --- graphs and plans */

uint32_t session_dtype(const struct tn_config *c)
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
    int64_t samples = s->options.samples ? s->options.samples : 1, chunk = s->options.chunk;

    switch (which) {
    case TRAIN: return (struct tn_model_use){batch, h->seq_len, h->n_micro, 1, 1, step, 0};
    case EVAL: return (struct tn_model_use){batch, h->seq_len, 1, 0, 1, 0, 0};
    case DECODE: return (struct tn_model_use){samples, 1, 1, 0, 0, 1, h->seq_len};
    case PREFILL: return (struct tn_model_use){samples, chunk && chunk < h->seq_len ? chunk : h->seq_len, 1, 0, 0, 0, h->seq_len};
    default: return (struct tn_model_use){1, h->seq_len, 1, 0, 0, 1, 0};
    }
}

static tn_status make_graph(struct tn_session *s, int which)
{
    struct tn_model_use use = use_of(s, which);
    struct part *part = &s->part[which];
    struct tn_pipeline pipeline = {.pass = s->engine.pass, .n_pass = s->engine.n_pass, .finish = which == TRAIN ? &s->engine.finish : NULL,
                                   .dtype = session_dtype(s->config),
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
    part->positions = tn_graph_find_input(part->graph, "positions");
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
            if (tn_value_here(v->param->grad, &s->mesh))
                keep[o.n_keep++] = v->param->grad;
    if (part->logits && tn_value_here(part->logits, &s->mesh))
        keep[o.n_keep++] = (struct tn_value *)part->logits;
    return tn_plan_new(g, &s->mesh, &o, &part->plan);
}

static tn_status make_parts(struct tn_session *s)
{
    static const uint32_t use[PARTS] = {TN_SESSION_TRAIN, TN_SESSION_EVAL, TN_SESSION_LOGITS, TN_SESSION_GENERATE, TN_SESSION_GENERATE};
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

const struct tn_plan *session_plan(const struct tn_session *s)
{
    for (int i = 0; i < PARTS; i++)
        if (s->part[i].plan)
            return s->part[i].plan;
    return NULL;
}

/* v itself, or the copy of it that this rank has of a tied parameter on another stage; NULL: neither. */
static const struct tn_value *copy_here(const struct tn_session *s, const struct tn_value *list, const struct tn_value *v)
{
    while (list && (strcmp(list->name, v->name) || !tn_value_here(list, &s->mesh)))
        list = list->next;
    return list;
}

uint64_t tn_session_held(const struct tn_session *s, const struct tn_value *v)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_local l;

    tn_value_local(v, &s->mesh, arena, &l);
    tn_arena_free(arena);
    return (uint64_t)l.count * tn_dtype_bytes(v->dtype);
}

static void add_tensor(struct tn_session *s, const struct tn_value *v, const struct tn_value *here)
{
    struct tn_session_tensor *t = &s->tensor[s->n_tensor++];

    *t = (struct tn_session_tensor){.name = v->name, .value = v, .here = here, .is_state = v->kind == TN_VALUE_STATE,
                                    .dtype = v->dtype, .rank = v->param->spec.file_rank, .held = here ? tn_session_held(s, here) : 0,
                                    .bytes = (uint64_t)tn_value_count(v) * tn_dtype_bytes(v->dtype)};
    memcpy(t->shape, v->param->spec.file_shape, sizeof t->shape);
}

static void add_tensors(struct tn_session *s, const struct tn_value *list)
{
    for (const struct tn_value *v = list; v; v = v->next) {
        const struct tn_value *here = copy_here(s, list, v);
        int64_t n = v->param->twin ? 0 : tn_value_slices(v);

        if (!v->param->twin && !n)
            add_tensor(s, v, here);
        for (int64_t i = 0; i < n; i++)
            add_tensor(s, tn_value_slice(v, i, s->arena), here ? tn_value_slice(here, i, s->arena) : NULL);
    }
}

/* Tables that are only looked up make no products: positions, and an embedding that is not the head too. */
static int is_looked_up(const struct tn_session *s, const struct tn_value *v)
{
    const struct tn_value *first = any_graph(s)->params;

    while (first && tn_value_find_dim(first, "vocab") < 0)
        first = first->next;
    return tn_value_find_dim(v, "posn") >= 0 || (!s->model.tie_embeddings && v == first);
}

static void list_tensors(struct tn_session *s)
{
    const struct tn_graph *g = any_graph(s);
    uint32_t n = 0;

    for (const struct tn_value *v = g->params; v; v = v->next) {
        n += (1 + v->param->n_state) * (uint32_t)(1 + tn_value_slices(v));
        if (v->param->twin)
            continue;
        int64_t met = tn_value_slices(v) ? tn_value_count(v) / s->model.n_expert * s->model.top_k : tn_value_count(v);

        s->shape.n_parameters += tn_value_count(v);
        s->shape.n_parameters_met += met;
        if (!is_looked_up(s, v))
            s->shape.n_parameters_no_position += met;
    }
    s->tensor = tn_alloc(s->arena, (n + 1) * sizeof *s->tensor);
    add_tensors(s, g->params);
    add_tensors(s, g->states);
}

/* --- opening */

static void find_feed(struct tn_session *s, const struct part *part, const char *name, struct feed *f)
{
    f->value = tn_graph_find_input(part->graph, name);
    if (f->value && !tn_value_here(f->value, &s->mesh))
        f->value = NULL;
    if (f->value)
        tn_value_local(f->value, &s->mesh, s->arena, &f->local);
}

static tn_status open_run(struct tn_session *s, struct part *part, double seconds)
{
    tn_status status = tn_run_open(part->plan, s->memory, seconds, &part->run);

    if (status)
        return status;
    status = tn_run_join(part->run, &s->collectives);
    if (status)
        return status;
    tn_run_record(part->run, s->capture, tn_config_is(s->config, "backend.capture", "yes"));
    find_feed(s, part, "tokens", &part->tokens);
    find_feed(s, part, "targets", &part->targets);
    find_feed(s, part, "targets_all", &part->targets_all);
    part->lr = tn_run_symbol_number(part->run, "lr");
    part->t = tn_run_symbol_number(part->run, "t");
    part->scale = tn_run_symbol_number(part->run, TN_LOSS_SCALE);
    return TN_OK;
}

static tn_status open_debug(struct tn_session *s)
{
    if (s->shape.world == 1 || !tn_config_flag(s->config, "backend.debug"))
        return TN_OK;
    s->collectives.compare =
        tn_compare_new(s->engine.world, s->engine.world->comm_api, s->collectives.seconds);
    return s->collectives.compare ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for backend.debug");
}

/* How the device records steps, if it can and shall. */
static tn_status find_capture(struct tn_session *s)
{
    const struct tn_loaded *owner = tn_plugin_owner(s->engine.device_api);

    if (tn_config_is(s->config, "backend.capture", "no"))
        return TN_OK;
    s->capture = owner ? tn_plugin_table(owner, TN_DEVICE_CAPTURE_ID) : NULL;
    if (!tn_config_is(s->config, "backend.capture", "yes"))
        return TN_OK;
    if (!s->capture)
        return tn_config_fail(s->config, "backend.capture", "the device %s cannot record steps; auto does without", s->engine.device_api->kind);
    if (s->collectives.compare)
        return tn_config_fail(s->config, "backend.capture", "backend.debug compares what is begun, so it must be begun each time; leave one of them out");
    if (s->shape.world > 1 && s->collectives.way != TN_BY_STREAM)
        return tn_config_fail(s->config, "backend.capture", "the communicator %s works on the host's memory, so a step with it cannot be recorded; auto does without",
                              s->engine.world->comm_name);
    return TN_OK;
}

static tn_status open_runs(struct tn_session *s)
{
    double seconds = tn_config_float(s->config, "backend.timeout");
    tn_status status = tn_engine_open(&s->engine, s->config);

    if (!status)
        status = tn_collectives_open(&s->collectives, s->engine.world, s->engine.device, s->engine.info.host_access);
    if (!status)
        status = open_debug(s);
    if (!status)
        status = find_capture(s);
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
    if (!status && s->part[PREFILL].run)
        status = generate_open(s);
    return status;
}

tn_status tn_session_open(struct tn_session *s, const struct tn_session_options *o)
{
    tn_status status;

    tn_rules_build();
    s->options = *o;
    s->scale = s->used_scale = session_dtype(s->config) == TN_F16 ? SCALE_FIRST : 1;
    s->collectives = (struct tn_collectives){.comm = s->engine.world->comm_api, .device = s->engine.device_api, .mesh = s->mesh,
                                             .kernels = s->engine.kernels, .n_kernels = s->engine.n_kernels,
                                             .seconds = tn_config_float(s->config, "backend.timeout")};
    tn_model_read(s->config, &s->model);
    tn_world_phase(s->engine.world, "plan", 1);
    status = read_shape(s);
    if (!status)
        status = tn_engine_planned(&s->engine, s->config, make_parts(s));
    if (!o->plan_only)
        status = tn_world_settle(s->engine.world, status);
    if (status)
        return status;
    list_tensors(s);
    return o->plan_only ? TN_OK : open_runs(s);
}

static void free_parts(struct tn_session *s)
{
    for (int i = 0; i < PARTS; i++) {
        tn_plan_free(s->part[i].plan);
        tn_graph_free(s->part[i].graph);
        s->part[i] = (struct part){0};
    }
}

tn_status tn_session_look_as(struct tn_session *s, int64_t rank)
{
    tn_status status;

    if (!s->options.plan_only)
        return tn_error(TN_ERR, "a session that is open for work cannot look like rank %lld",
                        (long long)rank);
    free_parts(s);
    s->options.dump = NULL;
    s->mesh = s->shape.mesh = s->collectives.mesh = tn_mesh_at(&s->mesh, rank);
    s->shape.rank = rank;
    s->shape.n_parameters = s->shape.n_parameters_met = s->shape.n_parameters_no_position = s->n_tensor = 0;
    status = make_parts(s);
    if (!status)
        list_tensors(s);
    return status;
}

void tn_session_close(struct tn_session *s)
{
    if (!s)
        return;
    for (int i = 0; i < PARTS; i++)
        tn_run_close(s->part[i].run);
    tn_memory_free(s->memory);
    free_parts(s);
    tn_compare_free(s->collectives.compare);
    tn_collectives_close(&s->collectives);
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
    return use & TN_SESSION_TRAIN ? TRAIN : use & TN_SESSION_EVAL ? EVAL : use & TN_SESSION_PREFILL ? PREFILL : use & TN_SESSION_GENERATE ? DECODE : LOGITS;
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

struct tn_world *tn_session_world(const struct tn_session *s)
{
    return s ? s->engine.world : NULL;
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
