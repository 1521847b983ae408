/* capture.c - streams that are recorded.
 *
 * A recording begins on one stream; others join it by waiting for an event of it, and must have been joined
 * back when it ends. What is put on its streams becomes nodes of a graph (graph.c). What a recording forbids
 * ends it: every later call of it fails. */
#include "fake.h"
#include <pthread.h>

struct tn_fake_capture {
    struct tn_fake_capture *next;
    uint64_t id;
    struct tn_fake_body *body;
    struct CUstream_st *origin;
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    int invalid;
};

static struct tn_fake_capture *captures;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* --- sets of nodes */
static void set_add(struct tn_fake_set *s, uint32_t node)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->node[i] == node)
            return;
    if (s->n == s->room) {
        s->room = s->room * 2 + 4;
        s->node = realloc(s->node, s->room * sizeof *s->node);
        if (!s->node)
            tn_fake_die("no memory for a graph");
    }
    s->node[s->n++] = node;
}

void tn_fake_set_copy(struct tn_fake_set *to, const struct tn_fake_set *from)
{
    to->n = 0;
    for (uint32_t i = 0; i < from->n; i++)
        set_add(to, from->node[i]);
}

void tn_fake_set_clear(struct tn_fake_set *s)
{
    free(s->node);
    *s = (struct tn_fake_set){0};
}

/* --- what a recording forbids */
static cudaError_t ends(struct tn_fake_capture *c, cudaError_t e, const char *call, const char *why)
{
    c->invalid = 1;
    return tn_fake_error(e, "%s while a stream is recorded: %s", call, why);
}

cudaError_t tn_fake_forbidden(const struct CUstream_st *s, const char *call)
{
    if (s && s->capture)
        return ends(s->capture, cudaErrorStreamCaptureUnsupported, call, "on that very stream");
    if (thread_mode == cudaStreamCaptureModeRelaxed)
        return cudaSuccess;
    for (struct tn_fake_capture *c = captures; c; c = c->next) {
        const int own = pthread_equal(c->thread, pthread_self());

        if ((c->mode == cudaStreamCaptureModeGlobal && (own || thread_mode == cudaStreamCaptureModeGlobal)) ||
            (c->mode == cudaStreamCaptureModeThreadLocal && own))
            return ends(c, cudaErrorStreamCaptureUnsupported, call, "not allowed in this mode");
    }
    return cudaSuccess;
}

cudaError_t tn_fake_forbidden_legacy(const char *call)
{
    for (struct CUstream_st *s = tn_fake_streams; s; s = s->next)
        if (s->capture && s->blocking)
            return ends(s->capture, cudaErrorStreamCaptureImplicit, call,
                        "the legacy stream would wait for it");
    return cudaSuccess;
}

uint64_t tn_fake_capture_of(const struct CUstream_st *s)
{
    return s->capture ? s->capture->id : 0;
}

/* --- recording */
cudaError_t tn_fake_capture_put(struct CUstream_st *s, const struct tn_fake_kind *kind, const void *what,
                                size_t bytes)
{
    struct tn_fake_node x = {.kind = kind, .what = (void *)what, .bytes = bytes, .device = s->device};
    uint32_t number;
    void *lost;

    if (tn_fake_planted("sync-in-capture"))
        cudaStreamSynchronize(s);
    if (tn_fake_planted("malloc-in-capture"))
        cudaMalloc(&lost, 256);
    if (s->capture->invalid)
        return tn_fake_error(cudaErrorStreamCaptureInvalidated, "%s: the recording has failed", kind->name);
    tn_fake_set_copy(&x.before, &s->heads);
    number = tn_fake_body_add(s->capture->body, &x);
    s->heads.n = 0;
    set_add(&s->heads, number);
    return cudaSuccess;
}

cudaError_t tn_fake_capture_record(struct CUstream_st *s, struct CUevent_st *e)
{
    if (s->capture->invalid)
        return tn_fake_error(cudaErrorStreamCaptureInvalidated, "cudaEventRecord: the recording has failed");
    tn_fake_set_copy(&e->heads, &s->heads);
    e->captured = s->capture->id;
    return cudaSuccess;
}

cudaError_t tn_fake_capture_wait(struct CUstream_st *s, struct CUevent_st *e)
{
    struct tn_fake_capture *c = captures;

    if (!e->captured)
        return !e->op ? cudaSuccess
                      : ends(s->capture, cudaErrorStreamCaptureIsolation, "cudaStreamWaitEvent",
                             "for an event that was recorded outside of it");
    while (c && c->id != e->captured)
        c = c->next;
    if (!c)
        return tn_fake_error(cudaErrorInvalidValue,
                             "cudaStreamWaitEvent: the event was last recorded in a graph that "
                             "is finished");
    if (c->invalid)
        return tn_fake_error(cudaErrorStreamCaptureInvalidated,
                             "cudaStreamWaitEvent: the recording has failed");
    if (s->capture && s->capture != c) {
        s->capture->invalid = 1;
        return ends(c, cudaErrorStreamCaptureMerge, "cudaStreamWaitEvent",
                    "for an event of another recording");
    }
    if (!s->number)
        return ends(c, cudaErrorStreamCaptureImplicit, "cudaStreamWaitEvent",
                    "the legacy stream cannot join");
    if (!s->capture)
        s->capture = c, s->heads.n = 0;
    for (uint32_t i = 0; i < e->heads.n; i++)
        set_add(&s->heads, e->heads.node[i]);
    return cudaSuccess;
}

