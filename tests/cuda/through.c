/* through.c - the communicator nccl, on memory of the device cuda, as a communicator of the host's memory.
 *
 * A plugin that is none of its own: it loads cuda.so and nccl.so from TN_THROUGH (a folder that has both), opens the GPU
 * of its rank, and hands everything on. So the list that every communicator has to pass, which knows host memory
 * only, runs through streams too. TN_THROUGH_WAY says how:
 *
 *     host      as it is: nccl is given the host's memory
 *     wait      start with a stream, then wait
 *     stream    start with a stream, then wait_on, then the queue is waited for
 *     record    the same, recorded, and then replayed */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <tenon/comm.h>
#include <tenon/device.h>

enum way { HOST, WAIT, STREAM, RECORD };

static const struct tn_device_api *cuda;
static const struct tn_device_capture *capture;
static const struct tn_comm_api *nccl;
static enum way way;

struct tn_comm {
    struct tn_comm *inner;
    struct tn_device *device;
    struct tn_queue *queue; /* of this communicator: ranks wait for each other on it */
    uint32_t rank, n, is_world, reserved0;
};

struct copy { /* of one transfer */
    void *from, *to, *back;
    uint64_t bytes; /* from to, back to back */
};

struct block { /* of the device's memory: to free one would wait for the device, so they are kept */
    struct block *next;
    void *at;
    uint64_t bytes, taken;
};
static struct block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct tn_request {
    struct tn_comm *comm;
    struct tn_request *inner;
    struct tn_recording *recording;
    struct tn_transfer *list;
    struct copy *copy;
    uint32_t n, reserved0;
};

/* --- loading */

static const void *load(const char *name, const char *id)
{
    const char *folder = getenv("TN_THROUGH");
    const struct tn_plugin *(*entry)(const struct tn_host *), *p = NULL;
    char path[4096];
    void *so;

    snprintf(path, sizeof path, "%s/%s.so", folder ? folder : ".", name);
    if ((so = dlopen(path, RTLD_NOW | RTLD_LOCAL))) {
        *(void **)&entry = dlsym(so, "tn_plugin_entry");
        p = entry ? entry(tn_host) : NULL;
    } else {
        tn_error(TN_ERR_INPUT, "through: %s", dlerror());
    }
    for (const struct tn_interface *i = p ? p->interfaces : NULL; i && i->id; i++)
        if (!strcmp(i->id, id))
            return i->table;
    return NULL;
}

static tn_status load_both(void)
{
    static const char *const ways[] = {"host", "wait", "stream", "record"};
    const char *asked = getenv("TN_THROUGH_WAY");

    for (int i = 0; asked && i < 4; i++)
        if (!strcmp(asked, ways[i]))
            way = (enum way)i;
    if (!nccl) {
        cuda = load("cuda", TN_DEVICE_ID);
        capture = load("cuda", TN_DEVICE_CAPTURE_ID);
        nccl = load("nccl", TN_COMM_ID);
    }
    return cuda && capture && nccl ? TN_OK : TN_ERR_INPUT;
}

/* --- communicators */

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    tn_status s = load_both();

    *score = 0;
    return s ? s : nccl->probe(score, why, why_size);
}

static tn_status comm_new(struct tn_comm *inner, struct tn_device *device, uint32_t rank, uint32_t n, struct tn_comm **out)
{
    struct tn_comm *c = calloc(1, sizeof *c);

    *c = (struct tn_comm){.inner = inner, .device = device, .rank = rank, .n = n};
    *out = c;
    return cuda->queue(device, &c->queue);
}

static tn_status open_world(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    struct tn_device *device = NULL;
    struct tn_comm *inner;
    tn_status s = load_both();

    *world = NULL;
    if (!s)
        s = cuda->open(rank < size ? rank : 0, &device);
    if (!s && (s = nccl->open(rank, size, seconds, &inner)))
        cuda->close(device);
    if (s)
        return s;
    s = comm_new(inner, device, rank, size, world);
    (*world)->is_world = 1;
    return s;
}

static tn_status group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    struct tn_comm *inner;
    uint32_t me = 0;
    tn_status s = nccl->group(world->inner, ranks, n, &inner);

    *out = NULL;
    while (!s && ranks[me] != world->rank)
        me++;
    return s ? s : comm_new(inner, world->device, me, n, out);
}

static void abort_comm(struct tn_comm *c)
{
    nccl->abort(c->inner);
}

/* --- memory */

static tn_status take(struct tn_device *d, uint64_t bytes, void **out)
{
    struct block *b;
    tn_status s = TN_OK;

    pthread_mutex_lock(&lock);
    for (b = blocks; b && (b->taken || b->bytes != bytes);)
        b = b->next;
    if (!b) {
        b = calloc(1, sizeof *b);
        *b = (struct block){.next = blocks, .bytes = bytes};
        s = cuda->alloc(d, bytes, &b->at);
        blocks = b;
    }
    b->taken = 1;
    *out = b->at;
    pthread_mutex_unlock(&lock);
    return s;
}

static void give(const void *at)
{
    pthread_mutex_lock(&lock);
    for (struct block *b = blocks; b && at; b = b->next)
        if (b->at == at)
            b->taken = 0;
    pthread_mutex_unlock(&lock);
}

static void free_all(struct tn_device *d)
{
    while (blocks) {
        struct block *next = blocks->next;

        cuda->free(d, blocks->at);
        free(blocks);
        blocks = next;
    }
}

static void close_comm(struct tn_comm *c)
{
    if (!c) {
        if (!load_both())
            nccl->close(NULL);
        return;
    }
    nccl->close(c->inner);
    cuda->queue_close(c->queue);
    if (c->is_world) {
        free_all(c->device);
        cuda->close(c->device);
    }
    free(c);
}

