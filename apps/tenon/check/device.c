/* device.c - a device by its own functions: what it says of itself, memory, copies, fills, leaks. */
#include <math.h>
#include <unistd.h>
#include "base/status.h"
#include "device_own.h"

#define PAGE 4096u

struct check_dev check_dev_open(struct check_run *r)
{
    struct tn_bench_device b;
    struct check_dev v = {.r = r, .info.struct_size = sizeof v.info};

    check_device(r, r->subject->claims.kind, &b);
    v.api = b.api, v.d = b.device, v.q = b.queue;
    check_must(r, v.api->info(v.d, &v.info) >= 0);
    return v;
}

void *check_dev_get(struct check_dev *v, uint64_t bytes)
{
    void *p = NULL;

    if (v->api->alloc(v->d, bytes, &p) < 0 || !p)
        check_fail(v->r, "alloc of %llu bytes: %s", (unsigned long long)bytes, check_said());
    return p;
}

void check_dev_copy(struct check_dev *v, struct tn_queue *q, void *to, const void *from, uint64_t bytes, uint32_t way)
{
    if (v->api->copy(q, to, from, bytes, way) < 0)
        check_fail(v->r, "copy of %llu bytes, way %u: %s", (unsigned long long)bytes, way, check_said());
}

void check_dev_settle(struct check_dev *v, struct tn_queue *q)
{
    if (v->api->sync(q, CHECK_SECONDS) != TN_OK)
        check_fail(v->r, "sync: %s", check_said());
}

void check_dev_fill(struct check_dev *v, struct tn_queue *q, void *to, uint32_t byte, uint64_t bytes)
{
    if (v->api->fill(q, to, byte, bytes) < 0)
        check_fail(v->r, "fill of %llu bytes: %s", (unsigned long long)bytes, check_said());
}

void check_dev_expect(struct check_dev *v, const void *at, const unsigned char *want, uint64_t bytes, const char *what)
{
    unsigned char *have = malloc(bytes + 1);

    check_dev_copy(v, v->q, have, at, bytes, 2);
    check_dev_settle(v, v->q);
    for (uint64_t i = 0; i < bytes; i++)
        if (have[i] != want[i])
            check_fail(v->r, "%s: byte %llu of %llu is %#x, should be %#x", what, (unsigned long long)i,
                       (unsigned long long)bytes, have[i], want[i]);
    free(have);
}

static void scramble(unsigned char *p, uint64_t n, uint32_t seed)
{
    for (uint64_t i = 0; i < n; i++, seed = seed * 1664525 + 1013904223)
        p[i] = (unsigned char)(seed >> 24);
}

/* --- what it says of itself */

static void info(struct check_run *r)
{
    struct check_dev v = check_dev_open(r);
    union {
        struct tn_device_info i;
        unsigned char byte[sizeof(struct tn_device_info) + 64];
    } u;
    const struct tn_device_info *i = &v.info;

    if (!i->alignment || i->alignment & (i->alignment - 1) || i->alignment > 1 << 20)
        check_fail(r, "info.alignment is %llu, which is no power of two up to a MiB", (unsigned long long)i->alignment);
    if (!(i->dtypes >> TN_F32 & 1) || !(i->dtypes >> TN_I32 & 1))
        check_fail(r, "info.dtypes is %#x: fp32 and int32 are needed by every model", i->dtypes);
    if (i->memory_free > i->memory_total)
        check_fail(r, "info has %llu bytes free of %llu", (unsigned long long)i->memory_free, (unsigned long long)i->memory_total);
    if (!i->memory_total)
        check_fail(r, "info.memory_total is 0: a plan could not tell what fits");
    check_must(r, memchr(i->name, 0, sizeof i->name) && *i->name);
    check_must(r, i->host_access <= 1);
    check_must(r, i->queues >= 1);
    check_must(r, i->peak_fp32 >= 0 && i->peak_low >= 0 && i->peak_memory >= 0 && isfinite(i->peak_fp32 + i->peak_low));
    memset(&u, 0xa5, sizeof u);                  /* an older host's struct is shorter */
    u.i.struct_size = offsetof(struct tn_device_info, peak_fp32);
    check_must(r, v.api->info(v.d, &u.i) >= 0);
    for (size_t k = offsetof(struct tn_device_info, peak_fp32); k < sizeof u; k++)
        if (u.byte[k] != 0xa5)
            check_fail(r, "info writes behind the struct_size that the host gave (byte %zu)", k);
}

/* --- memory */

