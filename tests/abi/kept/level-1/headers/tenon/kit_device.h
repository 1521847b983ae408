/* kit_device.h - for authors: host memory as a device, of whatever kind.
 *
 *     static const struct tn_device_api device = TN_KIT_DEVICE("mychip", tn_kit_device_probe);
 *
 * is a whole device whose memory is the host's. Everything happens inside the call, so a queue has nothing to
 * remember, an event has always happened and sync never waits; the handles are only there to be told apart. A
 * device of another sort begins as a table that names some of these functions and some of its own.
 *
 * Inline code over the public types, no part of the ABI: a plugin that uses it carries its own copy, and struct
 * tn_device, tn_queue and tn_event are defined here. One file of the plugin includes it. Threads, states and errors
 * of each function are those of its member in device.h. */
#ifndef TENON_KIT_DEVICE_H
#define TENON_KIT_DEVICE_H
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tenon/device.h>
#include <tenon/kit_number.h>

#define TN_KIT_ALIGNMENT UINT64_C(64)            /* of memory: a cache line, and the widest vector */
#define TN_KIT_PIECE (UINT64_C(1) << 21)         /* a huge page of most systems */

/* The device, a queue, an event: nothing but what they belong to. */
struct tn_device {
    uint32_t local_rank;                         /* as it was opened with */
};
struct tn_queue {
    struct tn_device *device;                    /* borrowed */
};
struct tn_event {
    struct tn_device *device;                    /* borrowed */
};

/* Always here, and anything else of the kind is preferred: score 1. */
TN_KIT tn_status tn_kit_device_probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, (size_t)why_size, "host memory");
    return TN_OK;
}

/* What a handle is made of: owned, TN_ERR_MEMORY without room. */
TN_KIT tn_status tn_kit_device_handle(const char *what, size_t bytes, void **out)
{
    *out = calloc(1, bytes);
    return *out ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for %s", what);
}

/* Always the same: there is one host memory. */
TN_KIT tn_status tn_kit_device_open(uint32_t local_rank, struct tn_device **out)
{
    void *d;
    tn_status s = tn_kit_device_handle("a device", sizeof **out, &d);

    *out = (struct tn_device *)d;
    if (*out)
        (*out)->local_rank = local_rank;
    return s;
}

/* Frees the handle; NULL: nothing. */
TN_KIT void tn_kit_device_close(struct tn_device *d)
{
    free(d);
}

/* The rest of the line of a /proc file that begins with key; "" without one. */
TN_KIT void tn_kit_device_line(const char *file, const char *key, char *out, size_t size)
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

/* Bytes that the machine has and a container allows, whichever is less. */
TN_KIT void tn_kit_device_memory(uint64_t *available, uint64_t *total)
{
    char text[64];
    uint64_t limit, used;

    *total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    tn_kit_device_line("/proc/meminfo", "MemAvailable:", text, sizeof text);
    *available = *text ? strtoull(text, NULL, 10) * 1024 : *total;
    tn_kit_device_line("/sys/fs/cgroup/memory.max", "", text, sizeof text);
    if (!(limit = strtoull(text, NULL, 10)) || limit >= *total)
        return;
    tn_kit_device_line("/sys/fs/cgroup/memory.current", "", text, sizeof text);
    used = strtoull(text, NULL, 10);
    *total = limit;
    if (used < limit && limit - used < *available)
        *available = limit - used;
}

/* Memory of the machine or the container, the name of its processor. */
TN_KIT tn_status tn_kit_device_info(struct tn_device *d, struct tn_device_info *out)
{
    struct tn_device_info all;

    (void)d;
    memset(&all, 0, sizeof all);
    all.struct_size = out->struct_size;
    all.dtypes = 1u << TN_F32 | 1u << TN_BF16 | 1u << TN_F16 | 1u << TN_I32 | 1u << TN_F64;
    all.alignment = TN_KIT_ALIGNMENT;
    all.host_access = 1;
    all.queues = 1;
    tn_kit_device_memory(&all.memory_free, &all.memory_total);
    tn_kit_device_line("/proc/cpuinfo", "model name", all.name, sizeof all.name);
    if (!*all.name)
        snprintf(all.name, sizeof all.name, "host memory");
    memcpy(out, &all, out->struct_size < sizeof all ? out->struct_size : sizeof all);
    return TN_OK;
}

/* Large blocks lie on huge pages where the system has some to give: then a run starts with a few hundred page
 * faults instead of hundreds of thousands. */
