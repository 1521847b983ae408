/* device.c - host memory as a device.
 *
 * Everything happens inside the call, so a queue has nothing to remember, an event has always happened and
 * sync never waits. The handles are only there to be told apart. */
#define _DEFAULT_SOURCE                          /* madvise */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tenon/device.h>
#include "ref.h"

#define ALIGNMENT 64                             /* a cache line, and the widest vector */
#define PIECE (UINT64_C(1) << 21)                /* a huge page of most systems */

struct tn_device {
    uint32_t local_rank;
};
struct tn_queue {
    struct tn_device *device;
};
struct tn_event {
    struct tn_device *device;
};

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "host memory");
    return TN_OK;
}

static tn_status open_device(uint32_t local_rank, struct tn_device **out)
{
    if (!(*out = malloc(sizeof **out)))
        return tn_error(TN_ERR_MEMORY, "cpu: no memory for a device");
    (*out)->local_rank = local_rank;
    return TN_OK;
}

static void close_device(struct tn_device *d)
{
    free(d);
}

/* The rest of the line of a /proc file that begins with key; "" without one. */
static void read_line(const char *file, const char *key, char *out, size_t size)
{
    FILE *f = fopen(file, "r");
    char line[256];

    *out = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) {
            const char *text = line + strlen(key);

            text += strspn(text, " \t:");
            snprintf(out, size, "%.*s", (int)strcspn(text, "\n"), text);
            break;
        }
    if (f)
        fclose(f);
}

/* What the machine has and what a container allows, whichever is less. */
static void memory(uint64_t *available, uint64_t *total)
{
    char text[64];
    uint64_t limit, used;

    *total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    read_line("/proc/meminfo", "MemAvailable:", text, sizeof text);
    *available = *text ? strtoull(text, NULL, 10) * 1024 : *total;
    read_line("/sys/fs/cgroup/memory.max", "", text, sizeof text);
    if (!(limit = strtoull(text, NULL, 10)) || limit >= *total)
        return;
    read_line("/sys/fs/cgroup/memory.current", "", text, sizeof text);
    used = strtoull(text, NULL, 10);
    *total = limit;
    if (used < limit && limit - used < *available)
        *available = limit - used;
}

static tn_status info(struct tn_device *d, struct tn_device_info *out)
{
    struct tn_device_info all = {
        .struct_size = out->struct_size,
        .dtypes = 1u << TN_F32 | 1u << TN_BF16 | 1u << TN_F16 | 1u << TN_I32 | 1u << TN_F64,
        .alignment = ALIGNMENT,
        .host_access = 1,
        .queues = 1,
    };

    (void)d;
    memory(&all.memory_free, &all.memory_total);
    read_line("/proc/cpuinfo", "model name", all.name, sizeof all.name);
    if (!*all.name)
        snprintf(all.name, sizeof all.name, "cpu");
    memcpy(out, &all, out->struct_size < sizeof all ? out->struct_size : sizeof all);
    return TN_OK;
}

/* Large blocks lie on huge pages where the system has some to give: then a run starts with a few hundred page
 * faults instead of hundreds of thousands. */
static tn_status alloc(struct tn_device *d, uint64_t bytes, void **out)
{
    const uint64_t unit = bytes >= 4 * PIECE ? PIECE : ALIGNMENT, whole = (bytes + unit - 1) / unit * unit;

    (void)d;
    *out = whole < bytes ? NULL : aligned_alloc(unit, whole ? whole : unit);
#ifdef MADV_HUGEPAGE
    if (*out && unit == PIECE)
        madvise(*out, whole / PIECE * PIECE, MADV_HUGEPAGE);
#endif
    return *out ? TN_OK
                : tn_error(TN_ERR_MEMORY, "cpu: no room for %.1f MiB; a smaller train.micro_batch needs less",
                           (double)bytes / 1048576);
}

static void free_memory(struct tn_device *d, void *p)
{
    (void)d;
    free(p);
}

static tn_status queue(struct tn_device *d, struct tn_queue **out)
{
    if (!(*out = malloc(sizeof **out)))
        return tn_error(TN_ERR_MEMORY, "cpu: no memory for a queue");
    (*out)->device = d;
    return TN_OK;
}

static void queue_close(struct tn_queue *q)
{
    free(q);
}

static tn_status copy(struct tn_queue *q, void *to, const void *from, uint64_t bytes, uint32_t way)
{
    (void)q, (void)way;
    if (bytes)
        memcpy(to, from, bytes);
    return TN_OK;
}

struct filling {
    char *to;
    uint32_t byte;
    uint64_t bytes;
};

static void fill_pieces(void *arg, int64_t lo, int64_t hi)
{
    const struct filling *f = arg;
    uint64_t from = (uint64_t)lo * PIECE, end = (uint64_t)hi * PIECE;

    memset(f->to + from, (int)f->byte, (end < f->bytes ? end : f->bytes) - from);
}

/* The first touch of a page costs more than the bytes in it, so the threads share it. */
static tn_status fill(struct tn_queue *q, void *to, uint32_t byte, uint64_t bytes)
{
    struct filling f = {to, byte, bytes};

    (void)q;
    if (bytes)
        tn_host->parallel((int64_t)((bytes + PIECE - 1) / PIECE), 1, fill_pieces, &f);
    return TN_OK;
}

static tn_status event(struct tn_device *d, struct tn_event **out)
{
    if (!(*out = malloc(sizeof **out)))
        return tn_error(TN_ERR_MEMORY, "cpu: no memory for an event");
    (*out)->device = d;
    return TN_OK;
}

static void event_close(struct tn_event *e)
{
    free(e);
}

static tn_status record(struct tn_event *e, struct tn_queue *q)
{
    (void)e, (void)q;
    return TN_OK;
}

static tn_status wait_event(struct tn_queue *q, struct tn_event *e)
{
    (void)q, (void)e;
    return TN_OK;
}

static tn_status sync_queue(struct tn_queue *q, double seconds)
{
    (void)q, (void)seconds;
    return TN_OK;
}

const struct tn_device_api tn_ref_device = {
    .struct_size = sizeof tn_ref_device,
    .kind = "cpu",
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
};
