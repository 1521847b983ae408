/* loop.c - updates, and what comes between two of them. See loop.h.
 *
 * Order after update s: validation, the line of metrics.jsonl, the checkpoint. So a checkpoint is never ahead
 * of the metrics, and a run that goes on from it writes each line once. */
#include "train/loop_own.h"

#include "base/status.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/signals.h"
#include "train/trace.h"

#include <math.h>
#include <stdlib.h>

/* --- saving */

/* All ranks together; none begins once the run has failed. */
static tn_status save(struct train *t)
{
    tn_status status;

    if (t->saved == t->step)
        return TN_OK;
    tn_world_phase(t->world, "save", 1);
    status = tn_checkpoint_save(t->session, t->c, &t->data, t->dir, t->step, t->together);
    tn_world_phase(t->world, "step", 0);
    if (status < 0)
        return status;
    t->saved = t->step;
    tn_progress_say(&t->progress, "saved %s/step-%08lld", t->dir, (long long)t->step);
    if (t->lead && tn_runs_prune(t->runs, tn_config_int(t->c, "checkpoint.keep"), t->step) < 0)
        tn_log(TN_LOG_WARNING, "an old checkpoint could not be removed: %s", tn_error_text());
    return TN_OK;
}

/* What is on the disk is untouched and the run has time to try again, unless ranks are gone. */
static tn_status save_midway(struct train *t)
{
    tn_status status = save(t);

    if (status >= 0 || tn_world_has_failed(t->world))
        return status;
    tn_progress_end(&t->progress);
    if (t->lead)
        tn_log(TN_LOG_WARNING, "step %lld was not saved: %s", (long long)t->step, tn_error_text());
    tn_world_go_on(t->world);
    return TN_OK;
}

static tn_status save_last(struct train *t)
{
    tn_status status = save(t);
    char why[600];

    if (status >= 0 || tn_world_has_failed(t->world))
        return status;
    snprintf(why, sizeof why, "%s", tn_error_text());
    tn_error(TN_ERR_IO, "the last state of the run, step %lld, could not be saved: %s", (long long)t->step, why);
    if (!t->lead)
        tn_error_hush();
    return TN_ERR_IO;
}

static int is_due(const struct train *t, int64_t interval)
{
    return interval > 0 && t->step % interval == 0;
}

/* --- what is written of an update */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* What is written of a step. u NULL: before the first update. */
struct record {
    const struct tn_progress_update *u;
    int skipped, validated;
    double val;
};

static double tokens_per_second(const struct tn_progress_update *u)
{
    return u->seconds > 0 ? u->tokens / u->seconds : 0;
}

static tn_status write_line(struct train *t, const struct record *r)
{
    const struct tn_session_shape *shape = tn_session_shape(t->session);
    json_t *line = json_pack("{s:I, s:I}", "step", (json_int_t)t->step, "tokens",
                             (json_int_t)(t->step * shape->global_batch * shape->seq_len));
    tn_status status;

    if (r->u) {
        json_object_set_new(line, "loss", number(r->u->loss));
        json_object_set_new(line, "lr", number(r->u->lr));
        json_object_set_new(line, "grad_norm", number(r->u->gnorm));
        json_object_set_new(line, "tokens_per_second", number(tokens_per_second(r->u)));
    }
    if (r->skipped)
        json_object_set_new(line, "skipped", json_true());
    if (r->validated)
        json_object_set_new(line, "val_loss", number(r->val));
    status = tn_metrics_write(t->metrics, line);
    json_decref(line);
    return status;
}

static tn_status write_event(struct train *t, const struct record *r)
{
    struct tn_event_value v[5];
    uint32_t n = 0;

    if (r->u) {
        v[n++] = (struct tn_event_value){"loss", r->u->loss};
        v[n++] = (struct tn_event_value){"lr", r->u->lr};
        v[n++] = (struct tn_event_value){"grad_norm", r->u->gnorm};
        v[n++] = (struct tn_event_value){"tokens_per_second", tokens_per_second(r->u)};
    }
    if (r->validated)
        v[n++] = (struct tn_event_value){"val_loss", r->val};
    return tn_events_write(t->events, t->step, v, n);
}