TN_KIT tn_status tn_kit_device_alloc(struct tn_device *d, uint64_t bytes, void **out)
{
    const uint64_t unit = bytes >= 4 * TN_KIT_PIECE ? TN_KIT_PIECE : TN_KIT_ALIGNMENT;
    const uint64_t whole = (bytes + unit - 1) / unit * unit;

    (void)d;
    *out = whole < bytes ? NULL : aligned_alloc((size_t)unit, (size_t)(whole ? whole : unit));
#ifdef MADV_HUGEPAGE
    if (*out && unit == TN_KIT_PIECE)
        madvise(*out, (size_t)whole, MADV_HUGEPAGE);
#endif
    return *out ? TN_OK
                : tn_error(TN_ERR_MEMORY, "no room for %.1f MiB of host memory; a smaller train.micro_batch needs less",
                           (double)bytes / 1048576);
}

/* Frees what alloc gave; NULL: nothing. */
TN_KIT void tn_kit_device_free(struct tn_device *d, void *p)
{
    (void)d;
    free(p);
}

/* A handle: what is put on it has happened when the call returns. */
TN_KIT tn_status tn_kit_device_queue(struct tn_device *d, struct tn_queue **out)
{
    void *q;
    tn_status s = tn_kit_device_handle("a queue", sizeof **out, &q);

    *out = (struct tn_queue *)q;
    if (*out)
        (*out)->device = d;
    return s;
}

/* Frees the handle; NULL: nothing. */
TN_KIT void tn_kit_device_queue_close(struct tn_queue *q)
{
    free(q);
}

/* Done when it returns, whichever way. */
TN_KIT tn_status tn_kit_device_copy(struct tn_queue *q, void *to, const void *from, uint64_t bytes, uint32_t way)
{
    (void)q, (void)way;
    if (bytes)
        memcpy(to, from, (size_t)bytes);
    return TN_OK;
}

/* A fill, for the threads that share it: bytes bytes from to on get the value byte. */
struct tn_kit_filling {
    char *to;
    uint64_t bytes;
    uint32_t byte, reserved0;
};

/* The pieces lo..hi-1 of a fill: what a thread does. */
TN_KIT void tn_kit_device_fill_pieces(void *arg, int64_t lo, int64_t hi)
{
    const struct tn_kit_filling *f = (const struct tn_kit_filling *)arg;
    const uint64_t from = (uint64_t)lo * TN_KIT_PIECE, end = (uint64_t)hi * TN_KIT_PIECE;

    memset(f->to + from, (int)f->byte, (size_t)((end < f->bytes ? end : f->bytes) - from));
}

/* The first touch of a page costs more than the bytes in it, so the host's threads share it. */
TN_KIT tn_status tn_kit_device_fill(struct tn_queue *q, void *to, uint32_t byte, uint64_t bytes)
{
    struct tn_kit_filling f = {(char *)to, bytes, byte, 0};

    (void)q;
    if (bytes)
        tn_host->parallel((int64_t)((bytes + TN_KIT_PIECE - 1) / TN_KIT_PIECE), 1, tn_kit_device_fill_pieces, &f);
    return TN_OK;
}

/* A handle: it has always happened. */
TN_KIT tn_status tn_kit_device_event(struct tn_device *d, struct tn_event **out)
{
    void *e;
    tn_status s = tn_kit_device_handle("an event", sizeof **out, &e);

    *out = (struct tn_event *)e;
    if (*out)
        (*out)->device = d;
    return s;
}

/* Frees the handle; NULL: nothing. */
TN_KIT void tn_kit_device_event_close(struct tn_event *e)
{
    free(e);
}

/* Nothing to do. */
TN_KIT tn_status tn_kit_device_record(struct tn_event *e, struct tn_queue *q)
{
    (void)e, (void)q;
    return TN_OK;
}

/* Nothing to wait for. */
TN_KIT tn_status tn_kit_device_wait(struct tn_queue *q, struct tn_event *e)
{
    (void)q, (void)e;
    return TN_OK;
}

/* Nothing to wait for. */
TN_KIT tn_status tn_kit_device_sync(struct tn_queue *q, double seconds)
{
    (void)q, (void)seconds;
    return TN_OK;
}

/* The table: a kind of device and who says that it is here. */
#define TN_KIT_DEVICE(KIND, PROBE)                                                                           \
    {                                                                                                        \
        .struct_size = sizeof(struct tn_device_api), .reserved0 = 0, .kind = KIND, .probe = PROBE,           \
        .open = tn_kit_device_open, .close = tn_kit_device_close, .info = tn_kit_device_info,                \
        .alloc = tn_kit_device_alloc, .free = tn_kit_device_free, .queue = tn_kit_device_queue,              \
        .queue_close = tn_kit_device_queue_close, .copy = tn_kit_device_copy, .fill = tn_kit_device_fill,    \
        .event = tn_kit_device_event, .event_close = tn_kit_device_event_close,                              \
        .record = tn_kit_device_record, .wait = tn_kit_device_wait, .sync = tn_kit_device_sync,              \
        .host_alloc = NULL, .host_free = NULL, .native = NULL                                                \
    }
#endif
