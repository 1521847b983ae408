/* queue.c - the device: queues that work later, copies, events.
 *
 * Each queue has a thread. It runs what is put on the queue in order, but starts only when somebody waits for it, or
 * when MOST_WAITING jobs have come together. So whoever forgets to wait reads old numbers, every time: from the
 * queue into host memory nothing is written before, and what lies in memory of host_alloc is read as late. Other host
 * memory is read at once, as device.h has it. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include "isle.h"

#define MOST_WAITING 128u

struct tn_device {
    uint32_t local_rank;
};

struct tn_queue {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t thread;
    struct isle_job *first, **end;
    uint64_t n_put, n_done, wanted;              /* wanted: somebody waits for the job of this number */
    uint32_t closing;
};

struct tn_event {
    struct tn_queue *queue;                      /* NULL: never recorded, so it has happened */
    uint64_t job;
};

/* --- the thread */

static void *serve(void *arg)
{
    struct tn_queue *q = arg;

    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->closing && q->wanted <= q->n_done && q->n_put - q->n_done < MOST_WAITING)
            pthread_cond_wait(&q->work, &q->lock);
        struct isle_job *job = q->first;
        if (!job)                                /* closing: nothing is left */
            break;
        pthread_mutex_unlock(&q->lock);
        job->run(job);
        pthread_mutex_lock(&q->lock);
        q->first = job->next;
        if (!q->first)
            q->end = &q->first;
        free(job);
        q->n_done++;
        pthread_cond_broadcast(&q->done);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* What this thread puts on the queue goes to the end of a list instead. */
static _Thread_local struct tn_queue *diverted;
static _Thread_local struct isle_job **diverted_to;

void isle_divert(struct tn_queue *q, struct isle_job **list)
{
    diverted = list ? q : NULL;
    diverted_to = list;
}

void isle_put(struct tn_queue *q, struct isle_job *job)
{
    job->next = NULL;
    if (q == diverted) {
        *diverted_to = job;
        diverted_to = &job->next;
        return;
    }
    pthread_mutex_lock(&q->lock);
    *q->end = job;
    q->end = &job->next;
    q->n_put++;
    if (q->n_put - q->n_done >= MOST_WAITING)
        pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
}

void isle_go(struct tn_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->wanted = q->n_put;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
}

/* 0 when job number n is done, else ETIMEDOUT. until: CLOCK_MONOTONIC, NULL for ever. */
static int wait_for(struct tn_queue *q, uint64_t n, const struct timespec *until)
{
    int e = 0;

    pthread_mutex_lock(&q->lock);
    if (n > q->wanted)
        q->wanted = n;
    pthread_cond_signal(&q->work);
    while (q->n_done < n && !e)
        e = until ? pthread_cond_timedwait(&q->done, &q->lock, until) : pthread_cond_wait(&q->done, &q->lock);
    e = q->n_done >= n ? 0 : e;
    pthread_mutex_unlock(&q->lock);
    return e;
}

static uint64_t last_job(struct tn_queue *q)
{
    pthread_mutex_lock(&q->lock);
    uint64_t n = q->n_put;
    pthread_mutex_unlock(&q->lock);
    return n;
}

/* --- device and queues */

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "a device for tests");
    return TN_OK;
}

static tn_status open_device(uint32_t local_rank, struct tn_device **out)
{
    tn_status s = isle_sea_open();

    *out = s ? NULL : malloc(sizeof **out);
    if (s)
        return s;
    if (!*out) {
        isle_sea_close();
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a device");
    }
    (*out)->local_rank = local_rank;
    return TN_OK;
}

static void close_device(struct tn_device *d)
{
    free(d);
    isle_sea_close();
}