/* A run goes on without them. */
static void warn_lost(struct train *t, const char *what, int *said)
{
    if (*said)
        return;
    *said = 1;
    tn_progress_end(&t->progress);
    tn_log(TN_LOG_WARNING, "%s are lost from step %lld on: %s", what, (long long)t->step, tn_error_text());
}

static void write_metrics(struct train *t, const struct record *r)
{
    if (t->lead && write_line(t, r) < 0)
        warn_lost(t, "metrics", &t->metrics_lost);
    if (t->events && write_event(t, r) < 0)
        warn_lost(t, "events for TensorBoard", &t->events_lost);
}

static const char *last_good(const struct train *t, char *out, size_t bytes)
{
    if (t->saved < 0)
        snprintf(out, bytes, "there is no checkpoint yet");
    else
        snprintf(out, bytes, "the last checkpoint is %s/step-%08lld", t->dir, (long long)t->saved);
    return out;
}

/* A signal to one rank is a signal to all: they stop after the same update. So does the loop when the run has failed. */
static int stops(struct train *t)
{
    return tn_session_any(t->session, tn_signals_stop() != 0);
}

/* --- validation */

/* In pieces of one batch, between which a signal may end it: then *validated is 0. */
static tn_status validate(struct train *t, double *val, int *validated)
{
    int64_t batches = tn_config_int(t->c, "train.eval_batches"),
            size = tn_session_shape(t->session)->global_batch;
    struct tn_mean mean = {0};
    tn_status status = TN_OK;
    char text[600];

    *validated = 0;
    for (int64_t b = 0; b < batches && status == TN_OK; b++) {
        if (stops(t))
            return TN_OK;
        status = tn_evaluate(t->session, &t->eval, b * size, size, t->tokens, t->targets, &mean);
    }
    if (status < 0)
        return status;
    *val = tn_mean_value(&mean);
    *validated = 1;
    if (!isfinite(*val) && tn_config_is(t->c, "train.nonfinite", "stop"))
        return tn_world_settle(t->world, tn_error(TN_ERR_NUMBER, "step %lld: the validation loss is %g; %s",
                                                  (long long)t->step, *val, last_good(t, text, sizeof text)));
    tn_progress_say(&t->progress, "step %lld/%lld  validation loss %.4f", (long long)t->step,
                    (long long)t->steps, *val);
    return TN_OK;
}

static tn_status validate_if_due(struct train *t, double *val, int *validated)
{
    int64_t interval = tn_config_int(t->c, "train.eval_interval");

    tn_status status;

    *validated = 0;
    if (interval == 0 || (!is_due(t, interval) && t->step < t->steps))
        return TN_OK;
    tn_world_phase(t->world, "evaluation", 1);
    status = validate(t, val, validated);
    tn_world_phase(t->world, "step", 0);
    return status;
}

/* --- an update */

static tn_status stop_nonfinite(struct train *t, const struct tn_session_result *r)
{
    const char *where = tn_session_nonfinite(t->session);
    char text[600];

    return tn_world_settle(
        t->world,
        tn_error(TN_ERR_NUMBER,
                 "step %lld: loss %g, gradient norm %g; the first tensor that is not finite is %s; %s",
                 (long long)(t->step + 1), r->loss, r->gnorm, where && *where ? where : "not known",
                 last_good(t, text, sizeof text)));
}

static tn_status judge(struct train *t, struct tn_session_result *r)
{
    if (isfinite(r->loss) && isfinite(r->gnorm))
        return TN_OK;
    if (r->overflow) {
        tn_progress_say(&t->progress,
                        "step %lld is skipped: the gradients overflow fp16 at loss scale %g, which is halved",
                        (long long)(t->step + 1), r->scale);
        return TN_OK;
    }
    if (tn_config_is(t->c, "train.nonfinite", "ignore")) {
        r->skipped = 0;
        return tn_session_apply(t->session);
    }
    if (tn_config_is(t->c, "train.nonfinite", "stop"))
        return stop_nonfinite(t, r);
    tn_progress_end(&t->progress);
    if (t->lead)
        tn_log(TN_LOG_WARNING, "step %lld is skipped: loss %g, gradient norm %g", (long long)(t->step + 1),
               r->loss, r->gnorm);
    return TN_OK;
}

