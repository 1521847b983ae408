/* session_tensors.c - the persistent tensors of a session, and its gradients and logits: whole ones, and parts. */
#include <stdlib.h>
#include "train/session_own.h"
#include "base/status.h"
#include "train/initial.h"
#include "train/whole.h"

tn_status session_gather(struct tn_session *s, const struct tn_value *v, uint64_t held, void *whole,
                         tn_status (*read)(struct tn_session *s, uint32_t i, void *host), uint32_t i)
{
    void *part;
    tn_status status;

    if (s->shape.world == 1)
        return read(s, i, whole);
    if (!tn_value_here(v, &s->mesh))
        return tn_whole_gather(s->engine.world, v, NULL, whole);
    part = malloc(held ? held : 1);
    status = part ? read(s, i, part) : tn_error(TN_ERR_MEMORY, "no memory for %s (%llu bytes)", v->name, (unsigned long long)held);
    if (!status)
        status = tn_whole_gather(s->engine.world, v, part, whole);
    free(part);
    return status;
}

/* The value of the graph: of a tensor that is a slice, the one with all of them. */
static const struct tn_value *stored(const struct tn_session_tensor *t)
{
    return t->here->slice_of ? t->here->slice_of : t->here;
}

static uint64_t first_byte(const struct tn_session *s, const struct tn_value *v)
{
    return (uint64_t)tn_value_slice_start(v, &s->mesh) * tn_dtype_bytes(v->dtype);
}

static tn_status write_held(struct tn_session *s, const struct tn_session_tensor *t, const void *host)
{
    return tn_memory_write_part(s->memory, stored(t)->name, first_byte(s, t->here), host, t->held);
}

tn_status tn_session_get_held(struct tn_session *s, uint32_t i, void *host)
{
    const struct tn_session_tensor *t = &s->tensor[i];

    return t->here ? tn_memory_read_part(s->memory, stored(t)->name, first_byte(s, t->here), host, t->held) : TN_OK;
}

tn_status tn_session_get(struct tn_session *s, uint32_t i, void *host)
{
    return session_gather(s, s->tensor[i].value, s->tensor[i].held, host, tn_session_get_held, i);
}

tn_status tn_session_set(struct tn_session *s, uint32_t i, const void *host)
{
    const struct tn_session_tensor *t = &s->tensor[i];
    void *part;
    tn_status status;

    s->changed = 1;
    if (!t->here)
        return TN_OK;
    if (s->shape.world == 1)
        return write_held(s, t, host);
    part = malloc(t->held ? t->held : 1);
    if (!part)
        return tn_error(TN_ERR_MEMORY, "no memory for %s (%llu bytes)", t->name, (unsigned long long)t->held);
    tn_whole_cut(s->engine.world, t->here, host, part);
    status = write_held(s, t, part);
    free(part);
    return status;
}

int tn_session_any(struct tn_session *s, int here)
{
    int anywhere = here;

    return tn_whole_any(s->engine.world, here, &anywhere) ? 1 : anywhere;
}

tn_status tn_session_most(struct tn_session *s, double *x, uint32_t n)
{
    return tn_whole_most(s->engine.world, x, n);
}

double tn_session_sent(const struct tn_session *s, int axis)
{
    return s->collectives.bytes[axis];
}

uint64_t tn_session_allocated(const struct tn_session *s)
{
    return s->memory ? tn_memory_bytes(s->memory) : 0;
}

/* Weights are made where they lie if the host sees that memory, else in memory of the host; all slices with the first. */
static tn_status initialize_weights(struct tn_session *s, uint32_t i, uint64_t seed)
{
    const struct tn_value *v = stored(&s->tensor[i]);
    uint64_t held = tn_plan_bytes(session_plan(s), v);
    void *at = s->engine.info.host_access ? tn_memory_at(s->memory, v->name) : NULL, *host = at ? at : malloc(held + 1);
    struct tn_local local;
    tn_status status = TN_OK;

    if (!host)
        return tn_error(TN_ERR_MEMORY, "no memory for the initial %s (%llu bytes)", v->name, (unsigned long long)held);
    tn_value_local(v, &s->mesh, s->arena, &local);
    tn_initial_weights(v->param, &local, seed, host);
    if (!at) {
        status = tn_memory_write(s->memory, v->name, host, held);
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
    status = write_held(s, t, host);
    free(host);
    return status;
}

tn_status tn_session_initialize(struct tn_session *s, uint64_t seed)
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < s->n_tensor && !status; i++)
        if (!s->tensor[i].here)
            continue;
        else if (!s->tensor[i].is_state)
            status = s->tensor[i].here->slice ? TN_OK : initialize_weights(s, i, seed);
        else if (s->changed)
            status = clear_state(s, i);
    return status;
}

/* --- after a step */

const struct tn_value *tn_session_gradient_value(const struct tn_session *s, uint32_t i)
{
    const struct tn_value *here = s->tensor[i].here, *grad = here ? here->param->grad : NULL;

    return grad && here->slice_of ? tn_value_slice(grad, here->slice, s->arena) : grad;
}

/* Of a slice all are read, and it is kept. */
static tn_status read_gradient(struct tn_session *s, const struct tn_value *grad, void *host)
{
    const struct tn_value *whole = grad->slice_of ? grad->slice_of : grad;
    uint64_t all = tn_plan_bytes(s->part[TRAIN].plan, whole);
    char *held;
    tn_status status;

    if (whole == grad)
        return tn_run_read(s->part[TRAIN].run, grad, 0, host, all);
    held = malloc(all + 1);
    status = held ? tn_run_read(s->part[TRAIN].run, whole, 0, held, all)
                  : tn_error(TN_ERR_MEMORY, "no memory for the gradient of %s (%llu bytes)", grad->name, (unsigned long long)all);
    if (!status)
        memcpy(host, held + first_byte(s, grad), tn_session_held(s, grad));
    free(held);
    return status;
}

tn_status tn_session_gradient_held(struct tn_session *s, uint32_t i, void *host)
{
    const struct tn_value *grad = tn_session_gradient_value(s, i);
    float *x = host;
    tn_status status;

    if (!grad)
        return TN_OK;
    status = read_gradient(s, grad, host);
    for (uint64_t k = 0; k < tn_session_held(s, grad) / sizeof *x && !status && s->used_scale != 1; k++)
        x[k] = (float)(x[k] / s->used_scale);
    return status;
}

tn_status tn_session_gradient(struct tn_session *s, uint32_t i, void *host)
{
    const struct tn_value *value = s->tensor[i].value, *grad = value->param->grad;

    if (value->slice_of)
        grad = tn_value_slice(grad, value->slice, s->arena);
    return session_gather(s, grad, tn_session_held(s, grad), host, tn_session_gradient_held, i);
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

        status = session_gather(s, part->logits, tn_plan_bytes(part->plan, part->logits), whole, read_logits, (uint32_t)m);
        if (!status && !s->shape.rank)
            memcpy(out + m * batch * row, whole, (size_t)(n * row) * sizeof *whole);
    }
    free(whole);
    return status;
}
