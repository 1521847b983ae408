/* device.c - a device by its own functions: memory, copies, fills, queues, events, limits, leaks.
 *
 * All is looked at through copies to the host, so a device with memory of its own is checked like any other. */
#include <math.h>
#include <unistd.h>
#include "base/status.h"
#include "bench.h"
#include "suite.h"

#define SECONDS 30.0
#define PAGE 4096u

struct dev {
    struct check_run *r;
    const struct tn_device_api *api;
    struct tn_device *d;
    struct tn_queue *q;
    struct tn_device_info info;
};

static struct dev open_dev(struct check_run *r)
{
    struct tn_bench_device b;
    struct dev v = {.r = r, .info.struct_size = sizeof v.info};

    check_device(r, r->subject->claims.kind, &b);
    v.api = b.api, v.d = b.device, v.q = b.queue;
    check_must(r, v.api->info(v.d, &v.info) >= 0);
    return v;
}

static void *get(struct dev *v, uint64_t bytes)
{
    void *p = NULL;

    if (v->api->alloc(v->d, bytes, &p) < 0 || !p)
        check_fail(v->r, "alloc of %llu bytes: %s", (unsigned long long)bytes, check_said());
    return p;
}

static void copy_on(struct dev *v, struct tn_queue *q, void *to, const void *from, uint64_t bytes, uint32_t way)
{
    if (v->api->copy(q, to, from, bytes, way) < 0)
        check_fail(v->r, "copy of %llu bytes, way %u: %s", (unsigned long long)bytes, way, check_said());
}

static void settle(struct dev *v, struct tn_queue *q)
{
    if (v->api->sync(q, SECONDS) != TN_OK)
        check_fail(v->r, "sync: %s", check_said());
}

static void fill_on(struct dev *v, struct tn_queue *q, void *to, uint32_t byte, uint64_t bytes)
{
    if (v->api->fill(q, to, byte, bytes) < 0)
        check_fail(v->r, "fill of %llu bytes: %s", (unsigned long long)bytes, check_said());
}

static void expect(struct dev *v, const void *at, const unsigned char *want, uint64_t bytes, const char *what)
{
    unsigned char *have = malloc(bytes + 1);

    copy_on(v, v->q, have, at, bytes, 2);
    settle(v, v->q);
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
    struct dev v = open_dev(r);
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
    struct dev v = open_dev(r);
    char *p[N];

    for (int i = 0; i < N; i++) {
        p[i] = get(&v, sizes[i]);
        if ((uintptr_t)p[i] % v.info.alignment)
            check_fail(r, "alloc of %llu bytes gives %p, which is not aligned to %llu", (unsigned long long)sizes[i],
                       (void *)p[i], (unsigned long long)v.info.alignment);
        for (int k = 0; k < i; k++)
            if (p[i] < p[k] + sizes[k] && p[k] < p[i] + sizes[i])
                check_fail(r, "two pieces of memory overlap: %p of %llu bytes and %p of %llu", (void *)p[k],
                           (unsigned long long)sizes[k], (void *)p[i], (unsigned long long)sizes[i]);
        fill_on(&v, v.q, p[i], (uint32_t)i + 1, sizes[i]);
    }
    for (int i = 0; i < N; i++) {
        unsigned char *want = malloc(sizes[i]);

        memset(want, i + 1, sizes[i]);
        expect(&v, p[i], want, sizes[i], "after all were filled");
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
    struct dev v = open_dev(r);

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
        v.api->free(v.d, get(&v, 1000));
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
    struct dev v = open_dev(r);
    uint64_t rss = 0;

    for (int turn = 0; turn < TURNS; turn++) {
        struct tn_queue *q = NULL;
        struct tn_event *e = NULL;
        struct tn_device *d = NULL;
        void *p;

        if (turn == 2)
            rss = resident(), check_must(r, api->info(v.d, &i[0]) >= 0);
        p = get(&v, BYTES);
        fill_on(&v, v.q, p, 1, BYTES);
        settle(&v, v.q);
        v.api->free(v.d, p);
        check_must(r, api->queue(v.d, &q) >= 0 && api->event(v.d, &e) >= 0);
        check_must(r, api->record(e, q) >= 0 && api->sync(q, SECONDS) == TN_OK);
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
    struct dev v = open_dev(r);
    unsigned char *from = malloc(room), *want = malloc(room), *host = malloc(room);
    char *a = get(&v, room), *b = get(&v, room);

    scramble(from, room, 5);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof shifts / sizeof *shifts; k++) {
            const uint64_t n = sizes[i], at = PAGE + shifts[k], all = n + 2 * PAGE;

            memset(want, 0x11, room), memset(host, 0x33, room);
            fill_on(&v, v.q, a, 0x11, all), fill_on(&v, v.q, b, 0x11, all);
            copy_on(&v, v.q, a + at, from + shifts[k], n, 1);
            memcpy(want + at, from + shifts[k], n);
            settle(&v, v.q);
            expect(&v, a, want, all, "host to device");
            copy_on(&v, v.q, b + at, a + at, n, 0);
            settle(&v, v.q);
            expect(&v, b, want, all, "device to device");
            copy_on(&v, v.q, host + at, b + at, n, 2);
            settle(&v, v.q);
            if (memcmp(host + at, from + shifts[k], n) || host[at - 1] != 0x33 || host[at + n] != 0x33)
                check_fail(r, "device to host: %llu bytes from %llu on are not right", (unsigned long long)n, (unsigned long long)at);
        }
}

static void fills(struct check_run *r)
{
    static const uint64_t sizes[] = {0, 1, 2, 3, 5, 64, 1001, 65537, (2 << 20) + 3};
    static const uint32_t bytes[] = {0, 0xff, 0x5a};
    const uint64_t room = (3 << 20) + 2 * PAGE;
    struct dev v = open_dev(r);
    unsigned char *want = malloc(room);
    char *p = get(&v, room);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < 3; k++) {
            const uint64_t at = PAGE + k;

            memset(want, 0x77, room);
            memset(want + at, (int)bytes[k], sizes[i]);
            fill_on(&v, v.q, p, 0x77, sizes[i] + 2 * PAGE);
            fill_on(&v, v.q, p + at, bytes[k], sizes[i]);
            settle(&v, v.q);
            expect(&v, p, want, sizes[i] + 2 * PAGE, "fill");
        }
}