/* One of all updates may be looked at closely. */
static tn_status work(struct train *t, double lr, struct tn_session_result *r)
{
    struct tn_trace_told told;
    char line[400];
    tn_status status;

    if (t->step + 1 != t->trace)
        return tn_session_update(t->session, (uint64_t)t->step, t->tokens, t->targets, lr, r);
    status = tn_trace_update(t->session, t->dir, (uint64_t)t->step, t->tokens, t->targets, lr, r, &told);
    if (!status)
        tn_progress_say(&t->progress, "%s", tn_trace_line(&told, (uint64_t)t->step, line, sizeof line));
    return status;
}

static tn_status update(struct train *t, struct tn_progress_update *u, int *skipped)
{
    const struct tn_session_shape *shape = tn_session_shape(t->session);
    struct tn_session_result r = {0};
    double begin = tn_seconds();
    tn_status status;

    u->lr = tn_schedule_lr(&t->schedule, t->step);
    status = tn_sampler_fill(&t->sampler, (uint64_t)t->step, 0, (uint64_t)shape->global_batch, t->tokens, t->targets);
    if (status == TN_OK)
        status = work(t, u->lr, &r);
    if (status == TN_OK)
        status = judge(t, &r);
    if (status < 0)
        return status;
    *skipped = (int)r.skipped;
    u->step = ++t->step;
    u->loss = r.loss;
    u->gnorm = r.gnorm;
    u->tokens = (double)(shape->global_batch * shape->seq_len);
    u->seconds = tn_seconds() - begin;
    return TN_OK;
}

static tn_status step(struct train *t)
{
    struct tn_progress_update u;
    int skipped, validated;
    double val = NAN, most[2];
    tn_status status = update(t, &u, &skipped);

    if (status < 0)
        return status;
    most[0] = u.seconds, most[1] = tn_signals_save();
    if ((status = tn_session_most(t->session, most, 2)) < 0)
        return status;
    u.seconds = most[0]; /* of the slowest rank */
    tn_progress_update(&t->progress, &u);
    if ((status = validate_if_due(t, &val, &validated)) < 0)
        return status;
    write_metrics(t, &(struct record){&u, skipped, validated, val});
    if (most[1] > 0 || is_due(t, tn_config_int(t->c, "checkpoint.interval")))
        return save_midway(t);
    return TN_OK;
}

/* Before the first update of a run, once; a run that goes on has its line already. */
static tn_status before_first(struct train *t)
{
    double val = NAN;
    int validated;
    tn_status status;

    if (t->step > 0)
        return TN_OK;
    status = validate_if_due(t, &val, &validated);
    if (status == TN_OK && validated)
        write_metrics(t, &(struct record){.validated = 1, .val = val});
    return status;
}

static tn_status finish(struct train *t, int64_t first)
{
    int sig = tn_signals_stop(), worth = t->step > first || t->step == t->steps;
    tn_status status;

    if (worth && (status = save_last(t)) < 0)
        return status;
    tn_progress_sum(&t->progress);
    if (t->step < t->steps)
        tn_progress_say(&t->progress, "%s: stopped at step %lld of %lld, %s",
                        sig ? tn_signals_name(sig) : "a signal to another rank", (long long)t->step, (long long)t->steps,
                        t->saved == t->step ? "saved; the same command goes on from here"
                                            : "nothing to save");
    return TN_OK;
}

static tn_status loop(struct train *t)
{
    int64_t first = t->step;
    tn_status status;

    tn_world_phase(t->world, "step", 0);
    status = before_first(t);

    while (status == TN_OK && t->step < t->steps && !stops(t))
        status = step(t);
    if (status == TN_OK && tn_world_has_failed(t->world))        /* nobody asked to stop, the question failed */
        status = tn_world_failed(t->world);
    return status < 0 ? status : finish(t, first);
}

/* What is wrong on this rank alone, the others learn before anything else is done. */
static void leave(struct train *t, tn_status status)
{
    if (status < 0)
        tn_world_abandon(t->world, tn_error_text());
    train_end(t);
}

tn_status tn_train(struct tn_config *c)
{
    struct train t;
    tn_status status;

    tn_signals_begin();
    status = train_start(c, &t);
    if (status == TN_OK && !t.done) {
        tn_signals_catch();
        status = loop(&t);
        leave(&t, status);
        tn_signals_release();
    } else {
        leave(&t, status);
    }
    tn_signals_end();
    return status;
}
