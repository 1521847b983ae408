/* stage.c - see stage.h. */
#include "run/stage.h"
#include <stdlib.h>

#define SMALLEST 4096u                           /* bytes of a block */

struct block {
    struct block *next;
    void *at;
    uint64_t bytes;
    uint32_t taken;
};

struct tn_stage {
    const struct tn_device_api *api;
    struct tn_device *device;
    struct block *first;
    uint64_t bytes;
};

struct tn_stage *tn_stage_new(const struct tn_device_api *api, struct tn_device *device)
{
    struct tn_stage *s = calloc(1, sizeof *s);

    if (s)
        s->api = api, s->device = device;
    return s;
}

static int is_locked(const struct tn_stage *s)
{
    return TN_HAS(s->api, host_free) && s->api->host_alloc && s->api->host_free;
}

void tn_stage_free(struct tn_stage *s)
{
    if (!s)
        return;
    for (struct block *b = s->first, *next; b; b = next) {
        next = b->next;
        if (is_locked(s))
            s->api->host_free(s->device, b->at);
        else
            free(b->at);
        free(b);
    }
    free(s);
}

/* Eighths of a power of two: at most an eighth is lost, and sizes that are nearly the same share blocks. */
static uint64_t rounded(uint64_t bytes)
{
    uint64_t unit = SMALLEST;

    while (unit * 16 <= bytes)
        unit *= 2;
    return (bytes + unit - 1) / unit * unit;
}

static tn_status grow(struct tn_stage *s, uint64_t bytes, struct block **out)
{
    struct block *b = calloc(1, sizeof *b);
    tn_status status = TN_OK;

    if (b && is_locked(s))
        status = s->api->host_alloc(s->device, bytes, &b->at);
    else if (b)
        b->at = aligned_alloc(64, bytes);
    if (!b || (!status && !b->at))
        status = tn_error(TN_ERR_MEMORY, "no memory on the host for %llu bytes that go between device and communicator",
                          (unsigned long long)bytes);
    if (status) {
        free(b);
        return status;
    }
    b->bytes = bytes, b->next = s->first;
    s->first = b;
    s->bytes += bytes;
    *out = b;
    return TN_OK;
}

tn_status tn_stage_take(struct tn_stage *s, uint64_t bytes, void **out)
{
    uint64_t size = rounded(bytes);
    struct block *b = s->first;
    tn_status status = TN_OK;

    *out = NULL;
    while (b && (b->taken || b->bytes != size))
        b = b->next;
    if (!b)
        status = grow(s, size, &b);
    if (status)
        return status;
    b->taken = 1;
    *out = b->at;
    return TN_OK;
}

void tn_stage_give(struct tn_stage *s, void *block)
{
    for (struct block *b = s->first; b && block; b = b->next)
        if (b->at == block)
            b->taken = 0;
}

uint64_t tn_stage_bytes(const struct tn_stage *s)
{
    return s ? s->bytes : 0;
}
