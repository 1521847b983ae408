/* start.c - requests: streams and events around what NCCL is given.
 *
 * A start with a stream records an event on it, which the lanes' streams wait for, and one on each lane
 * behind what it put there. So the caller's stream goes on meanwhile, until wait_on makes it wait for those
 * events; all of it is what a recording of the stream can take. Without a stream the lanes wait for nothing.
 * Requests, with their events, are used again, so that a step allocates nothing.
 *
 * What a rank sends itself is a copy, made when the second half of the pair is started. */
#include <stdlib.h>
#include "nccl.h"

/* --- requests */

static tn_status request_new(struct tn_comm *c, struct tn_request **out)
{
    struct tn_request *r;
    cudaError_t e = cudaSuccess;

    pthread_mutex_lock(&c->spares);
    if ((r = *out = c->spare))
        c->spare = r->next;
    pthread_mutex_unlock(&c->spares);
    if (r)
        return TN_OK;
    if (!(r = calloc(1, sizeof *r)))
        return tn_error(TN_ERR_MEMORY, "nccl: no memory for a request");
    r->comm = c;
    pthread_mutex_lock(&c->spares);
    r->older = c->newest;
    c->newest = r;
    pthread_mutex_unlock(&c->spares);
    for (int i = 0; i < TN_LANES && !e; i++)
        e = cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming);
    *out = r;
    return tn_nccl_cuda(c->world, e, "cudaEventCreate");
}

static void request_end(struct tn_request *r, int copy)
{
    struct tn_comm *c = r->comm;

    tn_nccl_unstage(r, copy);
    atomic_store(&r->lanes, 0);
    atomic_store(&r->open, 0);
    pthread_mutex_lock(&c->spares);
    r->next = c->spare;
    c->spare = r;
    pthread_mutex_unlock(&c->spares);
}

void tn_nccl_requests_free(struct tn_comm *c)
{
    while (c->newest) { /* also what nobody has taken when the world failed */
        struct tn_request *r = c->newest;

        c->newest = r->older;
        tn_nccl_unstage(r, 0);
        for (int i = 0; i < TN_LANES; i++)
            if (r->done[i])
                cudaEventDestroy(r->done[i]);
        free(r->staged);
        free(r->back);
        free(r);
    }
}

static tn_status record(struct tn_request *r, uint32_t lane)
{
    cudaError_t e = cudaEventRecord(r->done[lane], r->comm->lane[lane].stream);

    atomic_fetch_or(&r->lanes, 1u << lane);
    return tn_nccl_cuda(r->comm->world, e, "cudaEventRecord");
}

/* --- a rank with itself. c's lock is held. */

static void drop(struct tn_half **at)
{
    struct tn_half *h = *at;

    *at = h->next;
    if (h->ready)
        cudaEventDestroy(h->ready);
    free(h);
}

void tn_nccl_halves_free(struct tn_comm *c)
{
    while (c->half)
        drop(&c->half);
}

static tn_status keep(struct tn_comm *c, struct tn_request *r, const struct tn_transfer *t, void *stream)
{
    struct tn_half *h = calloc(1, sizeof *h), **end = &c->half;
    cudaError_t e = cudaSuccess;

    if (!h)
        return tn_error(TN_ERR_MEMORY, "nccl: no memory for a transfer that waits");
    *h = (struct tn_half){NULL, r, *t, NULL};
    if (stream && !(e = cudaEventCreateWithFlags(&h->ready, cudaEventDisableTiming)))
        e = cudaEventRecord(h->ready, stream);
    while (*end)
        end = &(*end)->next;
    *end = h;
    r->open++;
    return tn_nccl_cuda(c->world, e, "cudaEventRecord");
}

static tn_status meet_self(struct tn_comm *c, struct tn_request *r, const struct tn_transfer *t, void *stream)
{
    struct tn_half *h = c->half;
    const struct tn_transfer *give = t->op == TN_SEND ? t : h ? &h->what : NULL;
    const struct tn_transfer *take = t->op == TN_SEND ? h ? &h->what : NULL : t;
    cudaError_t e = cudaSuccess;
    tn_status s;

    if (!h || h->what.op == t->op)
        return keep(c, r, t, stream);
    if (give->count != take->count || give->dtype != take->dtype)
        return tn_nccl_fail(c->world, TN_ERR_SHAPE,
                            "nccl: rank %u sends itself %llu elements and receives %llu", c->rank,
                            (unsigned long long)give->count, (unsigned long long)take->count);
    if (h->ready)
        e = cudaStreamWaitEvent(c->lane[0].stream, h->ready, 0);
    if (!e && give->count && !r->host != !h->request->host)
        return tn_nccl_fail(c->world, TN_ERR, "nccl: rank %u sends itself memory of the host as the device's",
                            c->rank);
    if (!e && give->count)
        e = tn_nccl_copy(c, take->to, give->from, give->count * tn_nccl_width(give->dtype));
    if ((s = tn_nccl_cuda(c->world, e, "cudaMemcpyAsync")))
        return s;
    s = record(h->request, 0);
    atomic_fetch_sub(&h->request->open, 1); /* after the event: who sees it may end the request */
    drop(&c->half);
    return s;
}

/* --- starting */

/* The lanes wait for what is on the stream now. */
static tn_status after(struct tn_comm *c, uint32_t lanes, void *stream)
{
    cudaError_t e = cudaEventRecord(c->ready, stream);

    for (uint32_t i = 0; i < TN_LANES && !e; i++)
        if (lanes >> i & 1)
            e = cudaStreamWaitEvent(c->lane[i].stream, c->ready, 0);
    return tn_nccl_cuda(c->world, e, "cudaStreamWaitEvent");
}

