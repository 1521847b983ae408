/* stream.c - the device reef of tests/isle, which records, and a communicator of threads that takes its memory in the order
 * of its streams; right without BROKEN, with -DBROKEN=n one mistake that tenon plugins check finds.
 *
 *    1  a kernel is done at once, and not on its queue     6  takes what is given before the stream is there
 *    2  a kernel keeps the numbers of its launch           7  the stream does not wait
 *    3  the second replay does nothing                     8  the caller waits instead of the stream
 *    4  a replay runs in front of what is on the queue     9  check does not know that the world has ended
 *    5  wait ends before all is done                      10  what is recorded is sent once
 *
 * A start, and a wait of the stream, are jobs of the queue. With -DOPENS=FILE each time the device is opened takes a
 * quarter of a second and adds a byte to the file. */
#ifndef REEF
#define REEF
#endif
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <tenon/comm.h>
#include <time.h>
#include <unistd.h>
#include "tests/isle/isle.h"

#ifndef BROKEN
#define BROKEN 0
#endif
#define IS(n) (BROKEN == (n))

extern const struct tn_comm_api *const stream_local;         /* stream_local.c */

/* --- the device */

static struct tn_device *only;
static struct tn_device_api device;

static tn_status open_counted(uint32_t local_rank, struct tn_device **out)
{
    tn_status s = isle_device.open(local_rank, out);
#ifdef OPENS
    int fd = open(OPENS, O_WRONLY | O_CREAT | O_APPEND, 0600);

    if (fd < 0 || write(fd, "x", 1) != 1)
        return tn_error(TN_ERR_IO, "stream: " OPENS " cannot be written");
    close(fd);
    nanosleep(&(struct timespec){0, 250000000}, NULL);
#endif
    only = *out;
    return s;
}

/* isle calls its queue the stream. */
static void *native(struct tn_queue *q)
{
    return q;
}

/* --- kernels */

struct wrapped {
    struct tn_kernel inner;
    void *kept;
    uint64_t bytes;
};

static tn_status launch(void *state, const struct tn_launch *l)
{
    struct wrapped *k = state;
    struct tn_launch changed = *l;
    void *buffer[TN_MAX_OPERANDS];
    struct tn_queue *own = NULL;
    tn_status s;

    changed.struct_size = sizeof changed;
    if ((!IS(1) && !IS(2)) || (IS(2) && !k->kept))
        return k->inner.launch(k->inner.state, l);
    if ((s = device.queue(only, &own)))
        return s;
    if (IS(1)) {
        changed.queue = own;
        s = k->inner.launch(k->inner.state, &changed);
    } else {                                     /* of two operands */
        s = device.copy(own, k->kept, l->buffer[0], k->bytes, 0);
        buffer[0] = k->kept, buffer[1] = l->buffer[1];
        changed.buffer = buffer;
    }
    s = s ? s : device.sync(own, 10);
    device.queue_close(own);
    return s || IS(1) ? s : k->inner.launch(k->inner.state, &changed);
}

static void release(void *state)
{
    struct wrapped *k = state;

    k->inner.release(k->inner.state);
    free(k);
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    struct wrapped *k = calloc(1, sizeof *k);
    tn_status s = k ? isle_kernels.prepare(p, out) : TN_ERR_MEMORY;

    if (s) {
        free(k);
        return s;
    }
    k->inner = *out;
    out->state = k, out->launch = launch, out->release = release;
    if (!IS(2) || strcmp(p->op, "copy") || !tn_contiguous(&p->in[0]))
        return TN_OK;
    k->bytes = (uint64_t)tn_count(&p->in[0]) * 4;
    return device.alloc(only, k->bytes, &k->kept);
}

/* --- recording */

static tn_status replay(struct tn_recording *r, struct tn_queue *q)
{
    static struct tn_recording *last;
    const int again = last == r;
    struct tn_queue *own = q;
    tn_status s = TN_OK;

    last = r;
    if (IS(3) && again)
        return TN_OK;
    if (IS(4) && (s = device.queue(only, &own)))
        return s;
    s = isle_capture.replay(r, own);
    isle_go(own);
    if (own != q) {
        s = s ? s : device.sync(own, 10);
        device.queue_close(own);
    }
    return s;
}

