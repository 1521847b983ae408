/* rules_device.c - devices: opened, and memory and queues taken, on the main thread and not during an update. */
#include "plugin/rules_own.h"

static struct {
    const char *path;
    struct tn_device_api real;
} devices[TN_RULES_MOST];
static uint32_t n_devices;

#define DEVICE(I)                                                                                                    \
    static tn_status device_open_##I(uint32_t local_rank, struct tn_device **out)                                    \
    {                                                                                                                \
        tn_rule_before_steps(devices[I].path, "open");                                                                  \
        tn_error_clear();                                                                                            \
        tn_status s = devices[I].real.open(local_rank, out);                                                         \
        return tn_rule_says(devices[I].path, "open", s), s;                                                              \
    }                                                                                                                \
    static tn_status device_alloc_##I(struct tn_device *d, uint64_t bytes, void **out)                               \
    {                                                                                                                \
        tn_rule_before_steps(devices[I].path, "alloc");                                                                 \
        tn_error_clear();                                                                                            \
        tn_status s = devices[I].real.alloc(d, bytes, out);                                                          \
        return tn_rule_says(devices[I].path, "alloc", s), s;                                                             \
    }                                                                                                                \
    static tn_status device_queue_##I(struct tn_device *d, struct tn_queue **out)                                    \
    {                                                                                                                \
        tn_rule_before_steps(devices[I].path, "queue");                                                                 \
        return devices[I].real.queue(d, out);                                                                        \
    }                                                                                                                \
    static tn_status device_sync_##I(struct tn_queue *q, double seconds)                                             \
    {                                                                                                                \
        tn_error_clear();                                                                                            \
        tn_status s = devices[I].real.sync(q, seconds);                                                              \
        return tn_rule_says(devices[I].path, "sync", s), s;                                                              \
    }
EACH(DEVICE)
#define NAME_OPEN(I) device_open_##I,
#define NAME_ALLOC(I) device_alloc_##I,
#define NAME_QUEUE(I) device_queue_##I,
#define NAME_SYNC(I) device_sync_##I,
static tn_status (*const opens[])(uint32_t local_rank, struct tn_device **out) = {EACH(NAME_OPEN)};
static tn_status (*const allocs[])(struct tn_device *d, uint64_t bytes, void **out) = {EACH(NAME_ALLOC)};
static tn_status (*const queues[])(struct tn_device *d, struct tn_queue **out) = {EACH(NAME_QUEUE)};
static tn_status (*const syncs[])(struct tn_queue *q, double seconds) = {EACH(NAME_SYNC)};

void tn_rules_device(const char *path, struct tn_device_api *t)
{
    const uint32_t i = n_devices;

    if (i == TN_RULES_MOST)
        return;
    devices[i].path = path, devices[i].real = *t;
    t->open = opens[i], t->alloc = allocs[i], t->queue = queues[i], t->sync = syncs[i];
    n_devices++;
}
