/* comm_streams.c - cases of streams: what is started and waited for in the order of a queue, which the caller does not
 * wait for.
 *
 * The communicator is called as it is, with memory of the rank's device and the stream of a queue. What comes before a
 * start is late on purpose, and what comes behind wait_on overwrites what the transfer reads: so who does not keep the
 * stream's order gets other numbers. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "comm.h"

#define LATE 1.0                                 /* seconds */
#define MOST 8

struct line {                                    /* a queue of the rank's device, and memory */
    struct tn_rank *r;
    const struct tn_device_api *d;
    struct tn_queue *q;
    void *stream, *taken[MOST];
    uint32_t n, reserved0;
};

static struct line line_of(struct tn_rank *r)
{
    struct line l = {.r = r, .d = r->device_api};

    must(r, l.d->queue(r->device, &l.q) == TN_OK);
    l.stream = l.d->native(l.q);
    must(r, l.stream != NULL);
    return l;
}

static void *get(struct line *l, uint64_t bytes)
{
    void *p = NULL;

    must(l->r, l->n < MOST && l->d->alloc(l->r->device, bytes, &p) == TN_OK);
    return l->taken[l->n++] = p;
}

/* Nothing is on it any more. */
static void close_line(struct line *l)
{
    l->d->queue_close(l->q);
    while (l->n)
        l->d->free(l->r->device, l->taken[--l->n]);
}

static void fill(const struct line *l, void *to, uint32_t byte, uint64_t bytes)
{
    must(l->r, l->d->fill(l->q, to, byte, bytes) == TN_OK);
}

static void copy(const struct line *l, void *to, const void *from, uint64_t bytes, uint32_t way)
{
    must(l->r, l->d->copy(l->q, to, from, bytes, way) == TN_OK);
}

static void settle(const struct line *l)
{
    must(l->r, l->d->sync(l->q, l->r->limit) == TN_OK);
    must(l->r, l->r->own->check(l->r->world) == TN_OK);
}

/* Started, and the stream waits; at most these seconds on the host. */
static void transfer(const struct line *l, const struct tn_transfer *t, double most)
{
    struct tn_rank *r = l->r;
    const double begin = tn_comm_now();
    struct tn_request *q = NULL;

    must(r, r->own->start(r->world, t, 1, l->stream, &q) == TN_OK && q);
    must(r, r->own->wait_on(q, l->stream) == TN_OK);
    must(r, tn_comm_now() - begin < most);
}

static void all_are(const struct line *l, const void *device, uint64_t count, int32_t expected)
{
    int32_t *x = malloc(count * sizeof *x);

    copy(l, x, device, count * sizeof *x, 2);
    must(l->r, l->d->sync(l->q, l->r->limit) == TN_OK);
    for (uint64_t i = 0; i < count; i++)
        if (x[i] != expected)
            tn_comm_wrong(l->r, __LINE__, "element %llu is %#x, should be %#x", (unsigned long long)i, (unsigned)x[i], (unsigned)expected);
    free(x);
}

/* Every byte of a rank's elements is the turn's number and its rank; sums of few ranks carry nothing. */
static void in_order(struct tn_rank *r)
{
    enum { COUNT = 1 << 20, TURNS = 4, BEFORE = 6 };
    const uint64_t bytes = COUNT * sizeof(int32_t);
    struct line l = line_of(r);
    void *a = get(&l, bytes), *b = get(&l, bytes), *kept[TURNS];
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_I32, TN_SUM, 0, a, b, COUNT, NULL, NULL, 0};

    for (uint32_t turn = 0; turn < TURNS; turn++)
        kept[turn] = get(&l, bytes);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < BEFORE; i++)
            fill(&l, a, 100 + i, bytes);
        fill(&l, a, 1 + turn + r->rank, bytes);
        transfer(&l, &t, r->limit);
        copy(&l, kept[turn], b, bytes, 0);
        fill(&l, a, 0, bytes);
        fill(&l, b, 0, bytes);
    }
    settle(&l);
    for (uint32_t turn = 0; turn < TURNS; turn++)
        all_are(&l, kept[turn], COUNT, (int32_t)(0x01010101u * (r->size * (1 + turn) + r->size * (r->size - 1) / 2)));
    close_line(&l);
}

/* Rank 1 comes late: start and wait_on of the others return long before. */
static void nobody_waits(struct tn_rank *r)
{
    enum { COUNT = 70000 };
    struct line l = line_of(r);
    void *a = get(&l, 4 * COUNT);
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_I32, TN_SUM, 0, a, a, COUNT, NULL, NULL, 1};

    fill(&l, a, 1, 4 * COUNT);
    if (r->rank == 1)
        tn_comm_sleep(LATE);
    transfer(&l, &t, r->rank == 1 ? r->limit : LATE / 2);
    settle(&l);
    all_are(&l, a, COUNT, (int32_t)(0x01010101u * r->size));
    close_line(&l);
}

/* --- recorded */

enum { LONG = 30011 };

struct chain {                                   /* a is summed into b, which is copied to c, which all give to d */
    struct line l;
    void *a, *b, *c, *d;
    uint64_t bytes;
    char *given, *got;                           /* of the host; got: all that d has */
};

