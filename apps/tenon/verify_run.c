/* verify_run.c - updates of one configuration, and what came out of them: see verify.h.
 *
 * Tokens are random, and sequences have unequal numbers of targets that count, so that a mean over ranks or
 * micro-batches where a sum over all belongs is seen. */
#include <math.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/rng.h"
#include "base/status.h"
#include "train/engine.h"
#include "verify.h"
#include "vocabulary.h"
#include "world/world.h"

#define STREAM 0x76657266u /* of the generator: no parameter's */

static void draw(const struct tn_session *s, uint64_t seed, uint32_t step, int32_t *tokens, int32_t *targets)
{
    const struct tn_session_shape *h = tn_session_shape(s);
    uint64_t vocab = (uint64_t)tn_session_model(s)->vocab_size;

    for (int64_t i = 0; i < h->global_batch * h->seq_len; i++) {
        uint64_t share = (uint64_t)(i / h->seq_len % 7);

        tokens[i] = (int32_t)tn_random_below(seed, STREAM, step, (uint64_t)i, vocab);
        targets[i] = (int32_t)tn_random_below(seed, STREAM + 1, step, (uint64_t)i, vocab);
        if (tn_random_below(seed, STREAM + 2, step, (uint64_t)i, 8) < share)
            targets[i] = -1;
    }
}

static float *room(int64_t count)
{
    float *x = malloc((size_t)count * sizeof *x + 1);

    for (int64_t i = 0; x && i < count; i++)
        x[i] = NAN;
    return x;
}

static void make_room(struct tn_session *s, const struct verify_task *t, struct verify_result *r)
{
    uint32_t n = tn_session_tensors(s);

    r->loss = tn_alloc_array(r->arena, (size_t)t->steps, sizeof *r->loss);
    r->gnorm = tn_alloc_array(r->arena, (size_t)t->steps, sizeof *r->gnorm);
    r->name = tn_alloc_array(r->arena, n, sizeof *r->name);
    r->count = tn_alloc_array(r->arena, n, sizeof *r->count);
    r->grad = tn_alloc_array(r->arena, n, sizeof *r->grad);
    r->after = tn_alloc_array(r->arena, n, sizeof *r->after);
    for (uint32_t i = 0; i < n && !tn_session_tensor(s, i)->is_state; i++, r->n++) {
        r->name[i] = tn_text(r->arena, "%s", tn_session_tensor(s, i)->name);
        r->count[i] = tn_value_count(tn_session_tensor(s, i)->value);
    }
}

/* Whole on rank 0, all ranks together. */
static tn_status gather(struct tn_session *s, struct verify_result *r, float **whole,
                        tn_status (*get)(struct tn_session *s, uint32_t i, void *host))
{
    tn_status status = TN_OK;

    for (uint32_t i = 0; i < r->n && !status; i++) {
        whole[i] = r->rank ? NULL : room(r->count[i]);
        if (!r->rank && !whole[i])
            return tn_error(TN_ERR_MEMORY, "no memory for a whole %s", r->name[i]);
        status = get(s, i, whole[i]);
    }
    return status;
}

static tn_status updates(struct tn_session *s, const struct verify_task *t, struct verify_result *r)
{
    const struct tn_session_shape *h = tn_session_shape(s);
    size_t n = (size_t)(h->global_batch * h->seq_len);
    int32_t *tokens = tn_alloc_array(r->arena, 2 * n, sizeof *tokens);
    tn_status status = TN_OK;

    for (int64_t i = 0; i < t->steps && !status; i++) {
        struct tn_session_result out = {0};

        draw(s, t->seed, (uint32_t)i, tokens, tokens + n);
        status = tn_session_update(s, (uint64_t)i, tokens, tokens + n, r->lr, &out);
        r->loss[i] = out.loss, r->gnorm[i] = out.gnorm;
        if (!status && out.skipped && !out.overflow)
            status =
                tn_error(TN_ERR_NUMBER, "verify: step %lld: loss %g, gradient norm %g: not finite, first %s",
                         (long long)i + 1, out.loss, out.gnorm, tn_session_nonfinite(s));
        if (!status && i == 0)
            status = gather(s, r, r->grad, tn_session_gradient);
    }
    return status ? status : gather(s, r, r->after, tn_session_get);
}

static tn_status work(struct tn_session *s, struct tn_config *c, const struct verify_task *t,
                      struct verify_result *r)
{
    const struct tn_session_options use = {.use = TN_SESSION_TRAIN | TN_SESSION_STEP};
    tn_status status = vocabulary_settle(c);

    if (!status)
        status = tn_session_open(s, &use);
    if (status)
        return status;
    r->vocab_size = tn_session_model(s)->vocab_size;
    r->micro_batch = tn_session_shape(s)->micro_batch;
    r->lr = tn_config_float(c, "optimizer.lr");
    make_room(s, t, r);
    status = tn_session_initialize(s, t->seed);
    if (!status)
        status = updates(s, t, r);
    if (status)
        return status;
    status = tn_session_replicas(s);
    if (status == TN_ERR)
        r->replicas = tn_text(r->arena, "%s", tn_error_text());
    tn_error_clear();
    return TN_OK;
}

tn_status verify_run(struct tn_config *c, const struct verify_task *t, const struct tn_place *place,
                     struct verify_result *r)
{
    struct tn_session *s = NULL;
    tn_status status = tn_session_configure_at(c, place, &s);

    *r = (struct verify_result){.arena = tn_arena_new()};
    if (!status) {
        r->world = tn_session_shape(s)->world, r->rank = tn_session_shape(s)->rank;
        r->mesh = tn_session_shape(s)->mesh;
        r->device = tn_text(r->arena, "%s", tn_session_engine(s)->device_api->kind);
        r->kernels = tn_text(r->arena, "%s", tn_session_kernels(s));
        status = work(s, c, t, r);
    }
    if (status < 0)
        tn_world_abandon(tn_session_world(s), tn_error_text());
    tn_session_close(s);
    return status;
}

void verify_release(struct verify_result *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        free(r->grad[i]);
        free(r->after[i]);
    }
    tn_arena_free(r->arena);
}
