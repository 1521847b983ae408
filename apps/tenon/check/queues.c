/* queues.c - the queues of a device: order within and between them, events, limits, recordings. */
#include "base/status.h"
#include "device_own.h"

/* --- order */

/* One queue runs in the order of calls. */
static void order(struct check_run *r)
{
    enum { N = 3 << 18, STEPS = 60 };
    struct check_dev v = check_dev_open(r);
    unsigned char *host = calloc(1, N);
    char *p[3];

    for (int i = 0; i < 3; i++)
        p[i] = check_dev_get(&v, N);
    check_dev_fill(&v, v.q, p[0], 0, N);
    for (uint32_t s = 1; s <= STEPS; s++) {      /* a prefix that gets longer each time, handed round */
        check_dev_fill(&v, v.q, p[(s - 1) % 3], s, (uint64_t)N * s / STEPS);
        check_dev_copy(&v, v.q, p[s % 3], p[(s - 1) % 3], N, 0);
    }
    check_dev_settle(&v, v.q);
    memset(host, STEPS, N);
    check_dev_expect(&v, p[STEPS % 3], host, N, "fills and copies in turn");
}

/* Two queues, each waiting for the other's event; an event is used again, and one that was never recorded holds nobody up. */
static void events(struct check_run *r)
{
    enum { N = 1 << 20, STEPS = 40 };
    struct check_dev v = check_dev_open(r);
    struct tn_queue *q[2] = {v.q, NULL};
    struct tn_event *e[2] = {NULL, NULL}, *never = NULL;
    unsigned char *want = malloc(N);
    char *a = check_dev_get(&v, N), *b = check_dev_get(&v, N);

    check_must(r, v.api->queue(v.d, &q[1]) >= 0 && v.api->event(v.d, &never) >= 0);
    for (int i = 0; i < 2; i++)
        check_must(r, v.api->event(v.d, &e[i]) >= 0);
    check_must(r, v.api->wait(q[1], never) >= 0);
    for (uint32_t s = 1; s <= STEPS; s++) {
        check_dev_fill(&v, q[0], a, s, N);
        check_must(r, v.api->record(e[0], q[0]) >= 0 && v.api->wait(q[1], e[0]) >= 0);
        check_dev_copy(&v, q[1], b, a, N, 0);
        check_must(r, v.api->record(e[1], q[1]) >= 0 && v.api->wait(q[0], e[1]) >= 0);
    }
    check_dev_settle(&v, q[1]);
    memset(want, STEPS, N);
    check_dev_expect(&v, b, want, N, "two queues by turns");
    for (int i = 0; i < 2; i++)
        v.api->event_close(e[i]);
    v.api->event_close(never);
    v.api->queue_close(q[1]);
}

static void many(struct check_run *r)
{
    enum { QUEUES = 16, EVENTS = 200 };
    struct check_dev v = check_dev_open(r);
    struct tn_queue *q[QUEUES];
    struct tn_event *e[EVENTS];
    unsigned char want[QUEUES];
    char *p = check_dev_get(&v, QUEUES);

    for (int i = 0; i < QUEUES; i++)
        check_must(r, v.api->queue(v.d, &q[i]) >= 0);
    for (int i = 0; i < EVENTS; i++)
        check_must(r, v.api->event(v.d, &e[i]) >= 0);
    for (uint32_t i = 0; i < QUEUES; i++)
        check_dev_fill(&v, q[i], p + i, i, 1), want[i] = (unsigned char)i;
    for (int i = 0; i < EVENTS; i++)
        check_must(r, v.api->record(e[i], q[i % QUEUES]) >= 0 && v.api->wait(v.q, e[i]) >= 0);
    check_dev_settle(&v, v.q);
    check_dev_expect(&v, p, want, QUEUES, "many queues");
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
    struct check_dev v = check_dev_open(r);
    char *p = check_dev_get(&v, N);
    double begin = check_now();
    tn_status s;

    check_must(r, v.api->sync(v.q, 0) == TN_OK); /* nothing is on it */
    for (int i = 0; i < 20; i++)
        check_dev_fill(&v, v.q, p, (uint32_t)i, N);
    begin = check_now();
    s = v.api->sync(v.q, 0.001);
    if (s != TN_OK && s != TN_ERR_TIMEOUT)
        check_fail(r, "sync with a limit of 1 ms is status %d; TN_ERR_TIMEOUT is %d: %s", (int)s, TN_ERR_TIMEOUT, check_said());
    if (check_now() - begin > 1)
        check_fail(r, "sync with a limit of 1 ms took %.1f s", check_now() - begin);
    check_dev_settle(&v, v.q);
}

