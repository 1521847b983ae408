/* comm_through.c - a communicator that takes the memory of a device, as one of the host's memory.
 *
 * The cases know host memory only. Here what they give is copied to the device on a queue, started with the queue's
 * stream right behind, and copied back: so every case is also one of stream order. Ways:
 *
 *     wait      start with the stream, then wait
 *     stream    start with the stream, then wait_on, then the queue is waited for
 *     record    the same written down in a recording, which is replayed twice, the first time with nothing but zeros
 *
 * Each communicator has a queue of its own, since ranks wait for each other on it. What is got lies in front of bytes that
 * must stay as they were. Blocks of the device's memory are kept until the world is closed: to free one might wait for
 * the device, and so for other ranks. */
#include <pthread.h>
#include <stdlib.h>
#include "base/status.h"
#include "comm.h"

#define BEHIND 64u                               /* bytes behind what is got */
#define NOTHING 0xEEu                            /* what lies there, and where something is to be got */
#define STALE 0x11u                              /* what is given, while it is recorded */

struct block {
    struct block *next;
    void *at;
    uint64_t bytes, taken;
};

struct place {                                   /* of a world and its groups */
    const struct tn_rank *rank;
    struct tn_comm *world;                       /* the plugin's */
    struct block *blocks;
    pthread_mutex_t lock;
};

struct tn_comm {
    struct tn_comm *inner;
    struct place *place;
    struct tn_queue *queue;
    uint32_t rank, n, is_world, reserved0;
};

struct copied {                                  /* of one transfer */
    void *from, *spare, *to, *back;
    uint64_t given, got;                         /* bytes */
};

struct tn_request {
    struct tn_comm *comm;
    struct tn_request *inner;
    struct tn_recording *recording;
    struct tn_transfer *list;
    struct copied *copy;
    uint32_t n, reserved0;
};

static _Thread_local const struct tn_rank *mine;

/* --- memory */

static tn_status take(struct place *p, uint64_t bytes, void **out)
{
    const struct tn_rank *r = p->rank;
    struct block *b;
    tn_status s = TN_OK;

    pthread_mutex_lock(&p->lock);
    for (b = p->blocks; b && (b->taken || b->bytes != bytes);)
        b = b->next;
    if (!b) {
        b = calloc(1, sizeof *b);
        *b = (struct block){.next = p->blocks, .bytes = bytes};
        s = r->device_api->alloc(r->device, bytes, &b->at);
        p->blocks = b;
    }
    b->taken = 1;
    *out = b->at;
    pthread_mutex_unlock(&p->lock);
    return s;
}

static void give(struct place *p, const void *at)
{
    pthread_mutex_lock(&p->lock);
    for (struct block *b = p->blocks; b && at; b = b->next)
        if (b->at == at)
            b->taken = 0;
    pthread_mutex_unlock(&p->lock);
}

static void place_free(struct place *p)
{
    while (p->blocks) {
        struct block *next = p->blocks->next;

        p->rank->device_api->free(p->rank->device, p->blocks->at);
        free(p->blocks);
        p->blocks = next;
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* --- communicators */

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    return mine->own->probe(score, why, why_size);
}

static tn_status comm_new(struct tn_comm *inner, struct place *p, uint32_t rank, uint32_t n, struct tn_comm **out)
{
    struct tn_comm *c = calloc(1, sizeof *c);

    *c = (struct tn_comm){.inner = inner, .place = p, .rank = rank, .n = n};
    *out = c;
    return p->rank->device_api->queue(p->rank->device, &c->queue);
}

static tn_status open_world(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    struct tn_comm *inner = NULL;
    struct place *p;
    tn_status s;

    *world = NULL;
    if ((s = mine->own->open(rank, size, seconds, &inner)))
        return s;
    p = calloc(1, sizeof *p);
    p->rank = mine, p->world = inner;
    pthread_mutex_init(&p->lock, NULL);
    s = comm_new(inner, p, rank, size, world);
    (*world)->is_world = 1;
    return s;
}

static tn_status group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    struct tn_comm *inner = NULL;
    uint32_t me = 0;
    tn_status s = world->place->rank->own->group(world->inner, ranks, n, &inner);

    *out = NULL;
    while (!s && ranks[me] != world->rank)
        me++;
    return s ? s : comm_new(inner, world->place, me, n, out);
}