static tn_status begin(struct tn_comm *c, struct tn_request *r, const struct tn_transfer *t, uint32_t n,
                       void *stream)
{
    uint32_t lanes = c->n == 1 ? 1 : tn_nccl_lanes(c, t, n);
    tn_status s = TN_OK;

    c->on_host = r->host != NULL;
    for (uint32_t i = 0; i < n; i++) {
        if ((t[i].op == TN_SEND || t[i].op == TN_RECV) && t[i].peer == c->rank)
            lanes |= 1;
        c->last = t[i];
    }
    if (stream && lanes)
        s = after(c, lanes, stream);
    if (!s)
        s = tn_nccl_enqueue(c, t, n);
    for (uint32_t i = 0; i < n && !s; i++)
        if ((t[i].op == TN_SEND || t[i].op == TN_RECV) && t[i].peer == c->rank)
            s = meet_self(c, r, &t[i], stream);
    for (uint32_t i = 0; i < TN_LANES && !s; i++)
        if (lanes >> i & 1)
            s = record(r, i);
    return s;
}

static tn_status check_all(const struct tn_comm *c, const struct tn_transfer *t, uint32_t n)
{
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < n && !s; i++)
        s = tn_transfer_check(c, &t[i]);
    return s;
}

tn_status tn_nccl_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                        struct tn_request **out)
{
    struct tn_request *r = NULL;
    tn_status s = check_all(c, t, n);

    *out = NULL;
    if (s || (s = tn_nccl_use(c->world)))
        return s;
    if (atomic_load(&c->world->dead))
        return tn_nccl_failed(c->world);
    if ((s = request_new(c, &r)))
        return s;
    if (!stream && n && (s = tn_nccl_stage(r, t, n))) {
        request_end(r, 0);
        return s;
    }
    pthread_mutex_lock(&c->lock);
    s = atomic_load(&c->world->dead) ? tn_nccl_failed(c->world)
                                     : begin(c, r, stream || !n ? t : r->staged, n, stream);
    pthread_mutex_unlock(&c->lock);
    if (s) /* the world has failed: halves may still know of r, and nobody looks at them */
        return s;
    *out = r;
    return TN_OK;
}

/* --- ending */

/* TN_OK, TN_DECLINED, or the failure. */
static tn_status look(struct tn_request *r)
{
    struct tn_world *w = r->comm->world;
    const uint32_t open = atomic_load(&r->open), lanes = atomic_load(&r->lanes);
    cudaError_t e = cudaSuccess;

    for (int i = 0; i < TN_LANES && !e; i++)
        if (lanes >> i & 1)
            e = cudaEventQuery(r->done[i]);
    if (e == cudaErrorNotReady)
        cudaGetLastError(); /* the answer counts as an error of the next launch */
    if (atomic_load(&w->dead))
        return tn_nccl_failed(w);
    if (e == cudaErrorNotReady || (!e && open))
        return TN_DECLINED;
    return tn_nccl_cuda(w, e, "a transfer");
}

static tn_status too_late(struct tn_request *r, double seconds)
{
    char group[120], last[120];

    tn_comm_say(r->comm, group, sizeof group);
    tn_transfer_say(&r->comm->last, last, sizeof last);
    return tn_nccl_fail(
        r->comm->world, TN_ERR_TIMEOUT,
        "nccl: in %s rank %u has waited for %g s, and NCCL does not say for whom; last begun there: %s",
        group, r->comm->rank, seconds, last);
}

tn_status tn_nccl_wait(struct tn_request *r, double seconds)
{
    const double begin = tn_nccl_now();
    tn_status s = tn_nccl_use(r->comm->world);

    while (!s && (s = look(r)) == TN_DECLINED && seconds > 0) {
        const double waited = tn_nccl_now() - begin;

        s = TN_OK;
        if (waited > seconds)
            s = too_late(r, seconds);
        else
            tn_nccl_nap(waited);
        if (s)
            break;
    }
    if (s != TN_DECLINED)
        request_end(r, s == TN_OK);
    return s;
}

tn_status tn_nccl_wait_on(struct tn_request *r, void *stream)
{
    struct tn_world *w = r->comm->world;
    cudaError_t e = cudaSuccess;
    tn_status s = tn_nccl_use(w);

    if (!s && atomic_load(&w->dead))
        s = tn_nccl_failed(w);
    else if (!s && (r->host || r->open))
        s = tn_nccl_fail(
            w, TN_ERR,
            r->host ? "nccl: a stream cannot wait for a transfer of the host's memory"
                    : "nccl: a stream cannot wait for what this rank sends itself and has not received");
    for (int i = 0; i < TN_LANES && !e && !s; i++)
        if (r->lanes >> i & 1)
            e = cudaStreamWaitEvent(stream, r->done[i], 0);
    if (!s)
        s = tn_nccl_cuda(w, e, "cudaStreamWaitEvent");
    request_end(r, 0);
    return s;
}

tn_status tn_nccl_drain(const struct tn_comm *c, double until)
{
    const double begin = tn_nccl_now();

    for (int i = 0; i < TN_LANES; i++) {
        cudaError_t e;

        while (c->lane[i].stream && (e = cudaStreamQuery(c->lane[i].stream))) {
            cudaGetLastError();
            if (e != cudaErrorNotReady || tn_nccl_now() > until)
                return e == cudaErrorNotReady ? TN_ERR_TIMEOUT : TN_ERR;
            tn_nccl_nap(tn_nccl_now() - begin);
        }
    }
    return TN_OK;
}
