/* fake_session.c - see fake_session.h. */
#include "fake_session.h"

#include "base/rng.h"
#include "base/status.h"
#include "run/trace.h"

#include <math.h>
#include <stdlib.h>

#define TENSORS 4

struct fake fake = FAKE_DEFAULT;

struct tn_session {
    struct tn_config *config;
    struct tn_session_shape shape;
    struct tn_model_config model;
    struct tn_session_tensor tensor[TENSORS];
    float *data[TENSORS];
    uint32_t count;
};

tn_status tn_session_configure(struct tn_config *c, struct tn_session **out)
{
    tn_status status = tn_config_check(c);

    if (status < 0)
        return status;
    *out = calloc(1, sizeof **out);
    (*out)->config = c;
    return TN_OK;
}

static void add(struct tn_session *s, const char *name, uint32_t rank, int64_t rows, int64_t columns,
                uint32_t is_state)
{
    struct tn_session_tensor *t = &s->tensor[s->count];

    *t = (struct tn_session_tensor){.name = name, .is_state = is_state, .dtype = TN_F32, .rank = rank,
                                    .bytes = (uint64_t)(rows * columns) * sizeof(float)};
    t->shape[0] = rank == 2 ? rows : columns;
    t->shape[1] = rank == 2 ? columns : 0;
    s->data[s->count++] = calloc((size_t)(rows * columns), sizeof(float));
}

tn_status tn_session_open(struct tn_session *s, const struct tn_session_options *o)
{
    const struct tn_config *c = s->config;
    int64_t vocab = tn_config_int(c, "model.vocab_size"), width = tn_config_int(c, "model.n_embd");

    (void)o;
    fake.opened++;
    s->model = (struct tn_model_config){.arch = "gpt2", .vocab_size = vocab, .n_embd = width};
    s->shape = (struct tn_session_shape){.seq_len = tn_config_int(c, "train.seq_len"), .world = 1,
                                         .global_batch = tn_config_int(c, "train.global_batch"),
                                         .micro_batch = tn_config_int(c, "train.micro_batch"),
                                         .eval_batch = tn_config_int(c, "train.micro_batch")};
    s->shape.n_micro = s->shape.global_batch / s->shape.micro_batch;
    add(s, "emb", 2, vocab, width, 0);
    if (!fake.no_bias)
        add(s, fake.bias_name, 1, 1, width, 0);
    add(s, "emb:m", 2, vocab, width, 1);
    if (!fake.no_bias)
        add(s, "bias:m", 1, 1, width, 1);
    return TN_OK;
}

void tn_session_close(struct tn_session *s)
{
    for (uint32_t i = 0; s && i < s->count; i++)
        free(s->data[i]);
    free(s);
}

const struct tn_session_shape *tn_session_shape(const struct tn_session *s)
{
    return &s->shape;
}

const struct tn_model_config *tn_session_model(const struct tn_session *s)
{
    return &s->model;
}

const char *tn_session_device(const struct tn_session *s)
{
    (void)s;
    return "none";
}

const char *tn_session_kernels(const struct tn_session *s)
{
    (void)s;
    return "none";
}

uint32_t tn_session_threads(const struct tn_session *s)
{
    (void)s;
    return 1;
}

uint32_t tn_session_tensors(const struct tn_session *s)
{
    return s->count;
}

const struct tn_session_tensor *tn_session_tensor(const struct tn_session *s, uint32_t i)
{
    return &s->tensor[i];
}

tn_status tn_session_get(struct tn_session *s, uint32_t i, void *host)
{
    memcpy(host, s->data[i], s->tensor[i].bytes);
    return TN_OK;
}

tn_status tn_session_get_held(struct tn_session *s, uint32_t i, void *host)
{
    return tn_session_get(s, i, host);
}

tn_status tn_session_set(struct tn_session *s, uint32_t i, const void *host)
{
    fake.tensors_set++;
    memcpy(s->data[i], host, s->tensor[i].bytes);
    return TN_OK;
}

tn_status tn_session_initialize(struct tn_session *s, uint64_t seed)
{
    for (uint32_t i = 0; i < s->count; i++)
        for (uint64_t e = 0; e < s->tensor[i].bytes / sizeof(float); e++)
            s->data[i][e] = s->tensor[i].is_state ? 0 : (float)tn_random_uniform(seed, i, 0, e);
    return TN_OK;
}