/* --- the communicator: local's, whose calls are made by the queue. Errors there show in check. */

struct tn_comm {
    struct tn_comm *inner, *world;               /* local's; of this, itself in a world */
    struct tn_request *requests;                 /* kept: a recording may still have them */
    pthread_mutex_t lock;
    tn_status failed;                            /* of the world */
    char why[300];
    uint32_t n;
};

struct tn_request {
    struct tn_request *next;
    struct tn_comm *comm;
    struct tn_queue *q;                          /* NULL: host memory */
    struct tn_request *inner;                    /* local's */
    struct tn_transfer *t;                       /* addresses here; counts are ours */
    uint64_t *counts;
    uint32_t n, runs;
};

struct calling {
    struct isle_job job;
    struct tn_request *r;
};

/* The first one stays. */
static void fail(struct tn_comm *c, tn_status s, const char *why)
{
    struct tn_comm *w = c->world;

    pthread_mutex_lock(&w->lock);
    if (!w->failed)
        w->failed = s, snprintf(w->why, sizeof w->why, "%s", why);
    pthread_mutex_unlock(&w->lock);
}

static void run_start(struct isle_job *job)
{
    struct tn_request *r = ((struct calling *)job)->r;
    tn_status s = TN_OK;

    r->inner = NULL;
    if (!IS(10) || !r->runs++)
        s = stream_local->start(r->comm->inner, r->t, r->n, NULL, &r->inner);
    if (s)
        fail(r->comm, s, "stream: a rank is gone or does not agree");
}

static void run_wait(struct isle_job *job)
{
    struct tn_request *r = ((struct calling *)job)->r;
    tn_status s = r->inner ? stream_local->wait(r->inner, 5) : TN_OK;

    r->inner = NULL;
    if (s)
        fail(r->comm, s, "stream: a rank is gone or does not come");
}

static tn_status put(struct tn_request *r, void (*run)(struct isle_job *job))
{
    struct calling *c = malloc(sizeof *c);

    if (!c)
        return tn_error(TN_ERR_MEMORY, "stream: no memory for a job");
    *c = (struct calling){.job.run = run, .r = r};
    isle_put(r->q, &c->job);
    isle_go(r->q);                               /* other ranks may wait for it */
    return TN_OK;
}

static struct tn_request *request_new(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream)
{
    struct tn_request *r = calloc(1, sizeof *r);
    const uint32_t size = c->n;

    r->comm = c, r->q = stream, r->n = n;
    r->t = calloc(n + 1, sizeof *r->t), r->counts = calloc(2 * n * size + 1, sizeof *r->counts);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *at = r->counts + 2 * i * size;

        r->t[i] = t[i];
        if (stream)
            r->t[i].from = isle_here(t[i].from), r->t[i].to = isle_here(t[i].to);
        if (t[i].counts)
            r->t[i].counts = memcpy(at, t[i].counts, size * sizeof *at);
        if (t[i].counts_in)
            r->t[i].counts_in = memcpy(at + size, t[i].counts_in, size * sizeof *at);
    }
    r->next = c->requests;
    c->requests = r;
    return r;
}

static tn_status stream_check(struct tn_comm *c)
{
    struct tn_comm *w = c->world;
    tn_status s;

    pthread_mutex_lock(&w->lock);
    s = w->failed && !IS(9) ? tn_error(w->failed, "%s", w->why) : TN_OK;
    pthread_mutex_unlock(&w->lock);
    return s;
}

/* What must be refused when it is started, though the call is made later. */
static tn_status refuse(const struct tn_comm *c, const struct tn_transfer *t)
{
    const int reduces = t->op == TN_ALL_REDUCE || t->op == TN_REDUCE_SCATTER;

    if (t->op < TN_ALL_REDUCE || t->op > TN_BARRIER || (t->op != TN_BARRIER && (t->dtype < TN_F32 || t->dtype > TN_U8)) ||
        (reduces && (t->reduce < TN_SUM || t->reduce > TN_MIN)) || t->peer >= c->n)
        return tn_error(TN_ERR, "stream: there is no such transfer: operation %u, dtype %u, reduction %u, peer %u", t->op, t->dtype,
                        t->reduce, t->peer);
    return TN_OK;
}