static void abort_comm(struct tn_comm *c)
{
    c->place->rank->own->abort(c->inner);
}

static void close_comm(struct tn_comm *c)
{
    const struct tn_rank *r = c ? c->place->rank : mine;

    r->own->close(c ? c->inner : NULL);
    if (!c)
        return;
    r->device_api->queue_close(c->queue);
    if (c->is_world)
        place_free(c->place);
    free(c);
}

/* --- transfers */

static uint64_t sum(const uint64_t *counts, uint64_t count, uint32_t n)
{
    uint64_t all = 0;

    for (uint32_t i = 0; i < n; i++)
        all += counts ? counts[i] : count;
    return all;
}

/* Bytes that this rank gives and gets. */
static void sizes(const struct tn_comm *c, const struct tn_transfer *t, uint64_t *from, uint64_t *to)
{
    const uint64_t all = sum(t->counts, t->count, c->n), own = t->counts ? t->counts[c->rank] : t->count;

    *from = *to = 0;
    switch (t->op) {
    case TN_ALL_REDUCE: *from = *to = t->count; break;
    case TN_ALL_GATHER: *from = own, *to = all; break;
    case TN_REDUCE_SCATTER: *from = all, *to = own; break;
    case TN_ALL_TO_ALL: *from = all, *to = t->counts_in ? sum(t->counts_in, 0, c->n) : all; break;
    case TN_BROADCAST:
        *from = t->peer == c->rank ? t->count : 0, *to = t->peer != c->rank || t->to ? t->count : 0;
        break;
    case TN_SEND: *from = t->count; break;
    case TN_RECV: *to = t->count; break;
    }
    *from *= tn_number_width(t->dtype), *to *= tn_number_width(t->dtype);
}

/* A transfer of the device's memory, and where its parts are. Nothing is waited for. */
static tn_status to_device(struct tn_request *r, const struct tn_transfer *t, struct tn_transfer *o, struct copied *k)
{
    const struct tn_device_api *d = r->comm->place->rank->device_api;
    struct place *p = r->comm->place;
    tn_status s = TN_OK;

    *o = *t;
    sizes(r->comm, t, &k->given, &k->got);
    k->back = t->to;
    if (k->given && !(s = take(p, k->given + BEHIND, &k->from)))
        s = d->copy(r->comm->queue, k->from, t->from, k->given, 1);
    if (!s && k->given && tn_comm_way == TN_COMM_RECORD && !(s = take(p, k->given, &k->spare)))
        s = d->copy(r->comm->queue, k->spare, k->from, k->given, 0);
    if (!s && k->got && k->given && t->to == t->from)
        k->to = k->from;
    else if (!s && k->got)
        s = take(p, k->got + BEHIND, &k->to);
    if (!s && k->got)
        s = d->fill(r->comm->queue, k->to == k->from ? (char *)k->to + k->got : (char *)k->to, NOTHING,
                    k->to == k->from ? BEHIND : k->got + BEHIND);
    o->from = k->given ? k->from : o->from;
    o->to = k->got ? k->to : o->to;
    return s;
}

/* All that is given, of one byte, or what the case gives. */
static tn_status set_given(const struct tn_request *r, uint32_t byte, int real)
{
    const struct tn_device_api *d = r->comm->place->rank->device_api;
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < r->n && !s; i++)
        if (r->copy[i].given)
            s = real ? d->copy(r->comm->queue, r->copy[i].from, r->copy[i].spare, r->copy[i].given, 0)
                     : d->fill(r->comm->queue, r->copy[i].from, byte, r->copy[i].given);
    return s;
}

/* What is got of the first replay is lost. */
static tn_status record(struct tn_request *r, void *stream)
{
    const struct tn_rank *me = r->comm->place->rank;
    const struct tn_device_capture *c = me->capture;
    struct tn_queue *q = r->comm->queue;
    tn_status s = set_given(r, STALE, 0), ended;

    if (s || (s = c->begin(q)))
        return s;
    s = me->own->start(r->comm->inner, r->list, r->n, stream, &r->inner);
    if (!s)
        s = me->own->wait_on(r->inner, stream);
    r->inner = NULL;
    ended = c->end(q, &r->recording);
    s = s ? s : ended;
    for (int real = 0; real < 2 && !s; real++)
        if (!(s = set_given(r, 0, real)))
            s = c->replay(r->recording, q);
    return s;
}

