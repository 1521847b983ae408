/* cmd_step.c - tenon step: a few updates from given weights on given batches, and everything that came out.
 *
 * The way to compare with another implementation. The case is a safetensors file with initial weights
 * (init.NAME), tokens and targets [steps, global_batch, seq_len] and, in its metadata, {"ini": {...},
 * "steps": n}, which is the configuration where none is given, and weaker than one that is. The output has
 * loss and gnorm of every step, logits of the first micro-batch and gradients before clipping of step 0
 * (grad.NAME), and the weights at the end (after.NAME). The learning rate is that of the schedule. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/config.h"
#include "base/status.h"
#include "ckpt/safetensors.h"
#include "options.h"
#include "step_observe.h"
#include "train/schedule.h"
#include "train/session.h"
#include "world/world.h"

struct step {
    struct tn_arena *arena;
    const char *path;                            /* of the case */
    struct tn_safetensors *file;
    struct tn_config *config;
    struct tn_session *session;
    const struct tn_tensor *tokens, *targets;
    struct tn_safetensors_writer *out;
    int64_t steps;
    int64_t sequences;                           /* whose logits are written: a micro-batch of the case */
    double *loss, *gnorm;                        /* [steps] */
    int32_t *batch;                              /* tokens and targets of one step */
    void *buffer;                                /* for one tensor */
    const char *observed;                        /* a parameter's name, or NULL */
    struct observe *observe;
};

/* --- the case */