static tn_status info(struct tn_device *d, struct tn_device_info *out)
{
    struct tn_device_info all = {.struct_size = out->struct_size, .dtypes = 1u << TN_F32 | 1u << TN_I32,
                                 .memory_free = ISLE_BYTES - isle_sea_used(), .memory_total = ISLE_BYTES, .alignment = 4096, .queues = 1};

    snprintf(all.name, sizeof all.name, ISLE " %u", d->local_rank);
    memcpy(out, &all, out->struct_size < sizeof all ? out->struct_size : sizeof all);
    return TN_OK;
}

static tn_status alloc(struct tn_device *d, uint64_t bytes, void **out)
{
    (void)d;
    return isle_sea_take(bytes, out);
}

static void free_memory(struct tn_device *d, void *p)
{
    (void)d;
    isle_sea_give(p);
}

static tn_status queue(struct tn_device *d, struct tn_queue **out)
{
    struct tn_queue *q = calloc(1, sizeof *q);
    pthread_condattr_t monotonic;
    sigset_t all, before;
    int e;

    (void)d;
    if (!q)
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a queue");
    q->end = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&q->work, &monotonic);
    pthread_cond_init(&q->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);                            /* signals belong to the host's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e = pthread_create(&q->thread, NULL, serve, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e) {
        free(q);
        return tn_error(TN_ERR, "isle: no thread for a queue: %s", strerror(e));
    }
    *out = q;
    return TN_OK;
}

static void queue_close(struct tn_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closing = 1;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->done);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static tn_status sync_queue(struct tn_queue *q, double seconds)
{
    double whole = seconds < 1e9 ? seconds : 1e9;
    struct timespec t;

    if (q == diverted)
        return tn_error(TN_ERR, "isle: a queue that records is waited for");
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((whole - (double)(time_t)whole) * 1e9);
    if (t.tv_nsec >= 1000000000)
        t.tv_sec++, t.tv_nsec -= 1000000000;
    return wait_for(q, last_job(q), &t) ? tn_error(TN_ERR_TIMEOUT, "isle: its queue is not done within %g s", seconds) : TN_OK;
}

/* --- memory of the host that is read late */

struct locked {
    struct locked *next;
    uint64_t bytes;
    _Alignas(64) char data[];
};
static pthread_mutex_t locked_lock = PTHREAD_MUTEX_INITIALIZER;
static struct locked *locked;

static tn_status host_alloc(struct tn_device *d, uint64_t bytes, void **out)
{
    struct locked *b = bytes < ISLE_BYTES ? aligned_alloc(64, (sizeof *b + bytes + 63) / 64 * 64) : NULL;

    (void)d;
    if (!b)
        return tn_error(TN_ERR_MEMORY, "isle: no memory of the host: %llu bytes", (unsigned long long)bytes);
    pthread_mutex_lock(&locked_lock);
    b->bytes = bytes, b->next = locked;
    locked = b;
    pthread_mutex_unlock(&locked_lock);
    *out = b->data;
    return TN_OK;
}

static void host_free(struct tn_device *d, void *p)
{
    struct locked *gone = NULL;

    (void)d;
    pthread_mutex_lock(&locked_lock);
    for (struct locked **b = &locked; *b && !gone; b = &(*b)->next)
        if ((*b)->data == p) {
            gone = *b;
            *b = gone->next;
            break;
        }
    pthread_mutex_unlock(&locked_lock);
    free(gone);
}

static int is_locked(const char *at)
{
    int found = 0;

    pthread_mutex_lock(&locked_lock);
    for (const struct locked *b = locked; b; b = b->next)
        found |= at >= b->data && at < b->data + b->bytes;
    pthread_mutex_unlock(&locked_lock);
    return found;
}

/* --- copies */

struct copying {
    struct isle_job job;
    void *to;
    const void *from;
    uint64_t bytes;
    unsigned char taken[];                       /* of host memory that is not locked */
};

static void run_copy(struct isle_job *job)
{
    struct copying *c = (struct copying *)job;

    memmove(c->to, c->from, c->bytes);
}