static void alloc(struct check_run *r)
{
    static const uint64_t sizes[] = {1, 2, 3, 63, 64, 65, 1000, 4095, 4096, 4097, 65537, 1 << 20, (1 << 20) + 1, 16 << 20};
    enum { N = sizeof sizes / sizeof *sizes };
    struct check_dev v = check_dev_open(r);
    char *p[N];

    for (int i = 0; i < N; i++) {
        p[i] = check_dev_get(&v, sizes[i]);
        if ((uintptr_t)p[i] % v.info.alignment)
            check_fail(r, "alloc of %llu bytes gives %p, which is not aligned to %llu", (unsigned long long)sizes[i],
                       (void *)p[i], (unsigned long long)v.info.alignment);
        for (int k = 0; k < i; k++)
            if (p[i] < p[k] + sizes[k] && p[k] < p[i] + sizes[i])
                check_fail(r, "two pieces of memory overlap: %p of %llu bytes and %p of %llu", (void *)p[k],
                           (unsigned long long)sizes[k], (void *)p[i], (unsigned long long)sizes[i]);
        check_dev_fill(&v, v.q, p[i], (uint32_t)i + 1, sizes[i]);
    }
    for (int i = 0; i < N; i++) {
        unsigned char *want = malloc(sizes[i]);

        memset(want, i + 1, sizes[i]);
        check_dev_expect(&v, p[i], want, sizes[i], "after all were filled");
        free(want);
    }
    for (int i = 0; i < N; i += 2)
        v.api->free(v.d, p[i]);
    for (int i = 1; i < N; i += 2)
        v.api->free(v.d, p[i]);
    v.api->queue_close(v.q);
    v.api->close(v.d);
}

/* Too much is an error with a sentence, and not the end. */
static void too_much(struct check_run *r)
{
    static const uint64_t sizes[] = {UINT64_C(1) << 50, UINT64_C(1) << 62, UINT64_MAX - 4096, UINT64_MAX};
    struct check_dev v = check_dev_open(r);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *p = NULL;
        tn_status s;

        tn_error_clear();
        s = v.api->alloc(v.d, sizes[i], &p);
        if (s >= 0)
            check_fail(r, "alloc of %llu bytes succeeds", (unsigned long long)sizes[i]);
        if (s != TN_ERR_MEMORY)
            check_fail(r, "alloc of %llu bytes is status %d; TN_ERR_MEMORY (%d) says that there is too little", (unsigned long long)sizes[i],
                       (int)s, TN_ERR_MEMORY);
        if (!*tn_error_text())
            check_fail(r, "alloc of %llu bytes fails without a sentence", (unsigned long long)sizes[i]);
        v.api->free(v.d, check_dev_get(&v, 1000));
    }
}

static uint64_t resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long long size, rss = 0;

    if (!f || fscanf(f, "%llu %llu", &size, &rss) != 2)
        rss = 0;
    if (f)
        fclose(f);
    return rss * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Much more than could be lost unnoticed: opening and closing, memory, queues, events. */
static void leaks(struct check_run *r)
{
    enum { TURNS = 60, BYTES = 4 << 20, MOST = 64 << 20 };
    const struct tn_device_api *api = check_table(r, TN_DEVICE_ID);
    struct tn_device_info i[2] = {{.struct_size = sizeof i[0]}, {.struct_size = sizeof i[1]}};
    struct check_dev v = check_dev_open(r);
    uint64_t rss = 0;

    for (int turn = 0; turn < TURNS; turn++) {
        struct tn_queue *q = NULL;
        struct tn_event *e = NULL;
        struct tn_device *d = NULL;
        void *p;

        if (turn == 2)
            rss = resident(), check_must(r, api->info(v.d, &i[0]) >= 0);
        p = check_dev_get(&v, BYTES);
        check_dev_fill(&v, v.q, p, 1, BYTES);
        check_dev_settle(&v, v.q);
        v.api->free(v.d, p);
        check_must(r, api->queue(v.d, &q) >= 0 && api->event(v.d, &e) >= 0);
        check_must(r, api->record(e, q) >= 0 && api->sync(q, CHECK_SECONDS) == TN_OK);
        api->event_close(e), api->queue_close(q);
        if (turn % 10 == 0) {
            check_must(r, api->open(0, &d) >= 0);
            api->close(d);
        }
    }
    check_must(r, api->info(v.d, &i[1]) >= 0);
    if (resident() > rss + MOST)
        check_fail(r, "%d times %d MiB were taken and given back, and the process has grown by %llu MiB", TURNS, BYTES >> 20,
                   (unsigned long long)(resident() - rss) >> 20);
    if (!v.info.host_access && i[1].memory_free + MOST < i[0].memory_free)
        check_fail(r, "%d times %d MiB were taken and given back, and the device has %llu MiB less", TURNS, BYTES >> 20,
                   (unsigned long long)(i[0].memory_free - i[1].memory_free) >> 20);
}

/* --- copies and fills */