static const char *json_value(struct tn_arena *a, const json_t *v)
{
    if (json_is_string(v))
        return json_string_value(v);
    if (json_is_boolean(v))
        return json_is_true(v) ? "yes" : "no";
    if (json_is_integer(v))
        return tn_text(a, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    return json_is_real(v) ? tn_text(a, "%.17g", json_real_value(v)) : NULL;
}

static tn_status read_ini(struct step *s, const json_t *root)
{
    json_t *ini = json_object_get(root, "ini"), *v;
    const char *key, *text;

    if (!json_is_object(ini))
        return tn_error(TN_ERR_INPUT, "%s: the metadata \"case\" has no \"ini\"", s->path);
    s->sequences = json_integer_value(json_object_get(ini, "train.micro_batch"));
    json_object_foreach(ini, key, v) {
        if (!strcmp(key, "plugins.path"))        /* data must not say whose code runs */
            return tn_error(TN_ERR_INPUT,
                            "%s: \"ini\" has plugins.path, which only a configuration or the command line "
                            "may set: leave it out, and give plugins.path=... if you trust that folder",
                            s->path);
        if (!(text = json_value(s->arena, v)))
            return tn_error(TN_ERR_INPUT, "%s: \"ini\" has a value for %.80s that is no text, number or flag",
                            s->path, key);
        tn_config_case(s->config, tn_text(s->arena, "%s", key), tn_text(s->arena, "%s", text));
    }
    return TN_OK;
}

/* Without metadata the case is only tensors, and the configuration has to say the rest. */
static tn_status read_meta(struct step *s)
{
    const char *text = tn_safetensors_meta(s->file, "case");
    json_error_t err;
    json_t *root;
    tn_status status;

    if (!text)
        return TN_OK;
    root = json_loads(text, JSON_REJECT_DUPLICATES, &err);
    if (!root)
        return tn_error(TN_ERR_INPUT, "%s: the metadata \"case\" is no JSON: %s", s->path, err.text);
    status = read_ini(s, root);
    if (json_is_integer(json_object_get(root, "steps")))
        s->steps = json_integer_value(json_object_get(root, "steps"));
    json_decref(root);
    return status;
}

static tn_status find_batch(const struct step *s, const char *name, const struct tn_tensor **out)
{
    const struct tn_session_shape *shape = tn_session_shape(s->session);
    const struct tn_tensor *t = *out = tn_safetensors_find(s->file, name);

    if (!t)
        return tn_error(TN_ERR_INPUT, "%s has no tensor %s", s->path, name);
    if (t->dtype != TN_I32 || t->rank != 3)
        return tn_error(TN_ERR_INPUT, "%s: %s must be I32 [steps, global_batch, seq_len]", s->path, name);
    if (t->shape[1] != shape->global_batch || t->shape[2] != shape->seq_len)
        return tn_error(TN_ERR_INPUT,
                        "%s: %s has %" PRId64 " sequences of %" PRId64
                        ", the configuration has train.global_batch = %" PRId64 " and seq_len = %" PRId64,
                        s->path, name, t->shape[1], t->shape[2], shape->global_batch, shape->seq_len);
    if (t->shape[0] < s->steps)
        return tn_error(TN_ERR_INPUT, "%s: %s is of %" PRId64 " steps, %" PRId64 " are asked for", s->path,
                        name, t->shape[0], s->steps);
    return TN_OK;
}

/* low: the least id that may stand there. */
static tn_status check_ids(const struct step *s, const struct tn_tensor *t, int32_t low)
{
    int64_t vocab = tn_session_model(s->session)->vocab_size;
    int32_t id;

    for (uint64_t i = 0; i < t->bytes / sizeof id; i++) {
        memcpy(&id, (const char *)t->data + i * sizeof id, sizeof id);
        if (id < low || id >= vocab)
            return tn_error(TN_ERR_INPUT,
                            "%s: %s has id %" PRId32 " at element %" PRIu64
                            ", outside the vocabulary of %" PRId64,
                            s->path, t->name, id, i, vocab);
    }
    return TN_OK;
}

static const struct tn_tensor *initial(const struct step *s, const char *name)
{
    return tn_safetensors_find(s->file, tn_text(s->arena, "init.%s", name));
}

static tn_status check_one(const struct step *s, const struct tn_session_tensor *t)
{
    const struct tn_tensor *f = initial(s, t->name);

    if (!f)
        return tn_error(TN_ERR_INPUT, "%s has no initial weights init.%s, which this model needs", s->path,
                        t->name);
    if (f->dtype == t->dtype && f->rank == t->rank && f->bytes == t->bytes &&
        !memcmp(f->shape, t->shape, t->rank * sizeof *t->shape))
        return TN_OK;
    char want[160] = "", got[160] = "";
    for (uint32_t d = 0; d < t->rank; d++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%" PRId64, d ? ", " : "", t->shape[d]);
    for (uint32_t d = 0; d < f->rank; d++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%" PRId64, d ? ", " : "", f->shape[d]);
    return tn_error(TN_ERR_INPUT, "%s: init.%s is %s [%s], this model has %s [%s]", s->path, t->name,
                    tn_file_dtype_name(f->dtype), got, tn_file_dtype_name(t->dtype), want);
}

/* Every parameter has its weights, and no weights are left over. */
static tn_status check_weights(const struct step *s)
{
    uint64_t used = 0, there = 0;
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < tn_session_tensors(s->session) && status == TN_OK; i++)
        if (!tn_session_tensor(s->session, i)->is_state) {
            status = check_one(s, tn_session_tensor(s->session, i));
            used++;
        }
    for (uint64_t i = 0; i < tn_safetensors_count(s->file); i++)
        there += !strncmp(tn_safetensors_at(s->file, i)->name, "init.", 5);
    if (status == TN_OK && there != used)
        return tn_error(TN_ERR_INPUT,
                        "%s has initial weights of %" PRIu64 " tensors, this model has %" PRIu64, s->path,
                        there, used);
    return status;
}

static tn_status check_case(struct step *s)
{
    tn_status status = find_batch(s, "tokens", &s->tokens);

    if (status == TN_OK)
        status = find_batch(s, "targets", &s->targets);
    if (status == TN_OK)
        status = check_ids(s, s->tokens, 0);
    if (status == TN_OK)
        status = check_ids(s, s->targets, -1);
    return status < 0 ? status : check_weights(s);
}

/* --- the run */

static tn_status set_weights(struct step *s)
{
    tn_status status = tn_session_initialize(s->session, 0);     /* for the slots */
    uint64_t most = 0;

    for (uint32_t i = 0; i < tn_session_tensors(s->session) && status == TN_OK; i++) {
        const struct tn_session_tensor *t = tn_session_tensor(s->session, i);
        most = t->bytes > most ? t->bytes : most;
        if (!t->is_state)
            status = tn_session_set(s->session, i, initial(s, t->name)->data);
    }
    const struct tn_session_shape *shape = tn_session_shape(s->session);
    uint64_t logits;

    if (s->sequences < 1 || s->sequences > shape->global_batch)
        s->sequences = shape->micro_batch;
    logits = (uint64_t)(s->sequences * shape->seq_len * tn_session_model(s->session)->vocab_size) * sizeof(float);
    s->buffer = malloc((size_t)(logits > most ? logits : most));
    if (status == TN_OK && !s->buffer)
        status = tn_error(TN_ERR_MEMORY, "no memory for the largest tensor");
    return status;
}

/* Rank 0 has the output, and what was gathered. */
static tn_status put(struct step *s, const void *data, uint64_t bytes)
{
    return s->out ? tn_safetensors_write(s->out, data, bytes) : TN_OK;
}

/* In the order in which they will be written. */
static tn_status declare(struct step *s)
{
    const struct tn_session_shape *shape = tn_session_shape(s->session);
    const int64_t logits[] = {s->sequences, shape->seq_len, tn_session_model(s->session)->vocab_size};
    static const char *const prefix[] = {"grad", "after"};
    tn_status status = tn_safetensors_add_meta(s->out, "format", "pt");

    if (status == TN_OK)
        status = tn_safetensors_declare(s->out, "logits", TN_F32, 3, logits);
    for (int p = 0; p < 2; p++)
        for (uint32_t i = 0; i < tn_session_tensors(s->session) && status == TN_OK; i++) {
            const struct tn_session_tensor *t = tn_session_tensor(s->session, i);
            if (!t->is_state)
                status = tn_safetensors_declare(s->out, tn_text(s->arena, "%s.%s", prefix[p], t->name),
                                                t->dtype, t->rank, t->shape);
        }
    if (status == TN_OK)
        status = tn_safetensors_declare(s->out, "loss", TN_F64, 1, &s->steps);
    if (status == TN_OK)
        status = tn_safetensors_declare(s->out, "gnorm", TN_F64, 1, &s->steps);
    return status < 0 ? status : tn_safetensors_begin(s->out);
}

static tn_status write_weights(struct step *s,
                               tn_status (*get)(struct tn_session *session, uint32_t i, void *host))
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < tn_session_tensors(s->session) && status == TN_OK; i++) {
        const struct tn_session_tensor *t = tn_session_tensor(s->session, i);
        if (t->is_state)
            continue;
        status = get(s->session, i, s->buffer);
        if (status == TN_OK)
            status = put(s, s->buffer, t->bytes);
    }
    return status;
}