/* Each side must be what the way says, or a number of the host's would be taken for one of ours. */
static tn_status copy(struct tn_queue *q, void *to, const void *from, uint64_t bytes, uint32_t way)
{
    const int ours[2] = {way != 2, way != 1};    /* to, from */
    const int at_once = way == 1 && !is_locked(from);
    struct copying *c;

    if (!bytes)
        return TN_OK;
    if (way > 2 || isle_is_ours(to, bytes) != ours[0] || isle_is_ours(from, bytes) != ours[1])
        return tn_error(TN_ERR, "isle: a copy of %llu bytes the way %u from %p, which is memory of the %s, to %p, of the %s",
                        (unsigned long long)bytes, way, from, isle_is_ours(from, bytes) ? "device" : "host", to,
                        isle_is_ours(to, bytes) ? "device" : "host");
    if (way && q == diverted)
        return tn_error(TN_ERR, "isle: a copy from or to the host is put on a queue that records");
    if (!(c = malloc(sizeof *c + (at_once ? bytes : 0))))
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a copy of %llu bytes", (unsigned long long)bytes);
    c->job.run = run_copy, c->bytes = bytes;
    c->to = ours[0] ? isle_here(to) : to;
    c->from = at_once ? c->taken : way == 1 ? from : isle_here(from);
    if (at_once)
        memcpy(c->taken, from, bytes);
    isle_put(q, &c->job);
    return TN_OK;
}

struct filling {
    struct isle_job job;
    void *to;
    uint32_t byte;
    uint64_t bytes;
};

static void run_fill(struct isle_job *job)
{
    struct filling *f = (struct filling *)job;

    memset(f->to, (int)f->byte, f->bytes);
}

static tn_status fill(struct tn_queue *q, void *to, uint32_t byte, uint64_t bytes)
{
    struct filling *f;

    if (!bytes)
        return TN_OK;
    if (!isle_is_ours(to, bytes))
        return tn_error(TN_ERR, "isle: %llu bytes at %p are to be filled, which are not memory of the device", (unsigned long long)bytes, to);
    if (!(f = malloc(sizeof *f)))
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a job");
    *f = (struct filling){.job.run = run_fill, .to = isle_here(to), .byte = byte, .bytes = bytes};
    isle_put(q, &f->job);
    return TN_OK;
}

/* --- events: a queue and the number of its last job when it was recorded */

static tn_status event(struct tn_device *d, struct tn_event **out)
{
    (void)d;
    *out = calloc(1, sizeof **out);
    return *out ? TN_OK : tn_error(TN_ERR_MEMORY, "isle: no memory for an event");
}

static void event_close(struct tn_event *e)
{
    free(e);
}

static tn_status record(struct tn_event *e, struct tn_queue *q)
{
    *e = (struct tn_event){q, last_job(q)};
    return TN_OK;
}

struct waiting {
    struct isle_job job;
    struct tn_event event;
};

static void run_wait(struct isle_job *job)
{
    const struct tn_event *e = &((struct waiting *)job)->event;

    wait_for(e->queue, e->job, NULL);
}

static tn_status wait_event(struct tn_queue *q, struct tn_event *e)
{
    struct waiting *w;

    if (!e->queue || e->queue == q)
        return TN_OK;
    if (!(w = malloc(sizeof *w)))
        return tn_error(TN_ERR_MEMORY, "isle: no memory for a job");
    *w = (struct waiting){{NULL, run_wait}, *e};
    isle_put(q, &w->job);
    return TN_OK;
}

const struct tn_device_api isle_device = {
    .struct_size = sizeof isle_device,
    .kind = ISLE,
    .probe = probe,
    .open = open_device,
    .close = close_device,
    .info = info,
    .alloc = alloc,
    .free = free_memory,
    .queue = queue,
    .queue_close = queue_close,
    .copy = copy,
    .fill = fill,
    .event = event,
    .event_close = event_close,
    .record = record,
    .wait = wait_event,
    .sync = sync_queue,
    .host_alloc = host_alloc,
    .host_free = host_free,
};