/* What a copy to the device was given may be changed as soon as copy has returned, unless it is page-locked. */
static void taken(struct check_run *r)
{
    enum { N = 1 << 20 };
    struct dev v = open_dev(r);
    unsigned char *from = malloc(N), *want = malloc(N);
    char *p = get(&v, N);

    for (uint32_t turn = 0; turn < 4; turn++) {
        scramble(from, N, turn);
        memcpy(want, from, N);
        copy_on(&v, v.q, p, from, N, 1);
        memset(from, 0xee, N);
        settle(&v, v.q);
        expect(&v, p, want, N, "a copy whose source was changed after the call");
    }
}

/* --- order */

/* One queue runs in the order of calls. */
static void order(struct check_run *r)
{
    enum { N = 3 << 18, STEPS = 60 };
    struct dev v = open_dev(r);
    unsigned char *host = calloc(1, N);
    char *p[3];

    for (int i = 0; i < 3; i++)
        p[i] = get(&v, N);
    fill_on(&v, v.q, p[0], 0, N);
    for (uint32_t s = 1; s <= STEPS; s++) {      /* a prefix that gets longer each time, handed round */
        fill_on(&v, v.q, p[(s - 1) % 3], s, (uint64_t)N * s / STEPS);
        copy_on(&v, v.q, p[s % 3], p[(s - 1) % 3], N, 0);
    }
    settle(&v, v.q);
    memset(host, STEPS, N);
    expect(&v, p[STEPS % 3], host, N, "fills and copies in turn");
}

/* Two queues, each waiting for the other's event; an event is used again, and one that was never recorded holds nobody up. */
static void events(struct check_run *r)
{
    enum { N = 1 << 20, STEPS = 40 };
    struct dev v = open_dev(r);
    struct tn_queue *q[2] = {v.q, NULL};
    struct tn_event *e[2] = {NULL, NULL}, *never = NULL;
    unsigned char *want = malloc(N);
    char *a = get(&v, N), *b = get(&v, N);

    check_must(r, v.api->queue(v.d, &q[1]) >= 0 && v.api->event(v.d, &never) >= 0);
    for (int i = 0; i < 2; i++)
        check_must(r, v.api->event(v.d, &e[i]) >= 0);
    check_must(r, v.api->wait(q[1], never) >= 0);
    for (uint32_t s = 1; s <= STEPS; s++) {
        fill_on(&v, q[0], a, s, N);
        check_must(r, v.api->record(e[0], q[0]) >= 0 && v.api->wait(q[1], e[0]) >= 0);
        copy_on(&v, q[1], b, a, N, 0);
        check_must(r, v.api->record(e[1], q[1]) >= 0 && v.api->wait(q[0], e[1]) >= 0);
    }
    settle(&v, q[1]);
    memset(want, STEPS, N);
    expect(&v, b, want, N, "two queues by turns");
    for (int i = 0; i < 2; i++)
        v.api->event_close(e[i]);
    v.api->event_close(never);
    v.api->queue_close(q[1]);
}