static tn_status write_first(struct step *s)
{
    const struct tn_session_shape *shape = tn_session_shape(s->session);
    uint64_t bytes = (uint64_t)(s->sequences * shape->seq_len * tn_session_model(s->session)->vocab_size) * sizeof(float);
    tn_status status = tn_session_step_logits(s->session, s->sequences, s->buffer);

    if (status == TN_OK)
        status = put(s, s->buffer, bytes);
    return status < 0 ? status : write_weights(s, tn_session_gradient);
}

static tn_status update(struct step *s, int64_t i, const struct tn_schedule *schedule)
{
    size_t batch = (size_t)(s->tokens->shape[1] * s->tokens->shape[2]);
    struct tn_session_result r = {0};
    tn_status status;

    memcpy(s->batch, (const char *)s->tokens->data + (size_t)i * batch * sizeof(int32_t),
           batch * sizeof(int32_t));
    memcpy(s->batch + batch, (const char *)s->targets->data + (size_t)i * batch * sizeof(int32_t),
           batch * sizeof(int32_t));
    if (s->observe)
        status = observe_update(s->observe, (uint64_t)i, s->batch, s->batch + batch, tn_schedule_lr(schedule, i), &r);
    else
        status = tn_session_update(s->session, (uint64_t)i, s->batch, s->batch + batch,
                                   tn_schedule_lr(schedule, i), &r);
    s->loss[i] = r.loss;
    s->gnorm[i] = r.gnorm;
    if (status == TN_OK && (!isfinite(r.loss) || !isfinite(r.gnorm)))
        return tn_world_settle(
            tn_session_world(s->session),
            tn_error(TN_ERR_NUMBER,
                     "step %" PRId64 ": loss %g, gradient norm %g; the first tensor that is not finite is %s",
                     i, r.loss, r.gnorm, tn_session_nonfinite(s->session)));
    return status;
}

static tn_status compute(struct step *s)
{
    struct tn_schedule schedule;
    tn_status status = s->out ? declare(s) : TN_OK;

    tn_schedule_read(s->config, &schedule);
    for (int64_t i = 0; i < s->steps && status == TN_OK; i++) {
        status = update(s, i, &schedule);
        if (status == TN_OK && i == 0)
            status = write_first(s);
        if (status == TN_OK && s->observe)
            status = observe_end(s->observe, (uint64_t)i, s->batch);
    }
    if (status == TN_OK)
        status = write_weights(s, tn_session_get);
    if (status == TN_OK)
        status = put(s, s->loss, (uint64_t)s->steps * sizeof *s->loss);
    return status < 0 ? status : put(s, s->gnorm, (uint64_t)s->steps * sizeof *s->gnorm);
}