/* --- transfers */

static uint64_t width(uint32_t dtype)
{
    return dtype == TN_F64 || dtype == TN_I64 ? 8 : dtype == TN_F32 || dtype == TN_I32 ? 4 : dtype == TN_U8 ? 1 : 2;
}

static uint64_t sum(const uint64_t *counts, uint64_t count, uint32_t n)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < n; i++)
        all += counts ? counts[i] : count;
    return all;
}

static void sizes(const struct tn_comm *c, const struct tn_transfer *t, uint64_t *from, uint64_t *to)
{
    const uint64_t all = sum(t->counts, t->count, c->n), mine = t->counts ? t->counts[c->rank] : t->count;

    *from = *to = 0;
    switch (t->op) {
    case TN_ALL_REDUCE: *from = *to = t->count; break;
    case TN_ALL_GATHER: *from = mine, *to = all; break;
    case TN_REDUCE_SCATTER: *from = all, *to = mine; break;
    case TN_ALL_TO_ALL: *from = all, *to = t->counts_in ? sum(t->counts_in, 0, c->n) : all; break;
    case TN_BROADCAST:
        *from = t->peer == c->rank ? t->count : 0, *to = t->peer != c->rank || t->to ? t->count : 0;
        break;
    case TN_SEND: *from = t->count; break;
    case TN_RECV: *to = t->count; break;
    }
    *from *= width(t->dtype), *to *= width(t->dtype);
}

static tn_status to_device(struct tn_request *r, const struct tn_transfer *t, struct tn_transfer *o, struct copy *k)
{
    struct tn_comm *c = r->comm;
    uint64_t from, to;
    tn_status s = TN_OK;

    *o = *t;
    sizes(c, t, &from, &to);
    if (from && !(s = take(c->device, from, &k->from)))
        s = cuda->copy(c->queue, k->from, t->from, from, 1);
    if (!s && to && from && t->to == t->from)
        k->to = k->from;
    else if (!s && to)
        s = take(c->device, to, &k->to);
    k->back = t->to, k->bytes = to;
    if (from)
        o->from = k->from;
    if (to)
        o->to = k->to;
    return s;
}

static void end(struct tn_request *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        give(r->copy[i].from);
        give(r->copy[i].to);
    }
    if (r->recording)
        capture->close(r->recording);
    free(r->list);
    free(r->copy);
    free(r);
}

static tn_status begin(struct tn_request *r, void *stream)
{
    tn_status s, ended;

    if (way != RECORD)
        return nccl->start(r->comm->inner, r->list, r->n, stream, &r->inner);
    if ((s = capture->begin(r->comm->queue)))
        return s;
    s = nccl->start(r->comm->inner, r->list, r->n, stream, &r->inner);
    if (!s)
        s = nccl->wait_on(r->inner, stream);
    r->inner = NULL;
    ended = capture->end(r->comm->queue, &r->recording);
    s = s ? s : ended;
    return s ? s : capture->replay(r->recording, r->comm->queue);
}

static tn_status start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream, struct tn_request **out)
{
    struct tn_request *r = calloc(1, sizeof *r), *none;
    tn_status s = TN_OK;

    (void)stream;
    *out = NULL;
    *r = (struct tn_request){
        .comm = c, .list = calloc(n + 1, sizeof *r->list), .copy = calloc(n + 1, sizeof *r->copy), .n = n};
    if (way == HOST) {
        s = nccl->start(c->inner, t, n, NULL, &r->inner);
        r->n = 0;
    } else {
        for (uint32_t i = 0; i < n && !s; i++) /* what is refused is refused with any memory */
            if (!width(t[i].dtype) || t[i].op > TN_BARRIER || t[i].dtype > TN_U8 || t[i].peer >= c->n) {
                s = nccl->start(c->inner, t, n, NULL, &none);
                end(r);
                return s ? s : TN_ERR;
            }
        for (uint32_t i = 0; i < n && !s; i++)
            s = to_device(r, &t[i], &r->list[i], &r->copy[i]);
        if (!s)
            s = begin(r, cuda->native(c->queue));
    }
    if (s)
        end(r);
    else
        *out = r;
    return s;
}

static tn_status wait(struct tn_request *r, double seconds)
{
    struct tn_comm *c = r->comm;
    tn_status s;

    if (r->inner && way == STREAM) {
        s = nccl->wait_on(r->inner, cuda->native(c->queue));
        r->inner = NULL;
        if (s) {
            end(r);
            return s;
        }
    }
    if (r->inner)
        s = nccl->wait(r->inner, seconds);
    else if ((s = cuda->sync(c->queue, seconds)) == TN_ERR_TIMEOUT && seconds <= 0)
        return TN_DECLINED;
    else if (!s)
        s = nccl->check(c->inner);
    if (s == TN_DECLINED)
        return s;
    for (uint32_t i = 0; i < r->n && !s; i++)
        if (r->copy[i].bytes)
            s = cuda->copy(c->queue, r->copy[i].back, r->copy[i].to, r->copy[i].bytes, 2);
    if (!s && r->n)
        s = cuda->sync(c->queue, 10);
    end(r);
    return s;
}

static const char *const devices[] = {"cpu", NULL};

static const struct tn_comm_api through = {
    .struct_size = sizeof through,
    .devices = devices,
    .probe = probe,
    .open = open_world,
    .group = group,
    .start = start,
    .wait = wait,
    .abort = abort_comm,
    .close = close_comm,
};

TN_PLUGIN("through", "1.0", "nccl on cuda's memory, for tests", TN_COMM_ID, &through);