static void run_chain(const struct chain *k)
{
    const struct tn_transfer sum = {TN_ALL_REDUCE, TN_BF16, TN_SUM, 0, k->a, k->b, LONG, NULL, NULL, 0};
    const struct tn_transfer gather = {TN_ALL_GATHER, TN_BF16, 0, 0, k->c, k->d, LONG, NULL, NULL, 0};

    transfer(&k->l, &sum, k->l.r->limit);
    copy(&k->l, k->c, k->b, k->bytes, 0);
    transfer(&k->l, &gather, k->l.r->limit);
}

/* What a rank gives in this turn; everything else is overwritten. */
static void set_chain(const struct chain *k, int turn)
{
    for (uint64_t i = 0; i < LONG; i++)
        tn_number_set(TN_BF16, k->given, i, (double)((i * (uint64_t)(turn + 3) + k->l.r->rank * 7) % 113) / 64 - 0.5);
    copy(&k->l, k->a, k->given, k->bytes, 1);
    fill(&k->l, k->b, 0x55, k->bytes), fill(&k->l, k->c, 0x55, k->bytes), fill(&k->l, k->d, 0x55, k->l.r->size * k->bytes);
}

static void fetch_chain(const struct chain *k)
{
    copy(&k->l, k->got, k->d, k->l.r->size * k->bytes, 2);
    settle(&k->l);
}

/* Replays with other numbers each time give what is given without a recording, bit by bit. */
static void replayed(struct tn_rank *r)
{
    enum { TURNS = 5 };
    struct chain k = {.l = line_of(r), .bytes = LONG * 2};
    struct tn_recording *made = NULL;
    char *answer[TURNS];

    if (!r->capture) {
        close_line(&k.l);
        return;
    }
    k.a = get(&k.l, k.bytes), k.b = get(&k.l, k.bytes), k.c = get(&k.l, k.bytes), k.d = get(&k.l, r->size * k.bytes);
    k.given = malloc(k.bytes), k.got = malloc(r->size * k.bytes);
    for (int turn = 0; turn < TURNS; turn++) {
        set_chain(&k, turn);
        run_chain(&k);
        fetch_chain(&k);
        answer[turn] = memcpy(malloc(r->size * k.bytes), k.got, r->size * k.bytes);
    }
    set_chain(&k, TURNS);
    settle(&k.l);
    must(r, r->capture->begin(k.l.q) == TN_OK);
    run_chain(&k);
    must(r, r->capture->end(k.l.q, &made) == TN_OK && made);
    fetch_chain(&k);
    for (uint64_t i = 0; i < r->size * k.bytes; i++)
        must(r, k.got[i] == 0x55);               /* it was only written down */
    for (int turn = 0; turn < TURNS; turn++) {
        set_chain(&k, turn);
        must(r, r->capture->replay(made, k.l.q) == TN_OK);
        fetch_chain(&k);
        if (memcmp(k.got, answer[turn], r->size * k.bytes))
            tn_comm_wrong(r, __LINE__, "replay %d gives other bits than without a recording", turn + 1);
        free(answer[turn]);
    }
    r->capture->close(made);
    close_line(&k.l);
    free(k.given), free(k.got);
}

/* --- what goes wrong: the stream comes to its end, and check says why */

static void sum_until_error(struct tn_rank *r, struct line *l)
{
    enum { COUNT = 4096 };
    void *a = get(l, COUNT * 4);
    const struct tn_transfer t = {TN_ALL_REDUCE, TN_F32, TN_SUM, 0, a, a, COUNT, NULL, NULL, 5};
    struct tn_request *q = NULL;
    tn_status s = TN_OK;

    fill(l, a, 0, COUNT * 4);
    for (const double end = tn_comm_now() + 10; !s && tn_comm_now() < end;) {
        const double begin = tn_comm_now();

        s = r->own->start(r->world, &t, 1, l->stream, &q);
        s = s ? s : r->own->wait_on(q, l->stream);
        s = s ? s : l->d->sync(l->q, r->limit + 1);
        s = s ? s : r->own->check(r->world);
        must(r, tn_comm_now() - begin < r->limit + 1.5);
    }
    must(r, s < 0 && (r->rank == 1 || tn_comm_says("rank"))); /* rank 1 ended it itself */
    must(r, r->own->check(r->world) < 0);
    must(r, r->own->start(r->world, &t, 1, l->stream, &q) < 0);
}

struct later {
    struct tn_rank *r;
    int how;                                     /* a signal; 0: abort */
};

static void *end_soon(void *arg)
{
    const struct later *l = arg;

    tn_comm_sleep(0.1);
    if (l->how)
        kill(getpid(), l->how);
    l->r->own->abort(l->r->world);
    return NULL;
}

static void ended(struct tn_rank *r, int how)
{
    struct line l = line_of(r);
    struct later later = {r, how};
    pthread_t thread;

    r->limit = 2;
    if (r->rank == 1)
        must(r, pthread_create(&thread, NULL, end_soon, &later) == 0);
    sum_until_error(r, &l);
    if (r->rank == 1)
        pthread_join(thread, NULL);
    close_line(&l);
}

static void killed(struct tn_rank *r)
{
    ended(r, SIGKILL);
}

static void aborted(struct tn_rank *r)
{
    ended(r, 0);
}

const struct tn_comm_case tn_comm_streams[] = {
    {"in the order of the stream", in_order, 2, NOBODY, 0},
    {"nobody waits", nobody_waits, 2, NOBODY, 0},
    {"replayed with other numbers", replayed, 2, NOBODY, 0},
    {"killed", killed, 2, 1, 0},
    {"aborted", aborted, 2, NOBODY, 0},
    {0},
};
