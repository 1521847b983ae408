/* stream.c - streams and events: each is an operation, the last that was put on it or that it was recorded
 * after.
 *
 * The stream NULL comes after all blocking streams of its device, and they after it; streams made with
 * cudaStreamNonBlocking have no part in that. */
#include "fake.h"

static struct CUstream_st null_stream[TN_FAKE_DEVICES];
static struct CUevent_st *events;
static int numbers;
struct CUstream_st *tn_fake_streams;

/* --- streams */
struct CUstream_st *tn_fake_stream(cudaStream_t stream, const char *call)
{
    struct CUstream_st *s = tn_fake_streams;

    if (!stream || stream == cudaStreamLegacy) {
        s = &null_stream[*tn_fake_current()];
        s->device = *tn_fake_current(), s->blocking = 1;
        return s;
    }
    while (s && s != stream)
        s = s->next;
    if (!s)
        tn_fake_error(cudaErrorInvalidResourceHandle, "%s: %p is no stream, or no more", call,
                      (void *)stream);
    return s;
}

int tn_fake_stream_device(cudaStream_t stream)
{
    struct CUstream_st *s;

    tn_fake_lock();
    s = tn_fake_stream(stream, "a library");
    tn_fake_unlock();
    return s ? s->device : -1;
}

void tn_fake_append(struct CUstream_st *s, struct tn_fake_op *op)
{
    struct CUstream_st *null = &null_stream[s->device];

    tn_fake_op_after(op, s->last);
    if (s == null) {
        for (struct CUstream_st *t = tn_fake_streams; t; t = t->next)
            if (t->blocking && t->device == s->device)
                tn_fake_op_after(op, t->last);
    } else if (s->blocking)
        tn_fake_op_after(op, null->last);
    tn_fake_op_drop(s->last);
    s->last = op;
    tn_fake_op_submit(op);
}

cudaError_t tn_fake_put(cudaStream_t stream, const struct tn_fake_kind *kind, const void *what, size_t bytes)
{
    struct CUstream_st *s;
    cudaError_t e = tn_fake_failed();

    tn_fake_lock();
    s = tn_fake_stream(stream, kind->name);
    if (!s)
        e = cudaErrorInvalidResourceHandle;
    else if (!e && s->device != *tn_fake_current())
        e = tn_fake_error(cudaErrorInvalidResourceHandle,
                          "%s: a stream of device %d while device %d is current", kind->name, s->device,
                          *tn_fake_current());
    else if (!e && s->capture)
        e = tn_fake_capture_put(s, kind, what, bytes);
    else if (!e && !(s->blocking && (e = tn_fake_forbidden_legacy(kind->name))))
        tn_fake_append(s, tn_fake_op_new(s->device, kind, what, bytes));
    if (tn_fake_seed() % 2 && !tn_fake_draw(8))
        tn_fake_run_some(1 + tn_fake_draw(4));
    tn_fake_unlock();
    return tn_fake_last(e);
}