static void end(struct tn_request *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        give(r->comm->place, r->copy[i].from);
        give(r->comm->place, r->copy[i].spare);
        give(r->comm->place, r->copy[i].to);
    }
    if (r->recording)
        r->comm->place->rank->capture->close(r->recording);
    free(r->list);
    free(r->copy);
    free(r);
}

static int is_sound(const struct tn_comm *c, const struct tn_transfer *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!t[i].op || t[i].op > TN_BARRIER || t[i].dtype > TN_U8 || (t[i].op != TN_BARRIER && !t[i].dtype) || t[i].peer >= c->n)
            return 0;
    return 1;
}

static tn_status start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream, struct tn_request **out)
{
    const struct tn_rank *me = c->place->rank;
    struct tn_request *r, *refused = NULL;
    tn_status s = TN_OK;

    *out = NULL;
    stream = me->device_api->native(c->queue);
    if (!is_sound(c, t, n))                      /* to be refused, whatever its memory is */
        return me->own->start(c->inner, t, n, stream, &refused);
    r = calloc(1, sizeof *r);
    *r = (struct tn_request){.comm = c, .list = calloc(n + 1, sizeof *r->list), .copy = calloc(n + 1, sizeof *r->copy), .n = n};
    for (uint32_t i = 0; i < n && !s; i++)
        s = to_device(r, &t[i], &r->list[i], &r->copy[i]);
    if (!s)
        s = tn_comm_way == TN_COMM_RECORD ? record(r, stream) : me->own->start(c->inner, r->list, n, stream, &r->inner);
    if (s)
        end(r);
    else
        *out = r;
    return s;
}

/* --- ending */

static tn_status behind(struct tn_request *r, struct copied *k)
{
    const struct tn_rank *me = r->comm->place->rank;
    unsigned char have[BEHIND];
    tn_status s = me->device_api->copy(r->comm->queue, have, (char *)k->to + k->got, BEHIND, 2);

    if (!s)
        s = me->device_api->sync(r->comm->queue, 10);
    for (uint32_t i = 0; i < BEHIND && !s; i++)
        if (have[i] != NOTHING)
            s = tn_error(TN_ERR, "the memory of the device behind the %llu bytes that are got has changed", (unsigned long long)k->got);
    return s;
}

/* When all is done: to the case's memory. */
static tn_status fetch(struct tn_request *r)
{
    const struct tn_device_api *d = r->comm->place->rank->device_api;
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < r->n && !s; i++)
        if (r->copy[i].got && !(s = d->copy(r->comm->queue, r->copy[i].back, r->copy[i].to, r->copy[i].got, 2)))
            s = behind(r, &r->copy[i]);
    return s ? s : d->sync(r->comm->queue, 10);
}

static tn_status wait(struct tn_request *r, double seconds)
{
    struct tn_comm *c = r->comm;
    const struct tn_rank *me = c->place->rank;
    tn_status s = TN_OK;

    if (r->inner && tn_comm_way == TN_COMM_STREAM) {
        s = me->own->wait_on(r->inner, me->device_api->native(c->queue));
        r->inner = NULL;
    }
    if (!s && r->inner)
        s = me->own->wait(r->inner, seconds);
    else if (!s && (s = me->device_api->sync(c->queue, seconds)) == TN_ERR_TIMEOUT && seconds <= 0)
        return TN_DECLINED;
    else if (!s)
        s = me->own->check(c->place->world);
    if (s == TN_DECLINED)
        return s;
    s = s ? s : fetch(r);
    end(r);
    return s;
}

static const char *const devices[] = {"cpu", NULL};

const struct tn_comm_api tn_comm_through = {
    .struct_size = sizeof tn_comm_through,
    .devices = devices,
    .probe = probe,
    .open = open_world,
    .group = group,
    .start = start,
    .wait = wait,
    .abort = abort_comm,
    .close = close_comm,
};

void tn_comm_through_as(const struct tn_rank *r)
{
    mine = r;
}