/* --- recording */

/* Two buffers, a full of 1 and b of 2, and a recording that copies a to b and then fills a with 7. */
struct recorded {
    struct check_dev v;
    const struct tn_device_capture *c;
    struct tn_recording *made;
    char *a, *b;
    unsigned char *want;
};
#define RECORDED 100003

static struct recorded record_two(struct check_run *r)
{
    struct recorded x = {.c = tn_plugin_table(check_open(r), TN_DEVICE_CAPTURE_ID), .want = malloc(RECORDED)};

    if (!x.c)
        check_skip(r, "it records nothing");
    x.v = check_dev_open(r);
    check_must(r, !strcmp(x.c->kind, x.v.api->kind));
    x.a = check_dev_get(&x.v, RECORDED), x.b = check_dev_get(&x.v, RECORDED);
    check_dev_fill(&x.v, x.v.q, x.a, 1, RECORDED), check_dev_fill(&x.v, x.v.q, x.b, 2, RECORDED);
    check_dev_settle(&x.v, x.v.q);
    check_must(r, x.c->begin(x.v.q) >= 0);
    check_dev_copy(&x.v, x.v.q, x.b, x.a, RECORDED, 0);
    check_dev_fill(&x.v, x.v.q, x.a, 7, RECORDED);
    check_must(r, x.c->end(x.v.q, &x.made) >= 0 && x.made);
    return x;
}

static void expect_all(struct recorded *x, const char *at, int byte, const char *what)
{
    memset(x->want, byte, RECORDED);
    check_dev_expect(&x->v, at, x->want, RECORDED, what);
}

static void capture(struct check_run *r)
{
    struct recorded x = record_two(r);

    expect_all(&x, x.b, 2, "what was recorded and not replayed");
    for (int turn = 0; turn < 2; turn++) {
        check_must(r, x.c->replay(x.made, x.v.q) >= 0);
        check_dev_settle(&x.v, x.v.q);
        expect_all(&x, x.b, turn ? 7 : 1, turn ? "the second replay" : "the first replay");
    }
    x.c->close(x.made);
    x.c->close(NULL);
}

/* A replay is work of the queue like other work: nothing is waited for between. */
static void capture_order(struct check_run *r)
{
    struct recorded x = record_two(r);

    check_dev_fill(&x.v, x.v.q, x.a, 9, RECORDED);
    check_must(r, x.c->replay(x.made, x.v.q) >= 0);
    check_dev_fill(&x.v, x.v.q, x.a, 3, RECORDED);
    check_dev_settle(&x.v, x.v.q);
    expect_all(&x, x.b, 9, "what a replay copied that came behind a fill");
    expect_all(&x, x.a, 3, "what was filled behind a replay");
    x.c->close(x.made);
}

void check_list_queues(struct check_list *l)
{
    check_add(l, order, "a queue keeps its order", "device/order");
    check_add(l, events, "events between queues", "device/events");
    check_add(l, many, "16 queues and 200 events", "device/many");
    check_add(l, limit, "the limit of sync", "device/limit");
    check_add(l, capture, "recording and replay", "device/capture");
    check_add(l, capture_order, "a replay between other work on its queue", "device/capture-order");
}