static tn_status stream_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream, struct tn_request **out)
{
    struct tn_request *r;
    tn_status s = stream_check(c);

    *out = NULL;
    for (uint32_t i = 0; i < n && !s; i++)
        s = refuse(c, &t[i]);
    if (s)
        return s;
    r = request_new(c, t, n, stream);
    if (!stream || IS(6))
        s = stream_local->start(c->inner, r->t, n, NULL, &r->inner);
    else
        s = put(r, run_start);
    *out = s ? NULL : r;
    return s;
}

static tn_status stream_wait(struct tn_request *r, double seconds)
{
    tn_status s;

    if (r->q && IS(5))
        return TN_OK;
    if (r->q && (s = device.sync(r->q, seconds)))
        return s == TN_ERR_TIMEOUT && seconds <= 0 ? TN_DECLINED : s;
    s = r->inner ? stream_local->wait(r->inner, seconds) : TN_OK;
    if (s != TN_DECLINED)
        r->inner = NULL;
    if (s < 0)
        fail(r->comm, s, "stream: a rank is gone or does not come");
    return s;
}

static tn_status stream_wait_on(struct tn_request *r, void *stream)
{
    (void)stream;
    if (IS(7))
        return TN_OK;
    if (IS(8))
        return stream_wait(r, 10);
    return put(r, run_wait);
}

static tn_status comm_new(struct tn_comm *inner, struct tn_comm *world, uint32_t n, struct tn_comm **out)
{
    struct tn_comm *c = calloc(1, sizeof *c);

    c->inner = inner, c->world = world ? world : c, c->n = n;
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return TN_OK;
}

static tn_status stream_probe(uint32_t *score, char *why, uint64_t why_size)
{
    return stream_local->probe(score, why, why_size);
}

static tn_status stream_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    struct tn_comm *inner;
    tn_status s = stream_local->open(rank, size, seconds, &inner);

    *world = NULL;
    return s ? s : comm_new(inner, NULL, size, world);
}

static tn_status stream_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    struct tn_comm *inner;
    tn_status s = stream_local->group(world->inner, ranks, n, &inner);

    *out = NULL;
    return s ? s : comm_new(inner, world, n, out);
}

static void stream_abort(struct tn_comm *c)
{
    stream_local->abort(c->inner);
    fail(c, TN_ERR, "stream: a rank has aborted");
}

static void stream_close(struct tn_comm *c)
{
    if (!c)
        return;
    stream_local->close(c->inner);
    while (c->requests) {
        struct tn_request *next = c->requests->next;

        free(c->requests->t), free(c->requests->counts), free(c->requests);
        c->requests = next;
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static const char *const kinds[] = {ISLE, "cpu", NULL};

static const struct tn_comm_api comm = {
    .struct_size = sizeof comm,
    .devices = kinds,
    .probe = stream_probe,
    .open = stream_open,
    .group = stream_group,
    .start = stream_start,
    .wait = stream_wait,
    .abort = stream_abort,
    .close = stream_close,
    .wait_on = stream_wait_on,
    .check = stream_check,
};

static struct tn_kernels kernels;
static struct tn_device_capture capture;

__attribute__((constructor)) static void fill_tables(void)
{
    device = isle_device, device.open = open_counted, device.native = native;
    kernels = isle_kernels, kernels.prepare = prepare;
    capture = isle_capture, capture.replay = replay;
}

TN_PLUGIN_("toystream", "1.0", "reef, and threads as ranks in the order of its streams",
           TN_DEVICE_ID " " TN_KERNELS_ID " " TN_DEVICE_CAPTURE_ID " " TN_COMM_ID, NULL, NULL, {TN_DEVICE_ID, &device},
           {TN_KERNELS_ID, &kernels}, {TN_DEVICE_CAPTURE_ID, &capture}, {TN_COMM_ID, &comm});
