/* capture.c - streams that are recorded, graphs, and their replay.
 *
 * A recording begins on one stream; others join it by waiting for an event of it, and must have been joined back when
 * it ends. What is put on its streams becomes nodes. A replay is one operation on its stream that all nodes come
 * after, the nodes, in any order that the graph allows, and one that comes after all of them; replays of one graph come
 * one after another. What a recording forbids ends it: every later call of it fails. */
#include "fake.h"
#include <pthread.h>

struct node {
    const struct tn_fake_kind *kind;
    void *what;
    size_t bytes;
    int device;
    struct tn_fake_set before;
};
struct body {
    struct node *node;
    uint32_t n, refs;
};
struct CUgraph_st {
    struct CUgraph_st *next;
    struct body *body;
};
struct CUgraphExec_st {
    struct CUgraphExec_st *next;
    struct body *body;
    struct tn_fake_op *last;                     /* end of its last replay */
};
struct tn_fake_capture {
    struct tn_fake_capture *next;
    uint64_t id;
    struct body *body;
    struct CUstream_st *origin;
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    int invalid;
};

static struct tn_fake_capture *captures;
static struct CUgraph_st *graphs;
static struct CUgraphExec_st *execs;
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

/* --- bodies */
static void body_drop(struct body *b)
{
    if (--b->refs)
        return;
    for (uint32_t i = 0; i < b->n; i++) {
        free(b->node[i].what);
        tn_fake_set_clear(&b->node[i].before);
    }
    free(b->node);
    free(b);
}

static uint32_t body_add(struct body *b, const struct node *x)
{
    b->node = realloc(b->node, (b->n + 1) * sizeof *b->node);
    if (!b->node)
        tn_fake_die("no memory for a graph");
    b->node[b->n] = *x;
    if (x->bytes) {
        b->node[b->n].what = malloc(x->bytes);
        if (!b->node[b->n].what)
            tn_fake_die("no memory for a graph");
        memcpy(b->node[b->n].what, x->what, x->bytes);
    }
    return b->n++;
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
            return ends(s->capture, cudaErrorStreamCaptureImplicit, call, "the legacy stream would wait for it");
    return cudaSuccess;
}

uint64_t tn_fake_capture_of(const struct CUstream_st *s)
{
    return s->capture ? s->capture->id : 0;
}

/* --- recording */
cudaError_t tn_fake_capture_put(struct CUstream_st *s, const struct tn_fake_kind *kind, const void *what, size_t bytes)
{
    struct node x = {.kind = kind, .what = (void *)what, .bytes = bytes, .device = s->device};
    uint32_t number;
    void *lost;

    if (tn_fake_planted("sync-in-capture"))
        cudaStreamSynchronize(s);
    if (tn_fake_planted("malloc-in-capture"))
        cudaMalloc(&lost, 256);
    if (s->capture->invalid)
        return tn_fake_error(cudaErrorStreamCaptureInvalidated, "%s: the recording has failed", kind->name);
    tn_fake_set_copy(&x.before, &s->heads);
    number = body_add(s->capture->body, &x);
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
        return tn_fake_error(cudaErrorInvalidValue, "cudaStreamWaitEvent: the event was last recorded in a graph that "
                             "is finished");
    if (c->invalid)
        return tn_fake_error(cudaErrorStreamCaptureInvalidated, "cudaStreamWaitEvent: the recording has failed");
    if (s->capture && s->capture != c) {
        s->capture->invalid = 1;
        return ends(c, cudaErrorStreamCaptureMerge, "cudaStreamWaitEvent", "for an event of another recording");
    }
    if (!s->number)
        return ends(c, cudaErrorStreamCaptureImplicit, "cudaStreamWaitEvent", "the legacy stream cannot join");
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
static void mark(const struct body *b, const struct tn_fake_set *from, char *marked)
{
    for (uint32_t i = 0; i < from->n; i++)
        marked[from->node[i]] = 1;
    for (uint32_t i = b->n; i-- > 0;)            /* nodes come after those that they depend on */
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
    struct CUgraph_st *g;
    cudaError_t e = cudaSuccess;

    if (!c)
        return tn_fake_error(cudaErrorIllegalState, "cudaStreamEndCapture: the stream is not recorded");
    if (c->origin != s)
        return ends(c, cudaErrorStreamCaptureUnmatched, "cudaStreamEndCapture", "it began on another stream");
    if (c->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(c->thread, pthread_self()))
        return ends(c, cudaErrorStreamCaptureWrongThread, "cudaStreamEndCapture", "another thread began it");
    if (c->invalid)
        e = tn_fake_error(cudaErrorStreamCaptureInvalidated, "cudaStreamEndCapture: the recording has failed");
    else if (unjoined(c))
        e = tn_fake_error(cudaErrorStreamCaptureUnjoined, "cudaStreamEndCapture: work of another stream that joined "
                          "is not waited for");
    leave(c);
    if (e)
        body_drop(c->body);
    else {
        if (!(g = calloc(1, sizeof *g)))
            tn_fake_die("no memory for a graph");
        g->body = c->body, g->next = graphs, graphs = g;
        *out = g;
    }
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
    return !s->capture ? cudaStreamCaptureStatusNone
                       : s->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *n)
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

/* --- graphs */
#define FIND(list, x) __extension__({ __typeof__(list) *at_ = &(list); while (*at_ && *at_ != (x)) at_ = &(*at_)->next; at_; })

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    struct CUgraphExec_st *x = calloc(1, sizeof *x);
    cudaError_t e = cudaSuccess;

    (void)flags;
    *out = NULL;
    tn_fake_lock();
    if (!x)
        tn_fake_die("no memory for a graph");
    if (!*FIND(graphs, graph)) {
        e = tn_fake_error(cudaErrorInvalidValue, "cudaGraphInstantiate: %p is no graph, or no more", (void *)graph);
        free(x);
    } else {
        x->body = graph->body, x->body->refs++;
        x->next = execs, execs = x;
        *out = x;
    }
    tn_fake_unlock();
    return e;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiate(out, graph, flags);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    struct CUgraph_st **at;
    cudaError_t e = cudaSuccess;

    tn_fake_lock();
    if (!*(at = FIND(graphs, graph)))
        e = tn_fake_error(cudaErrorInvalidValue, "cudaGraphDestroy: %p is no graph, or no more", (void *)graph);
    else {
        *at = graph->next;
        body_drop(graph->body);
        free(graph);
    }
    tn_fake_unlock();
    return e;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    struct CUgraphExec_st **at;
    cudaError_t e = cudaSuccess;

    tn_fake_lock();
    if (!*(at = FIND(execs, exec)))
        e = tn_fake_error(cudaErrorInvalidValue, "cudaGraphExecDestroy: %p is no graph, or no more", (void *)exec);
    else {
        *at = exec->next;
        tn_fake_op_drop(exec->last);
        body_drop(exec->body);
        free(exec);
    }
    tn_fake_unlock();
    return e;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec, (void)stream;
    return cudaSuccess;
}