static cudaError_t begin(struct CUstream_st *s, enum cudaStreamCaptureMode mode)
{
    static uint64_t ids;
    struct tn_fake_capture *c;

    if (!s->number)
        return tn_fake_error(cudaErrorStreamCaptureUnsupported, "cudaStreamBeginCapture: the legacy stream");
    if (s->capture)
        return tn_fake_error(cudaErrorIllegalState, "cudaStreamBeginCapture: the stream is recorded already");
    if (!(c = calloc(1, sizeof *c)) || !(c->body = calloc(1, sizeof *c->body)))
        tn_fake_die("no memory for a recording");
    c->id = ++ids, c->origin = s, c->mode = mode, c->thread = pthread_self(), c->body->refs = 1;
    c->next = captures, captures = c;
    s->capture = c, s->heads.n = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    struct CUstream_st *s;
    cudaError_t e;

    tn_fake_lock();
    s = tn_fake_stream(stream, "cudaStreamBeginCapture");
    e = s ? begin(s, mode) : cudaErrorInvalidResourceHandle;
    tn_fake_unlock();
    return tn_fake_last(e);
}

/* Marks the nodes that come before these, and these. */
static void mark(const struct tn_fake_body *b, const struct tn_fake_set *from, char *marked)
{
    for (uint32_t i = 0; i < from->n; i++)
        marked[from->node[i]] = 1;
    for (uint32_t i = b->n; i-- > 0;) /* nodes come after those that they depend on */
        for (uint32_t k = 0; marked[i] && k < b->node[i].before.n; k++)
            marked[b->node[i].before.node[k]] = 1;
}

/* Is there work of another stream that the first does not wait for? */
static int unjoined(const struct tn_fake_capture *c)
{
    char *marked = calloc(1, c->body->n + 1);
    int found = 0;

    if (!marked)
        tn_fake_die("no memory for a recording");
    mark(c->body, &c->origin->heads, marked);
    for (uint32_t i = 0; i < c->body->n; i++)
        found |= !marked[i];
    free(marked);
    return found;
}

static void leave(struct tn_fake_capture *c)
{
    struct tn_fake_capture **at = &captures;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    for (struct CUstream_st *s = tn_fake_streams; s; s = s->next)
        if (s->capture == c)
            s->capture = NULL, s->heads.n = 0;
}

static cudaError_t end(struct CUstream_st *s, cudaGraph_t *out)
{
    struct tn_fake_capture *c = s->capture;
    cudaError_t e = cudaSuccess;

    if (!c)
        return tn_fake_error(cudaErrorIllegalState, "cudaStreamEndCapture: the stream is not recorded");
    if (c->origin != s)
        return ends(c, cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture", "it began on another stream");
    if (c->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(c->thread, pthread_self()))
        return ends(c, cudaErrorStreamCaptureWrongThread, "cudaStreamEndCapture", "another thread began it");
    if (c->invalid)
        e = tn_fake_error(cudaErrorStreamCaptureInvalidated,
                          "cudaStreamEndCapture: the recording has failed");
    else if (unjoined(c))
        e = tn_fake_error(cudaErrorStreamCaptureUnjoined,
                          "cudaStreamEndCapture: work of another stream that joined "
                          "is not waited for");
    leave(c);
    if (e)
        tn_fake_body_drop(c->body);
    else
        *out = tn_fake_graph_new(c->body);
    free(c);
    return e;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    struct CUstream_st *s;
    cudaError_t e;

    *out = NULL;
    tn_fake_lock();
    s = tn_fake_stream(stream, "cudaStreamEndCapture");
    e = s ? end(s, out) : cudaErrorInvalidResourceHandle;
    tn_fake_unlock();
    return tn_fake_last(e);
}

static enum cudaStreamCaptureStatus status_of(const struct CUstream_st *s)
{
    return !s->capture           ? cudaStreamCaptureStatusNone
           : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *n)
{
    struct CUstream_st *s;

    tn_fake_lock();
    if ((s = tn_fake_stream(stream, "cudaStreamGetCaptureInfo"))) {
        *status = status_of(s);
        if (id)
            *id = tn_fake_capture_of(s);
        if (graph || nodes || edges || n)
            tn_fake_die("cudaStreamGetCaptureInfo: this fake gives status and id only");
    }
    tn_fake_unlock();
    return s ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    return cudaStreamGetCaptureInfo(stream, status, NULL, NULL, NULL, NULL, NULL);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    const enum cudaStreamCaptureMode old = thread_mode;

    thread_mode = *mode, *mode = old;
    return cudaSuccess;
}