static void many(struct check_run *r)
{
    enum { QUEUES = 16, EVENTS = 200 };
    struct dev v = open_dev(r);
    struct tn_queue *q[QUEUES];
    struct tn_event *e[EVENTS];
    unsigned char want[QUEUES];
    char *p = get(&v, QUEUES);

    for (int i = 0; i < QUEUES; i++)
        check_must(r, v.api->queue(v.d, &q[i]) >= 0);
    for (int i = 0; i < EVENTS; i++)
        check_must(r, v.api->event(v.d, &e[i]) >= 0);
    for (uint32_t i = 0; i < QUEUES; i++)
        fill_on(&v, q[i], p + i, i, 1), want[i] = (unsigned char)i;
    for (int i = 0; i < EVENTS; i++)
        check_must(r, v.api->record(e[i], q[i % QUEUES]) >= 0 && v.api->wait(v.q, e[i]) >= 0);
    settle(&v, v.q);
    expect(&v, p, want, QUEUES, "many queues");
    for (int i = 0; i < EVENTS; i++)
        v.api->event_close(e[i]);
    for (int i = 0; i < QUEUES; i++)
        v.api->queue_close(q[i]);
    v.api->free(v.d, p);
    v.api->queue_close(v.q);
    v.api->close(v.d);
}

/* The limit holds: done, or TN_ERR_TIMEOUT, but no longer than it says; afterwards all is as before. */
static void limit(struct check_run *r)
{
    enum { N = 64 << 20 };
    struct dev v = open_dev(r);
    char *p = get(&v, N);
    double begin = check_now();
    tn_status s;

    check_must(r, v.api->sync(v.q, 0) == TN_OK); /* nothing is on it */
    for (int i = 0; i < 20; i++)
        fill_on(&v, v.q, p, (uint32_t)i, N);
    begin = check_now();
    s = v.api->sync(v.q, 0.001);
    if (s != TN_OK && s != TN_ERR_TIMEOUT)
        check_fail(r, "sync with a limit of 1 ms is status %d; TN_ERR_TIMEOUT is %d: %s", (int)s, TN_ERR_TIMEOUT, check_said());
    if (check_now() - begin > 1)
        check_fail(r, "sync with a limit of 1 ms took %.1f s", check_now() - begin);
    settle(&v, v.q);
}

static void host_memory(struct check_run *r)
{
    enum { N = (1 << 20) + 7 };
    struct dev v = open_dev(r);
    unsigned char *want = malloc(N);
    void *h[2] = {NULL, NULL};
    char *p = get(&v, N);

    if (!v.api->host_alloc && !v.api->host_free)
        check_skip(r, "it has no page-locked memory");
    check_must(r, v.api->host_alloc && v.api->host_free);
    for (int i = 0; i < 2; i++)
        if (v.api->host_alloc(v.d, N, &h[i]) < 0 || !h[i])
            check_fail(r, "host_alloc: %s", check_said());
    scramble(want, N, 9);
    memcpy(h[0], want, N), memset(h[1], 0, N);
    copy_on(&v, v.q, p, h[0], N, 1);
    copy_on(&v, v.q, h[1], p, N, 2);
    settle(&v, v.q);
    check_must(r, !memcmp(h[1], want, N));
    v.api->host_free(v.d, h[0]), v.api->host_free(v.d, h[1]);
}

/* --- recording */

static void capture(struct check_run *r)
{
    const struct tn_device_capture *c = tn_plugin_table(check_open(r), TN_DEVICE_CAPTURE_ID);
    enum { N = 100003 };
    struct tn_recording *made = NULL;
    unsigned char *want = malloc(N);
    struct dev v;
    char *a, *b;

    if (!c)
        check_skip(r, "it records nothing");
    v = open_dev(r);
    check_must(r, !strcmp(c->kind, v.api->kind));
    a = get(&v, N), b = get(&v, N);
    fill_on(&v, v.q, a, 1, N), fill_on(&v, v.q, b, 2, N);
    settle(&v, v.q);
    check_must(r, c->begin(v.q) >= 0);
    copy_on(&v, v.q, b, a, N, 0);
    fill_on(&v, v.q, a, 7, N);
    check_must(r, c->end(v.q, &made) >= 0 && made);
    memset(want, 2, N);
    expect(&v, b, want, N, "what was recorded and not replayed");
    for (int turn = 0; turn < 2; turn++) {
        check_must(r, c->replay(made, v.q) >= 0);
        settle(&v, v.q);
        memset(want, turn ? 7 : 1, N);
        expect(&v, b, want, N, turn ? "the second replay" : "the first replay");
    }
    fill_on(&v, v.q, a, 9, N);                   /* not waited for */
    check_must(r, c->replay(made, v.q) >= 0);
    fill_on(&v, v.q, a, 3, N);
    settle(&v, v.q);
    memset(want, 9, N);
    expect(&v, b, want, N, "a replay between other work on the queue: what it copied");
    memset(want, 3, N);
    expect(&v, a, want, N, "a replay between other work on the queue: what came behind it");
    c->close(made);
    c->close(NULL);
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
    check_add(l, order, "a queue keeps its order", "device/order");
    check_add(l, events, "events between queues", "device/events");
    check_add(l, many, "16 queues and 200 events", "device/many");
    check_add(l, limit, "the limit of sync", "device/limit");
    check_add(l, host_memory, "page-locked memory", "device/host-memory");
    check_add(l, capture, "recording and replay", "device/capture");
    check_add(l, leaks, "what is given back is free again", "device/leaks");
}
