/* session_work.c - updates, evaluation, logits: what a session does once it is open. Nothing that is done often allocates. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "train/session_own.h"
#include "base/debug.h"
#include "base/status.h"
#include "graph/op.h"
#include "plugin/rules.h"
#include "run/trace.h"

#define SCALE_MOST 0x1p40
#define SCALE_PATIENCE 2000                      /* updates until it is doubled */

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
    return session_dtype(s->config) == TN_F16;
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

/* Who asks, or NULL: at most one of them. */
struct watch {
    struct tn_session_times *times;
    struct tn_trace *trace;
    tn_status (*see)(void *ctx, uint32_t moment);
    void *ctx;
};

static tn_status see_forward(void *ctx)
{
    const struct watch *w = ctx;

    return w->see(w->ctx, TN_SESSION_FORWARD);
}

static tn_status compute_seen(struct tn_run *run, const struct watch *w)
{
    struct watch copy = *w;
    tn_status status = w->see(w->ctx, TN_SESSION_BEFORE);

    if (!status)
        status = tn_run_compute_seen(run, see_forward, &copy);
    return status ? status : w->see(w->ctx, TN_SESSION_BACKWARD);
}

static tn_status compute(struct tn_run *run, const struct watch *w)
{
    return w->see     ? compute_seen(run, w)
           : w->trace ? tn_run_compute_traced(run, w->trace)
           : w->times ? tn_run_compute_timed(run, &w->times->run)
                      : tn_run_compute(run);
}

static tn_status apply(struct tn_run *run, const struct watch *w)
{
    return w->trace ? tn_run_update_traced(run, w->trace) : w->times ? tn_run_update_timed(run, &w->times->run) : tn_run_update(run);
}

static tn_status update(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                        struct watch w, struct tn_session_result *out)
{
    struct part *part = &s->part[TRAIN];
    uint64_t before = tn_debug_allocations();
    double start = w.times ? now() : 0;
    tn_status status = feed_update(s, step, tokens, targets, lr);

    *out = (struct tn_session_result){.scale = s->scale};
    if (w.times)
        w.times->feed += now() - start;
    s->used_scale = s->scale;
    if (!status)
        status = compute(part->run, &w);
    if (!status)
        status = read_scalar(part, part->loss, &out->loss);
    if (!status)
        status = read_scalar(part, part->gnorm, &out->gnorm);
    if (status)
        return status;
    out->skipped = !isfinite(out->loss) || !isfinite(out->gnorm);
    settle_scale(s, out);
    s->changed = 1;
    if (!out->skipped)
        status = apply(part->run, &w);
    if (!status && !out->skipped && w.see)
        status = w.see(w.ctx, TN_SESSION_UPDATED);
    if (!s->collectives.compare && !w.see)
        tn_debug_no_allocation_since(before, "an update");
    return status;
}

/* And in debug mode the replicas are compared. */
static tn_status update_checked(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                                struct watch w, struct tn_session_result *out)
{
    tn_status status;

    tn_rules_step(1);
    if (w.trace)
        w.trace->begin = now();
    status = update(s, step, tokens, targets, lr, w, out);
    if (w.trace)
        w.trace->end = now();
    tn_rules_step(0);
    return status || !s->collectives.compare ? status : tn_session_replicas(s);
}

tn_status tn_session_update(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                            struct tn_session_result *out)
{
    return update_checked(s, step, tokens, targets, lr, (struct watch){0}, out);
}

tn_status tn_session_update_timed(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                                  struct tn_session_times *times, struct tn_session_result *out)
{
    return update_checked(s, step, tokens, targets, lr, (struct watch){.times = times}, out);
}

tn_status tn_session_update_seen(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                                 tn_status (*see)(void *ctx, uint32_t moment), void *ctx, struct tn_session_result *out)
{
    return update_checked(s, step, tokens, targets, lr, (struct watch){.see = see, .ctx = ctx}, out);
}

tn_status tn_session_clear(struct tn_session *s, uint64_t step, const int32_t *tokens)
{
    size_t n = (size_t)s->shape.global_batch * (size_t)s->shape.seq_len;
    int32_t *none = malloc(n * sizeof *none);
    tn_status status = none ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for %zu targets", n);

    for (size_t i = 0; i < n && none; i++)
        none[i] = -1;
    if (!status)
        status = feed_update(s, step, tokens, none, 0);
    if (!status)
        status = tn_run_compute(s->part[TRAIN].run);
    free(none);
    return status;
}

struct tn_trace *tn_session_trace(const struct tn_session *s, struct tn_arena *arena)
{
    return tn_trace_new(s->part[TRAIN].run, arena);
}

tn_status tn_session_update_traced(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                                   struct tn_trace *trace, struct tn_session_result *out)
{
    return update_checked(s, step, tokens, targets, lr, (struct watch){.trace = trace}, out);
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
