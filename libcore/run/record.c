/* record.c - a stretch of a step, recorded once and replayed from then on.
 *
 * On a GPU the launches of a small model take the host longer than the device. Nothing in a stretch depends on the host
 * but what is copied in before it, so where the device can record (tenon/device.h) its launches are written down
 * and sent as one. The first time a stretch goes launch by launch: libraries set themselves up then. The second time it
 * is recorded, which does nothing, and replayed. What collectives count on the host while they are recorded is
 * added again with each replay. */
#include "base/arena.h"
#include "base/status.h"
#include "run/state.h"

void tn_run_record(struct tn_run *run, const struct tn_device_capture *capture, uint32_t must)
{
    const struct tn_collectives *c = run->collectives;

    run->capture = c && (c->way != TN_BY_STREAM || c->compare) && run->communicates ? NULL : capture;
    run->must_record = must;
}

/* What the host counts while collectives are begun. */
static void count(struct tn_collectives *c, const struct record *r)
{
    for (int a = 0; c && a <= TN_AXES; a++) {
        c->started[a] += r->started[a];
        if (a < TN_AXES)
            c->bytes[a] += r->bytes[a];
    }
    if (c && r->last)
        c->last = r->last, c->last_sequence = c->started[r->channel];
}

static void uncount(struct tn_collectives *c, struct record *r, const struct tn_collectives *before)
{
    for (int a = 0; c && a <= TN_AXES; a++) {
        r->started[a] = c->started[a] - before->started[a];
        if (r->started[a])
            r->channel = a;
        c->started[a] = before->started[a];
        if (a < TN_AXES) {
            r->bytes[a] = c->bytes[a] - before->bytes[a];
            c->bytes[a] = before->bytes[a];
        }
    }
    if (c)
        r->last = c->last, c->last = before->last;
}

static tn_status record(struct tn_run *run, struct record *r, const struct go *from, const struct go *to)
{
    struct tn_collectives before = run->collectives ? *run->collectives : (struct tn_collectives){0};
    tn_status s = run->capture->begin(run->queue), walked, ended;

    if (s)
        return s;
    if (run->collectives)
        run->collectives->last = NULL;
    walked = tn_run_walk(run, from, to);
    ended = run->capture->end(run->queue, &r->recording);
    r->capture = run->capture;
    if (walked && !ended) {                      /* what was recorded is not all */
        run->capture->close(r->recording);
        r->recording = NULL;
    }
    uncount(run->collectives, r, &before);
    return walked ? walked : ended;
}

static tn_status try(struct tn_run *run, struct record *r, const struct go *from, const struct go *to)
{
    tn_status s = record(run, r, from, to);

    if (!s || run->must_record)
        return s;
    tn_log(TN_LOG_WARNING, "the step is not recorded, its launches go one by one (backend.capture): %s", tn_error_text());
    tn_error_clear();
    run->capture = NULL;
    return TN_OK;
}

tn_status tn_run_stretch(struct tn_run *run, uint32_t which, const struct go *from, const struct go *to)
{
    struct record *r = &run->record[which];
    tn_status s = TN_OK;

    if (!run->capture || !r->seen) {
        r->seen = 1;
        return tn_run_walk(run, from, to);
    }
    if (!r->recording)
        s = try(run, r, from, to);
    if (s || !r->recording)
        return s ? s : tn_run_walk(run, from, to);
    count(run->collectives, r);
    return run->capture->replay(r->recording, run->queue);
}

void tn_run_forget(struct tn_run *run)
{
    for (int i = 0; i < TN_STRETCHES; i++) {
        if (run->record[i].recording)
            run->record[i].capture->close(run->record[i].recording);
        run->record[i] = (struct record){0};
    }
}