/* w moves towards a target that depends on tokens and step, with momentum; the loss is the mean distance. */
static double move(struct tn_session *s, uint64_t step, const int32_t *tokens, double lr)
{
    uint32_t half = s->count / 2;
    double loss = 0;

    for (uint32_t i = 0; i < half; i++)
        for (uint64_t e = 0; e < s->tensor[i].bytes / sizeof(float); e++) {
            float *w = &s->data[i][e], *m = &s->data[half + i][e];
            float aim =
                (float)tokens[(e + step) % (uint64_t)(s->shape.global_batch * s->shape.seq_len)] * 0.01f;
            *m = 0.9f * *m + (*w - aim);
            *w -= (float)lr * *m;
            loss += fabs((double)*w);
        }
    return loss;
}

tn_status tn_session_update(struct tn_session *s, uint64_t step, const int32_t *tokens,
                            const int32_t *targets, double lr, struct tn_session_result *out)
{
    fake.updates++;
    if (fake.before_update)
        fake.before_update((int64_t)step);
    *out = (struct tn_session_result){.loss = (double)(tokens[0] + targets[0]), .gnorm = 1};
    if ((int64_t)step == fake.bad_step) {
        *out = (struct tn_session_result){.loss = NAN, .gnorm = INFINITY, .skipped = 1};
        if (fake.scale > 0) {                    /* the gradients alone, for the scale's sake */
            out->loss = 3, out->overflow = 1, out->scale = fake.scale;
            fake.scale /= 2;
        }
        return TN_OK;
    }
    out->loss = move(s, step, tokens, lr);
    return TN_OK;
}

struct tn_trace *tn_session_trace(const struct tn_session *s, struct tn_arena *arena)
{
    static const struct tn_plan plan = {.mesh = {.size = {1, 1, 1, 1, 1}}};
    struct tn_trace *t = tn_alloc(arena, sizeof *t);

    (void)s;
    *t = (struct tn_trace){.plan = &plan};
    return t;
}

tn_status tn_session_update_traced(struct tn_session *s, uint64_t step, const int32_t *tokens,
                                   const int32_t *targets, double lr, struct tn_trace *trace,
                                   struct tn_session_result *out)
{
    trace->begin = 1, trace->end = 2;
    return tn_session_update(s, step, tokens, targets, lr, out);
}

int tn_session_scale_get(const struct tn_session *s, double *scale, uint64_t *good)
{
    (void)s;
    *scale = fake.scale;
    *good = fake.scale_good;
    return fake.scale > 0;
}

tn_status tn_session_scale_set(struct tn_session *s, double scale, uint64_t good)
{
    (void)s;
    fake.scale = scale;
    fake.scale_good = good;
    return TN_OK;
}

tn_status tn_session_apply(struct tn_session *s)
{
    (void)s;
    fake.applied++;
    return TN_OK;
}

const char *tn_session_nonfinite(struct tn_session *s)
{
    (void)s;
    return "the output of the fake";
}

tn_status tn_session_evaluate(struct tn_session *s, const int32_t *tokens, const int32_t *targets,
                              double *sum, double *count)
{
    int64_t n = s->shape.micro_batch * s->shape.seq_len;

    *sum = *count = 0;
    for (int64_t i = 0; i < n; i++)
        if (targets[i] >= 0) {
            *sum += s->data[0][tokens[i] * s->model.n_embd] + targets[i];
            *count += 1;
        }
    if (fake.score) {
        *sum = fake.score[fake.evaluations][0];
        *count = fake.score[fake.evaluations][1];
    }
    fake.evaluations++;
    return TN_OK;
}

struct tn_world *tn_session_world(const struct tn_session *s)
{
    (void)s;
    return NULL;
}

int tn_session_any(struct tn_session *s, int here)
{
    (void)s;
    return here;
}

tn_status tn_session_most(struct tn_session *s, double *x, uint32_t n)
{
    (void)s;
    if (n > 0 && fake.slowest > x[0])
        x[0] = fake.slowest;
    return TN_OK;
}
