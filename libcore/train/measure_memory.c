/* measure_memory.c - how fast large arrays are read and written: see measure.h.
 *
 * On a device whose memory the host sees, all threads of the process walk three arrays, too large for any
 * cache: a = b + s c, 12 bytes for each element. Elsewhere the device copies, 2 bytes for each byte. The best
 * of a few rounds: this is a limit that others are held against. */
#include <stdlib.h>
#include <unistd.h>
#include "base/status.h"
#include "train/engine.h"
#include "train/measure.h"

#define ROUNDS 6
#define LEAST_BYTES (INT64_C(32) << 20) /* of an array */
#define MOST_BYTES (INT64_C(192) << 20)
#define NO_LIMIT 1e9

struct triad {
    float *a;
    const float *b, *c;
};

static void triad(void *arg, int64_t lo, int64_t hi)
{
    const struct triad *t = arg;
    float *restrict a = t->a;
    const float *restrict b = t->b, *restrict c = t->c;

    for (int64_t i = lo; i < hi; i++)
        a[i] = b[i] + 0.5f * c[i];
}

/* Three arrays are four times the largest cache. */
static int64_t array_bytes(void)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    int64_t bytes = cache > 0 ? cache / 3 * 4 : 0;

    bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes > MOST_BYTES ? MOST_BYTES : bytes;
    return bytes / 4096 * 4096;
}

static double best_triad(char *block, int64_t bytes)
{
    struct triad t = {(float *)block, (const float *)(block + bytes), (const float *)(block + 2 * bytes)};
    double best = 0;

    for (int i = 0; i < ROUNDS; i++) {
        double start = tn_measure_now(), rate;
        tn_host->parallel(bytes / 4, 1 << 16, triad, &t);
        rate = 3 * (double)bytes / (tn_measure_now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static tn_status best_copy(const struct tn_device_api *api, struct tn_device *device, char *block,
                           int64_t bytes, double *best)
{
    struct tn_queue *queue;
    tn_status s = api->queue(device, &queue);

    if (s)
        return s;
    for (int i = 0; i < ROUNDS && !s; i++) {
        double start = tn_measure_now(), rate;
        s = api->copy(queue, block, block + bytes, (uint64_t)bytes, 0);
        if (!s)
            s = api->sync(queue, NO_LIMIT);
        rate = 2 * (double)bytes / (tn_measure_now() - start);
        *best = rate > *best ? rate : *best;
    }
    api->queue_close(queue);
    return s;
}

tn_status tn_measure_memory(struct tn_session *s, double *rate)
{
    const struct tn_engine *e = tn_session_engine(s);
    int64_t bytes = array_bytes();
    void *block;
    tn_status status = e->device_api->alloc(e->device, 3 * (uint64_t)bytes, &block);

    *rate = 0;
    if (status)
        return status;
    if (e->info.host_access) {
        memset(block, 0, 3 * (size_t)bytes);
        *rate = best_triad(block, bytes);
    } else
        status = best_copy(e->device_api, e->device, block, bytes, rate);
    e->device_api->free(e->device, block);
    return status;
}
