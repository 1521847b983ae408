/* border.c - see border.h. A table's functions know nothing of who they belong to, so each plugin has a number and
 * functions made for it. What happens in a step costs one comparison more. */
#include "plugin/border.h"

#include <tenon/bootstrap.h>
#include <tenon/comm.h>
#include <tenon/device.h>

#include "base/plain.h"
#include "base/status.h"

#define MOST 8
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* What makes something: a success has it, an error has not. */
static tn_status made(const char *path, const char *function, tn_status s, void **out)
{
    s = tn_status_of(path, function, s);
    if (s == TN_OK && !*out)
        return tn_error(TN_ERR, "%.300s: %s succeeds and gives nothing", path, function);
    if (s < 0)
        *out = NULL;
    return s;
}

/* All but what happens in steps: an older error is not this one's reason. */
#define MADE(OF, I, F, ...) (tn_error_clear(), made(OF[I].path, #F, OF[I].real.F(__VA_ARGS__), (void **)out))
#define FRESH(OF, I, F, ...) (tn_error_clear(), tn_status_of(OF[I].path, #F, OF[I].real.F(__VA_ARGS__)))
#define QUICK(OF, I, F, ...) tn_status_of(OF[I].path, #F, OF[I].real.F(__VA_ARGS__))

/* --- devices */

static struct {
    const char *path;
    struct tn_device_api real;
} device[MOST];
static uint32_t devices;

static void tidy(struct tn_device_info *info, uint32_t size)
{
    info->struct_size = size;
    if (TN_HAS(info, name))
        tn_plain_field(info->name, sizeof info->name);
}

#define DEVICE(I)                                                                                                    \
    static tn_status device_open_##I(uint32_t local_rank, struct tn_device **out)                                    \
    {                                                                                                                \
        return MADE(device, I, open, local_rank, out);                                                               \
    }                                                                                                                \
    static tn_status device_info_##I(struct tn_device *d, struct tn_device_info *out)                                \
    {                                                                                                                \
        const uint32_t size = out->struct_size;                                                                      \
        const tn_status s = FRESH(device, I, info, d, out);                                                          \
                                                                                                                     \
        return tidy(out, size), s;                                                                                   \
    }                                                                                                                \
    static tn_status device_alloc_##I(struct tn_device *d, uint64_t bytes, void **out)                               \
    {                                                                                                                \
        return MADE(device, I, alloc, d, bytes, out);                                                                \
    }                                                                                                                \
    static tn_status device_host_alloc_##I(struct tn_device *d, uint64_t bytes, void **out)                          \
    {                                                                                                                \
        return MADE(device, I, host_alloc, d, bytes, out);                                                           \
    }                                                                                                                \
    static tn_status device_queue_##I(struct tn_device *d, struct tn_queue **out)                                    \
    {                                                                                                                \
        return MADE(device, I, queue, d, out);                                                                       \
    }                                                                                                                \
    static tn_status device_event_##I(struct tn_device *d, struct tn_event **out)                                    \
    {                                                                                                                \
        return MADE(device, I, event, d, out);                                                                       \
    }                                                                                                                \
    static tn_status device_copy_##I(struct tn_queue *q, void *to, const void *from, uint64_t bytes, uint32_t way)   \
    {                                                                                                                \
        return QUICK(device, I, copy, q, to, from, bytes, way);                                                      \
    }                                                                                                                \
    static tn_status device_fill_##I(struct tn_queue *q, void *to, uint32_t byte, uint64_t bytes)                    \
    {                                                                                                                \
        return QUICK(device, I, fill, q, to, byte, bytes);                                                           \
    }                                                                                                                \
    static tn_status device_record_##I(struct tn_event *e, struct tn_queue *q)                                       \
    {                                                                                                                \
        return QUICK(device, I, record, e, q);                                                                       \
    }                                                                                                                \
    static tn_status device_wait_##I(struct tn_queue *q, struct tn_event *e)                                         \
    {                                                                                                                \
        return QUICK(device, I, wait, q, e);                                                                         \
    }                                                                                                                \
    static tn_status device_sync_##I(struct tn_queue *q, double seconds)                                             \
    {                                                                                                                \
        return QUICK(device, I, sync, q, seconds);                                                                   \
    }
EACH(DEVICE)