static cudaError_t create_stream(cudaStream_t *out, unsigned flags)
{
    struct CUstream_st *s = calloc(1, sizeof *s);

    if (!s || flags > cudaStreamNonBlocking) {
        free(s);
        return tn_fake_error(cudaErrorInvalidValue, "cudaStreamCreate: flags %#x", flags);
    }
    tn_fake_lock();
    s->device = *tn_fake_current(), s->blocking = !(flags & cudaStreamNonBlocking), s->number = ++numbers;
    s->next = tn_fake_streams, tn_fake_streams = s;
    tn_fake_unlock();
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return create_stream(out, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return create_stream(out, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)priority;
    return create_stream(out, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    struct CUstream_st *s, **at = &tn_fake_streams;
    cudaError_t e = cudaSuccess;

    tn_fake_lock();
    s = tn_fake_stream(stream, "cudaStreamDestroy");
    while (s && *at && *at != s)
        at = &(*at)->next;
    if (!s || !*at)
        e = cudaErrorInvalidResourceHandle;
    else if (s->capture)
        e = tn_fake_error(cudaErrorStreamCaptureUnsupported, "cudaStreamDestroy: the stream is recorded");
    else {
        *at = s->next;
        tn_fake_op_drop(s->last); /* what is on it runs nevertheless */
        tn_fake_set_clear(&s->heads);
        free(s);
    }
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    struct CUstream_st *s;
    cudaError_t e;

    tn_fake_lock();
    s = tn_fake_stream(stream, "cudaStreamSynchronize");
    e = s ? tn_fake_forbidden(s, "cudaStreamSynchronize") : cudaErrorInvalidResourceHandle;
    if (!e)
        tn_fake_wait(s->last);
    tn_fake_unlock();
    return tn_fake_last(e ? e : tn_fake_failed());
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct CUstream_st *s;
    cudaError_t e;

    tn_fake_lock();
    s = tn_fake_stream(stream, "cudaStreamQuery");
    e = s ? tn_fake_forbidden(s, "cudaStreamQuery") : cudaErrorInvalidResourceHandle;
    if (!e) {
        tn_fake_run_some(1 + tn_fake_draw(32));
        e = tn_fake_failed();
        e = e || tn_fake_op_done(s->last) ? e : cudaErrorNotReady;
    }
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t e;

    tn_fake_lock();
    e = tn_fake_forbidden(NULL, "cudaDeviceSynchronize");
    if (!e)
        tn_fake_wait_device(*tn_fake_current());
    tn_fake_unlock();
    return tn_fake_last(e ? e : tn_fake_failed());
}

/* --- events */
struct CUevent_st *tn_fake_event(cudaEvent_t event, const char *call)
{
    struct CUevent_st *e = events;

    while (e && e != event)
        e = e->next;
    if (!e)
        tn_fake_error(cudaErrorInvalidResourceHandle, "%s: %p is no event, or no more", call, (void *)event);
    return e;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    struct CUevent_st *e = calloc(1, sizeof *e);

    if (!e)
        tn_fake_die("no memory for an event");
    tn_fake_lock();
    e->device = *tn_fake_current(), e->timing = !(flags & cudaEventDisableTiming), e->number = ++numbers;
    e->next = events, events = e;
    tn_fake_unlock();
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    struct CUevent_st *e, **at = &events;

    tn_fake_lock();
    if ((e = tn_fake_event(event, "cudaEventDestroy"))) {
        while (*at != e)
            at = &(*at)->next;
        *at = e->next;
        tn_fake_op_drop(e->op);
        tn_fake_set_clear(&e->heads);
        free(e);
    }
    tn_fake_unlock();
    return e ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

static cudaError_t record(struct CUevent_st *v, struct CUstream_st *s)
{
    struct tn_fake_op *op;
    cudaError_t e;

    if (v->device != s->device)
        return tn_fake_error(cudaErrorInvalidResourceHandle,
                             "cudaEventRecord: an event of device %d on a stream of "
                             "device %d",
                             v->device, s->device);
    if (s->capture)
        return tn_fake_capture_record(s, v);
    if (s->blocking && (e = tn_fake_forbidden_legacy("cudaEventRecord")))
        return e;
    op = tn_fake_op_new(s->device, &tn_fake_nothing, NULL, 0);
    tn_fake_append(s, op);
    tn_fake_op_drop(v->op);
    v->op = tn_fake_op_hold(op), v->captured = 0;
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    struct CUevent_st *v;
    struct CUstream_st *s;
    cudaError_t e;

    tn_fake_lock();
    v = tn_fake_event(event, "cudaEventRecord");
    s = v ? tn_fake_stream(stream, "cudaEventRecord") : NULL;
    if (flags)
        e = tn_fake_error(cudaErrorNotSupported, "cudaEventRecord: flags %#x are not for this fake", flags);
    else
        e = !s ? cudaErrorInvalidResourceHandle : tn_fake_planted("drop-record") ? cudaSuccess : record(v, s);
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, 0);
}

static cudaError_t stream_wait(struct CUstream_st *s, struct CUevent_st *v)
{
    struct tn_fake_op *op;
    cudaError_t e;

    if (s->capture || v->captured)
        return tn_fake_capture_wait(s, v);
    if (s->blocking && (e = tn_fake_forbidden_legacy("cudaStreamWaitEvent")))
        return e;
    if (tn_fake_op_done(v->op))
        return cudaSuccess;
    op = tn_fake_op_new(s->device, &tn_fake_nothing, NULL, 0);
    tn_fake_op_after(op, v->op);
    tn_fake_append(s, op);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    struct CUevent_st *v;
    struct CUstream_st *s;
    cudaError_t e;

    tn_fake_lock();
    tn_fake_counts.waits++;
    v = tn_fake_event(event, "cudaStreamWaitEvent");
    s = v ? tn_fake_stream(stream, "cudaStreamWaitEvent") : NULL;
    if (flags)
        e = tn_fake_error(cudaErrorNotSupported, "cudaStreamWaitEvent: flags %#x are not for this fake",
                          flags);
    else
        e = !s                             ? cudaErrorInvalidResourceHandle
            : tn_fake_planted("drop-wait") ? cudaSuccess
                                           : stream_wait(s, v);
    tn_fake_unlock();
    return tn_fake_last(e);
}

/* wait: until it is done; else cudaErrorNotReady if it is not. */
static cudaError_t ask(cudaEvent_t event, int wait, const char *call)
{
    struct CUevent_st *v;
    cudaError_t e;
    int planted;

    tn_fake_lock();
    tn_fake_counts.questions++;
    v = tn_fake_event(event, call);
    e = v ? tn_fake_forbidden(NULL, call) : cudaErrorInvalidResourceHandle;
    if (!e && v->captured)
        e = tn_fake_error(cudaErrorCapturedEvent, "%s: the event was last recorded in a graph", call);
    planted = !e && tn_fake_planted("no-wait"); /* as if the host had not asked */
    if (!e && wait && !planted)
        tn_fake_wait(v->op);
    else if (!e && !planted && !tn_fake_op_done(v->op))
        tn_fake_run_some(1 + tn_fake_draw(32));
    if (!e && !(e = tn_fake_failed()) && !planted && !tn_fake_op_done(v->op))
        e = cudaErrorNotReady;
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return ask(event, 0, "cudaEventQuery");
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return ask(event, 1, "cudaEventSynchronize");
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    struct CUevent_st *a, *b;
    cudaError_t e = cudaSuccess;

    tn_fake_lock();
    a = tn_fake_event(from, "cudaEventElapsedTime"), b = tn_fake_event(to, "cudaEventElapsedTime");
    if (!a || !b || !a->timing || !b->timing || !a->op || !b->op)
        e = tn_fake_error(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime: events without times");
    else if (!tn_fake_op_done(a->op) || !tn_fake_op_done(b->op))
        e = cudaErrorNotReady;
    else
        *ms = (float)(1e3 * (tn_fake_op_time(b->op) - tn_fake_op_time(a->op)));
    tn_fake_unlock();
    return tn_fake_last(e);
}

void tn_fake_queue_leaks(uint32_t *n_streams, uint32_t *n_events)
{
    *n_streams = *n_events = 0;
    for (struct CUstream_st *s = tn_fake_streams; s; s = s->next)
        ++*n_streams;
    for (struct CUevent_st *e = events; e; e = e->next)
        ++*n_events;
}