/* The operations of one replay, between the stream's last and its next. */
static void replay(struct CUgraphExec_st *x, struct CUstream_st *s)
{
    const struct body *b = x->body;
    struct tn_fake_op **op = calloc(b->n + 1, sizeof *op);
    struct tn_fake_op *first = tn_fake_op_new(s->device, &tn_fake_nothing, NULL, 0);
    struct tn_fake_op *last = tn_fake_op_new(s->device, &tn_fake_nothing, NULL, 0);

    if (!op)
        tn_fake_die("no memory for a replay");
    tn_fake_op_after(first, x->last);
    tn_fake_append(s, first);
    for (uint32_t i = 0; i < b->n; i++) {
        const struct node *x_i = &b->node[i];

        op[i] = tn_fake_op_new(x_i->device, x_i->kind, x_i->what, x_i->bytes);
        tn_fake_op_after(op[i], first);
        for (uint32_t k = 0; k < x_i->before.n; k++)
            tn_fake_op_after(op[i], op[x_i->before.node[k]]);
        tn_fake_op_after(last, op[i]);
        tn_fake_op_submit(op[i]);
    }
    tn_fake_append(s, last);
    for (uint32_t i = 0; i < b->n; i++)
        tn_fake_op_drop(op[i]);
    free(op);
    tn_fake_op_drop(x->last);
    x->last = tn_fake_op_hold(last);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    struct CUstream_st *s;
    cudaError_t e = tn_fake_failed();

    tn_fake_lock();
    s = tn_fake_stream(stream, "cudaGraphLaunch");
    if (!s)
        e = cudaErrorInvalidResourceHandle;
    else if (!*FIND(execs, exec))
        e = tn_fake_error(cudaErrorInvalidValue, "cudaGraphLaunch: %p is no graph, or no more", (void *)exec);
    else if (s->capture)
        e = tn_fake_error(cudaErrorNotSupported, "cudaGraphLaunch: a graph within a graph is not for this fake");
    else if (!e && !(s->blocking && (e = tn_fake_forbidden_legacy("cudaGraphLaunch")))) {
        tn_fake_counts.replays++;
        replay(exec, s);
    }
    tn_fake_unlock();
    return tn_fake_last(e);
}

uint32_t tn_fake_graph_leaks(void)
{
    uint32_t n = 0;

    for (struct CUgraph_st *g = graphs; g; g = g->next)
        n++;
    for (struct CUgraphExec_st *x = execs; x; x = x->next)
        n++;
    return n;
}