#define DEVICE_ROW(I)                                                                                                \
    {.open = device_open_##I, .info = device_info_##I, .alloc = device_alloc_##I, .host_alloc = device_host_alloc_##I, \
     .queue = device_queue_##I, .event = device_event_##I, .copy = device_copy_##I, .fill = device_fill_##I,         \
     .record = device_record_##I, .wait = device_wait_##I, .sync = device_sync_##I},
static const struct tn_device_api device_row[] = {EACH(DEVICE_ROW)};

static void put_device(const char *path, struct tn_device_api *t)
{
    const struct tn_device_api *row = &device_row[devices];

    device[devices].path = path, device[devices++].real = *t;
    t->open = row->open, t->info = row->info, t->alloc = row->alloc, t->queue = row->queue, t->event = row->event;
    t->copy = row->copy, t->fill = row->fill, t->record = row->record, t->wait = row->wait, t->sync = row->sync;
    t->host_alloc = t->host_alloc ? row->host_alloc : NULL;
}

/* --- communicators */

static struct {
    const char *path;
    struct tn_comm_api real;
} comm[MOST];
static uint32_t comms;

/* Seconds 0 is a question, and "not yet" an answer to it. */
static tn_status waited(const char *path, double seconds, tn_status s)
{
    return s == TN_DECLINED && seconds <= 0 ? s : tn_status_of(path, "wait", s);
}

#define COMM(I)                                                                                                      \
    static tn_status comm_open_##I(uint32_t rank, uint32_t size, double seconds, struct tn_comm **out)               \
    {                                                                                                                \
        return MADE(comm, I, open, rank, size, seconds, out);                                                        \
    }                                                                                                                \
    static tn_status comm_group_##I(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)  \
    {                                                                                                                \
        return MADE(comm, I, group, world, ranks, n, out);                                                           \
    }                                                                                                                \
    static tn_status comm_start_##I(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,        \
                                    struct tn_request **out)                                                         \
    {                                                                                                                \
        return made(comm[I].path, "start", comm[I].real.start(c, t, n, stream, out), (void **)out);                  \
    }                                                                                                                \
    static tn_status comm_wait_##I(struct tn_request *r, double seconds)                                             \
    {                                                                                                                \
        return waited(comm[I].path, seconds, comm[I].real.wait(r, seconds));                                         \
    }
EACH(COMM)

#define COMM_ROW(I) {.open = comm_open_##I, .group = comm_group_##I, .start = comm_start_##I, .wait = comm_wait_##I},
static const struct tn_comm_api comm_row[] = {EACH(COMM_ROW)};

static void put_comm(const char *path, struct tn_comm_api *t)
{
    const struct tn_comm_api *row = &comm_row[comms];

    comm[comms].path = path, comm[comms++].real = *t;
    t->open = row->open, t->group = row->group, t->start = row->start, t->wait = row->wait;
}

/* --- bootstraps */

static struct {
    const char *path;
    struct tn_bootstrap real;
} bootstrap[MOST];
static uint32_t bootstraps;

#define BOOTSTRAP(I)                                                                                                 \
    static tn_status bootstrap_locate_##I(struct tn_place *out)                                                      \
    {                                                                                                                \
        return FRESH(bootstrap, I, locate, out);                                                                     \
    }                                                                                                                \
    static tn_status bootstrap_publish_##I(const char *address, char *out, uint64_t out_size, double seconds)        \
    {                                                                                                                \
        return FRESH(bootstrap, I, publish, address, out, out_size, seconds);                                        \
    }
EACH(BOOTSTRAP)

#define BOOTSTRAP_ROW(I) {.locate = bootstrap_locate_##I, .publish = bootstrap_publish_##I},
static const struct tn_bootstrap bootstrap_row[] = {EACH(BOOTSTRAP_ROW)};

static void put_bootstrap(const char *path, struct tn_bootstrap *t)
{
    const struct tn_bootstrap *row = &bootstrap_row[bootstraps];

    bootstrap[bootstraps].path = path, bootstrap[bootstraps++].real = *t;
    t->locate = row->locate;
    t->publish = t->publish ? row->publish : NULL;
}

/* --- all of a plugin */

void tn_border_put(struct tn_loaded *p)
{
    for (uint32_t i = 0; i < p->tables; i++) {
        const char *id = p->table[i].type->id;

        if (!strcmp(id, TN_DEVICE_ID) && devices < MOST)
            put_device(p->path, p->table[i].table);
        if (!strcmp(id, TN_COMM_ID) && comms < MOST)
            put_comm(p->path, p->table[i].table);
        if (!strcmp(id, TN_BOOTSTRAP_ID) && bootstraps < MOST)
            put_bootstrap(p->path, p->table[i].table);
    }
}