static void print(const struct step *s)
{
    for (int64_t i = 0; i < s->steps; i++)
        printf("step %" PRId64 "  loss %.9f  gnorm %.9f\n", i, s->loss[i], s->gnorm[i]);
}

static tn_status run(struct step *s, const char *out)
{
    const struct tn_session_options use = {.use = TN_SESSION_TRAIN | TN_SESSION_STEP};
    tn_status status = tn_session_open(s->session, &use);

    if (status < 0)
        return status;
    if ((status = check_case(s)) == TN_OK)
        status = set_weights(s);
    if (status == TN_OK && s->observed)
        status = observe_new(s->session, s->observed, s->arena, &s->observe);
    if (status == TN_OK && tn_session_shape(s->session)->rank == 0)
        status = tn_safetensors_create(out, &s->out);
    if ((status = tn_world_settle(tn_session_world(s->session), status)) < 0)
        return status;
    s->batch =
        tn_alloc_array(s->arena, 2 * (size_t)(s->tokens->shape[1] * s->tokens->shape[2]), sizeof *s->batch);
    s->loss = tn_alloc_array(s->arena, (size_t)s->steps, sizeof *s->loss);
    s->gnorm = tn_alloc_array(s->arena, (size_t)s->steps, sizeof *s->gnorm);
    if ((status = compute(s)) < 0) {
        tn_safetensors_abort(s->out);
        return status;
    }
    if (!s->out)
        return TN_OK;
    if ((status = tn_safetensors_commit(s->out, NULL, NULL)) == TN_OK)
        print(s);
    return status;
}

static tn_status open_case(struct step *s, const struct options *o)
{
    tn_status status = tn_safetensors_open(s->path, &s->file);

    if (status == TN_OK)
        status = tn_config_open(o->file[0], o->settings, o->setting, &s->config);
    if (status == TN_OK)
        status = read_meta(s);
    if (options_given(o, "steps"))
        s->steps = options_int(o, "steps");
    if (status == TN_OK && s->steps < 1)
        return tn_error(TN_ERR_INPUT, "%s does not say how many steps there are; --steps does", s->path);
    if (status == TN_OK)
        tn_schedule_check(s->config);
    return status < 0 ? status : tn_session_configure(s->config, &s->session);
}

static tn_status step(const struct options *o)
{
    struct step s = {.arena = tn_arena_new(), .path = options_text(o, "case"), .observed = options_text(o, "observe")};
    tn_status status = s.path && options_given(o, "out")
                           ? TN_OK
                           : tn_error(TN_ERR_CONFIG, "step: --case FILE and --out OUT are needed");

    if (status == TN_OK)
        status = open_case(&s, o);
    if (status == TN_OK)
        status = run(&s, options_text(o, "out"));
    free(s.buffer);
    if (status < 0)
        tn_world_abandon(tn_session_world(s.session), tn_error_text());
    tn_session_close(s.session);
    tn_config_free(s.config);
    tn_safetensors_close(s.file);
    tn_arena_free(s.arena);
    return status;
}

static int cmd_step(int argc, char **argv)
{
    struct options o;
    tn_status status = options_parse(&step_command, argc, argv, &o);

    if (status >= 0)
        status = step(&o);
    options_free(&o);
    return command_end(status);
}

static const struct option options[] = {
    {.name = "case", .value = "FILE", .help = "Weights, batches and configuration, a safetensors file"},
    {.name = "steps",
     .value = "K",
     .help = "Updates to make, instead of those that the case names",
     .type = TN_KEY_INT,
     .low = 1,
     .high = 1e9},
    {.name = "out",
     .value = "OUT",
     .help = "Where losses, norms, logits, gradients and weights go, a safetensors file"},
    {.name = "observe",
     .value = "NAME",
     .help = "Show this parameter, its gradient and the optimizer's state before and after the forward, the backward and the "
             "update, and when the gradient is cleared"},
    {0},
};

const struct command step_command = {
    .name = "step",
    .help = "Makes a few updates from given weights on given batches, and writes all that came out",
    .usage = "[CFG] --case FILE [--steps K] --out OUT [--observe NAME] [section.key=value ...]",
    .detail = "The case holds init.NAME, tokens and targets; its metadata \"case\" is the configuration "
              "where CFG does not say otherwise. The output holds loss and gnorm of every step, logits and "
              "grad.NAME of the first, after.NAME of the last.",
    .options = options,
    .files_max = 1,
    .settings = 1,
    .run = cmd_step,
};
