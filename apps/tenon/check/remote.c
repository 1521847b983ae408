/* remote.c - the buffers of a bench on a device whose memory the host cannot see.
 *
 * Each buffer lies between two zones. All three are written before a launch and read back after it, through the
 * device's copies: the middle goes to the host's copy, where it is inspected as if the kernel had run there, and the
 * zones must be as they were. */
#include <stdlib.h>
#include "bench_inside.h"

#define UNIFORM_BYTES 64u

struct part {
    char *host;                                  /* NULL: nothing, zones only */
    size_t bytes;
    int writable;
};

static struct part part_of(struct tn_bench *b, const struct tn_guarded *work, uint32_t i)
{
    if (i < b->n)
        return (struct part){b->x[i].memory.data, b->x[i].memory.bytes, 1};
    if (i == b->n)
        return (struct part){work->data, work->bytes, 1};
    return (struct part){b->p.program ? (char *)b->uniform : (char *)b->key,
                         b->p.program ? UNIFORM_BYTES : sizeof b->key, 0};
}

static tn_status trouble(struct tn_bench *b, const char *what)
{
    snprintf(b->error, sizeof b->error, "the device: %s: %s", what, tn_bench_said());
    return TN_ERR;
}

char *tn_remote_data(const struct tn_bench *b, uint32_t i)
{
    return (char *)b->block[i] + ZONE;
}

tn_status tn_remote_open(struct tn_bench *b, const struct tn_guarded *work)
{
    for (uint32_t i = 0; i < b->n + 2; i++)
        if (b->device->api->alloc(b->device->device, part_of(b, work, i).bytes + 2 * ZONE, &b->block[i]) < 0)
            return trouble(b, "alloc");
    return TN_OK;
}

void tn_remote_close(struct tn_bench *b)
{
    for (uint32_t i = 0; i < b->n + 2; i++)
        if (b->block[i])
            b->device->api->free(b->device->device, b->block[i]);
    memset(b->block, 0, sizeof b->block);
}

static tn_status move_all(struct tn_bench *b, const struct tn_guarded *work, int to_device, int *damaged)
{
    const struct tn_device_api *api = b->device->api;

    *damaged = 0;
    for (uint32_t i = 0; i < b->n + 2; i++) {
        const struct part p = part_of(b, work, i);
        const size_t all = p.bytes + 2 * ZONE;
        char *image = malloc(all);
        tn_status s;

        memset(image, POISON, all);
        if (to_device && p.bytes)
            memcpy(image + ZONE, p.host, p.bytes);
        s = to_device ? api->copy(b->device->queue, b->block[i], image, all, 1)
                      : api->copy(b->device->queue, image, b->block[i], all, 2);
        s = s < 0 ? s : api->sync(b->device->queue, b->device->seconds);
        if (s == TN_OK && !to_device) {
            for (size_t k = 0; k < ZONE && !*damaged; k++)
                *damaged = image[k] != (char)POISON                    ? -1 - (int)i
                           : image[all - 1 - k] != (char)POISON        ? 1 + (int)i
                                                                       : 0;
            if (p.writable && p.bytes)
                memcpy(p.host, image + ZONE, p.bytes);
            else if (memcmp(image + ZONE, p.host, p.bytes))
                *damaged = 1 + (int)i;
        }
        free(image);
        if (s < 0)
            return trouble(b, to_device ? "copy to it" : "copy from it");
    }
    return TN_OK;
}

tn_status tn_remote_push(struct tn_bench *b, const struct tn_guarded *work)
{
    int damaged;

    return move_all(b, work, 1, &damaged);
}

tn_status tn_remote_pull(struct tn_bench *b, const struct tn_guarded *work)
{
    int damaged;
    tn_status s = move_all(b, work, 0, &damaged);
    const uint32_t i = (uint32_t)abs(damaged) - 1;
    const char *side = damaged < 0 ? "in front of" : "behind";

    if (s < 0 || !damaged)
        return s;
    if (i < b->n)
        snprintf(b->error, sizeof b->error, "wrote %s %s %u", side, i < b->p.n_in ? "input" : "output",
                 i < b->p.n_in ? i : i - b->p.n_in);
    else
        snprintf(b->error, sizeof b->error, "wrote %s its %s", side, i == b->n ? "workspace" : "uniforms");
    return TN_ERR;
}
