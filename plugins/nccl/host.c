/* host.c - transfers of the host's memory: through page-locked memory, which NCCL takes as it takes the
 * device's.
 *
 * They are few - what ranks agree on, tensors for a checkpoint - so they take no memory of the device, whose
 * arena may fill it: start copies in, wait copies out. Page-locked memory is kept for the next one until the
 * world ends. */
#include <stdlib.h>
#include "nccl.h"

#define ALIGN 256u
#define LEAST (UINT64_C(64) << 10)

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The smallest that is large enough, else a new one. */
static tn_status take(struct tn_world *w, uint64_t bytes, struct tn_pinned **out)
{
    struct tn_pinned **best = NULL, *p;
    uint64_t size = LEAST;
    cudaError_t e;

    pthread_mutex_lock(&w->lock);
    for (struct tn_pinned **at = &w->pinned; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes))
            best = at;
    p = *out = best ? *best : NULL;
    if (p)
        *best = p->next;
    pthread_mutex_unlock(&w->lock);
    if (p)
        return TN_OK;
    while (size < bytes)
        size *= 2;
    if (!(p = calloc(1, sizeof *p)))
        return tn_error(TN_ERR_MEMORY, "nccl: no memory for a transfer");
    if ((e = cudaHostAlloc((void **)&p->at, size, cudaHostAllocPortable))) {
        cudaGetLastError();
        free(p);
        return tn_error(TN_ERR_MEMORY,
                        "nccl: no %.1f MiB of page-locked memory for a transfer of the host's (%s)",
                        (double)size / 1048576, cudaGetErrorName(e));
    }
    p->bytes = size;
    *out = p;
    return TN_OK;
}

/* Room for n transfers; kept with the request. */
static tn_status make_room(struct tn_request *r, uint32_t n)
{
    struct tn_transfer *t;
    struct tn_back *b;

    if (n <= r->room)
        return TN_OK;
    t = realloc(r->staged, n * sizeof *t);
    r->staged = t ? t : r->staged;
    b = t ? realloc(r->back, n * sizeof *b) : NULL;
    r->back = b ? b : r->back;
    if (!b)
        return tn_error(TN_ERR_MEMORY, "nccl: no memory for a list of %u transfers", n);
    r->room = n;
    return TN_OK;
}

tn_status tn_nccl_stage(struct tn_request *r, const struct tn_transfer *t, uint32_t n)
{
    uint64_t bytes = 0, at = 0, from, to;
    tn_status s = make_room(r, n);

    for (uint32_t i = 0; i < n; i++) {
        tn_transfer_sizes(r->comm, &t[i], &from, &to);
        bytes += aligned(from * tn_nccl_width(t[i].dtype)) + aligned(to * tn_nccl_width(t[i].dtype));
    }
    if (s || (s = take(r->comm->world, bytes, &r->host)))
        return s;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t width = tn_nccl_width(t[i].dtype);

        tn_transfer_sizes(r->comm, &t[i], &from, &to);
        r->staged[i] = t[i];
        r->staged[i].from = r->host->at + at;
        if (from)
            memcpy(r->host->at + at, t[i].from, from * width);
        at += aligned(from * width);
        r->staged[i].to = to ? r->host->at + at : NULL;
        r->back[i] = (struct tn_back){t[i].to, r->host->at + at, to * width};
        at += aligned(to * width);
    }
    r->n_back = n;
    return TN_OK;
}

/* copy: all is done, and the results are the caller's. */
void tn_nccl_unstage(struct tn_request *r, int copy)
{
    struct tn_world *w = r->comm->world;

    for (uint32_t i = 0; copy && i < r->n_back; i++)
        if (r->back[i].bytes)
            memcpy(r->back[i].to, r->back[i].from, r->back[i].bytes);
    r->n_back = 0;
    if (!r->host)
        return;
    pthread_mutex_lock(&w->lock);
    r->host->next = w->pinned;
    w->pinned = r->host;
    pthread_mutex_unlock(&w->lock);
    r->host = NULL;
}

void tn_nccl_pinned_free(struct tn_world *w)
{
    while (w->pinned) {
        struct tn_pinned *next = w->pinned->next;

        cudaFreeHost(w->pinned->at);
        free(w->pinned);
        w->pinned = next;
    }
}