static void copies(struct check_run *r)
{
    static const uint64_t sizes[] = {0, 1, 3, 63, 64, 65, 4095, 4097, 100003, (1 << 20) + 5}, shifts[] = {0, 1, 7, 64};
    const uint64_t room = (2 << 20) + 2 * PAGE;
    struct check_dev v = check_dev_open(r);
    unsigned char *from = malloc(room), *want = malloc(room), *host = malloc(room);
    char *a = check_dev_get(&v, room), *b = check_dev_get(&v, room);

    scramble(from, room, 5);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof shifts / sizeof *shifts; k++) {
            const uint64_t n = sizes[i], at = PAGE + shifts[k], all = n + 2 * PAGE;

            memset(want, 0x11, room), memset(host, 0x33, room);
            check_dev_fill(&v, v.q, a, 0x11, all), check_dev_fill(&v, v.q, b, 0x11, all);
            check_dev_copy(&v, v.q, a + at, from + shifts[k], n, 1);
            memcpy(want + at, from + shifts[k], n);
            check_dev_settle(&v, v.q);
            check_dev_expect(&v, a, want, all, "host to device");
            check_dev_copy(&v, v.q, b + at, a + at, n, 0);
            check_dev_settle(&v, v.q);
            check_dev_expect(&v, b, want, all, "device to device");
            check_dev_copy(&v, v.q, host + at, b + at, n, 2);
            check_dev_settle(&v, v.q);
            if (memcmp(host + at, from + shifts[k], n) || host[at - 1] != 0x33 || host[at + n] != 0x33)
                check_fail(r, "device to host: %llu bytes from %llu on are not right", (unsigned long long)n, (unsigned long long)at);
        }
}

static void fills(struct check_run *r)
{
    static const uint64_t sizes[] = {0, 1, 2, 3, 5, 64, 1001, 65537, (2 << 20) + 3};
    static const uint32_t bytes[] = {0, 0xff, 0x5a};
    const uint64_t room = (3 << 20) + 2 * PAGE;
    struct check_dev v = check_dev_open(r);
    unsigned char *want = malloc(room);
    char *p = check_dev_get(&v, room);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < 3; k++) {
            const uint64_t at = PAGE + k;

            memset(want, 0x77, room);
            memset(want + at, (int)bytes[k], sizes[i]);
            check_dev_fill(&v, v.q, p, 0x77, sizes[i] + 2 * PAGE);
            check_dev_fill(&v, v.q, p + at, bytes[k], sizes[i]);
            check_dev_settle(&v, v.q);
            check_dev_expect(&v, p, want, sizes[i] + 2 * PAGE, "fill");
        }
}

/* What a copy to the device was given may be changed as soon as copy has returned, unless it is page-locked. */
static void taken(struct check_run *r)
{
    enum { N = 1 << 20 };
    struct check_dev v = check_dev_open(r);
    unsigned char *from = malloc(N), *want = malloc(N);
    char *p = check_dev_get(&v, N);

    for (uint32_t turn = 0; turn < 4; turn++) {
        scramble(from, N, turn);
        memcpy(want, from, N);
        check_dev_copy(&v, v.q, p, from, N, 1);
        memset(from, 0xee, N);
        check_dev_settle(&v, v.q);
        check_dev_expect(&v, p, want, N, "a copy whose source was changed after the call");
    }
}

static void host_memory(struct check_run *r)
{
    enum { N = (1 << 20) + 7 };
    struct check_dev v = check_dev_open(r);
    unsigned char *want = malloc(N);
    void *h[2] = {NULL, NULL};
    char *p = check_dev_get(&v, N);

    if (!v.api->host_alloc && !v.api->host_free)
        check_skip(r, "it has no page-locked memory");
    check_must(r, v.api->host_alloc && v.api->host_free);
    for (int i = 0; i < 2; i++)
        if (v.api->host_alloc(v.d, N, &h[i]) < 0 || !h[i])
            check_fail(r, "host_alloc: %s", check_said());
    scramble(want, N, 9);
    memcpy(h[0], want, N), memset(h[1], 0, N);
    check_dev_copy(&v, v.q, p, h[0], N, 1);
    check_dev_copy(&v, v.q, h[1], p, N, 2);
    check_dev_settle(&v, v.q);
    check_must(r, !memcmp(h[1], want, N));
    v.api->host_free(v.d, h[0]), v.api->host_free(v.d, h[1]);
}

void check_list_device(struct check_list *l, const struct check_subject *s)
{
    if (!*s->claims.kind)
        return;
    check_add(l, info, "what it says of itself", "device/info");
    check_add(l, alloc, "memory of many sizes, aligned and apart", "device/alloc");
    check_add(l, too_much, "too much memory is an error", "device/too-much");
    check_add(l, copies, "copies of all ways, odd sizes and odd addresses", "device/copies");
    check_add(l, fills, "fills of odd sizes and addresses", "device/fills");
    check_add(l, taken, "a copy takes what it was given before it returns", "device/taken");
    check_add(l, host_memory, "page-locked memory", "device/host-memory");
    check_list_queues(l);
    check_add(l, leaks, "what is given back is free again", "device/leaks");
}
