/* self - the communicator of one process: every collective is a copy, what it sends it receives.
 *
 * A reduction over one rank is its input, a gather is its input, so all that is left is to move count
 * elements. A send waits for the receive of the same communicator, in the order in which both are started;
 * that pair is the only thing here that can be unfinished. Memory is the host's: queues are ignored, since
 * whoever passes host memory has synchronised. The world and its groups share one lock and one end, so that any
 * thread may start, wait and abort, and what ends one of them ends all. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include <tenon/comm.h>

struct half { /* a send without its receive, or the reverse */
    struct half *next;
    struct tn_request *request;
    struct tn_transfer what;
};

struct tn_request {
    struct tn_comm *comm;
    uint32_t open; /* halves that wait for the other one */
    uint32_t reserved0;
};

struct shared { /* by a world and its groups; freed with the last of them */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int users, dead;
};

struct tn_comm {
    struct shared *all;
    struct half *sends, *recvs; /* oldest first; at most one of them is not empty */
};

static struct tn_request done; /* of every start that left nothing open: no allocation */

static uint64_t width(uint32_t dtype)
{
    static const uint8_t bytes[] = {
        [TN_F32] = 4, [TN_BF16] = 2, [TN_F16] = 2, [TN_I32] = 4, [TN_F64] = 8, [TN_I64] = 8, [TN_U8] = 1,
    };

    return dtype < sizeof bytes ? bytes[dtype] : 0;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 10;
    snprintf(why, why_size, "one process");
    return TN_OK;
}

/* all NULL: a world. */
static tn_status comm_new(struct shared *all, struct tn_comm **out)
{
    struct tn_comm *c = calloc(1, sizeof *c);
    pthread_condattr_t clock;

    *out = NULL;
    if (!c || (!all && !(c->all = calloc(1, sizeof *c->all)))) {
        free(c);
        return tn_error(TN_ERR_MEMORY, "self: no memory for a communicator");
    }
    if (all) {
        c->all = all;
    } else {
        pthread_mutex_init(&c->all->lock, NULL);
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_cond_init(&c->all->changed, &clock);
        pthread_condattr_destroy(&clock);
    }
    pthread_mutex_lock(&c->all->lock);
    c->all->users++;
    pthread_mutex_unlock(&c->all->lock);
    *out = c;
    return TN_OK;
}

static tn_status comm_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    (void)seconds;
    *world = NULL;
    if (rank != 0 || size != 1)
        return tn_error(TN_ERR_CONFIG,
                        "self: is for one process, this is rank %u of %u; use gloo, mpi or nccl", rank, size);
    return comm_new(NULL, world);
}

static tn_status comm_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    *out = NULL;
    if (n != 1 || ranks[0] != 0)
        return tn_error(TN_ERR, "self: a group of %u ranks that begins with rank %u; the one rank is 0", n,
                        n ? ranks[0] : 0);
    return comm_new(world->all, out);
}

/* --- transfers */
static void move(const struct tn_transfer *to, const struct tn_transfer *from, uint64_t count)
{
    if (count && to->to != from->from)
        memmove(to->to, from->from, count * width(from->dtype));
}

/* How many elements a collective moves; TN_ERR where its numbers do not fit one rank. */
static tn_status collective_count(const struct tn_transfer *t, uint64_t *count)
{
    *count = t->counts && t->op != TN_ALL_REDUCE && t->op != TN_BROADCAST ? t->counts[0] : t->count;
    if (t->op == TN_BARRIER)
        *count = 0;
    if (t->op == TN_ALL_TO_ALL && t->counts && t->counts_in && t->counts[0] != t->counts_in[0])
        return tn_error(TN_ERR_SHAPE,
                        "self: all_to_all sends %llu elements to the one rank, which expects %llu",
                        (unsigned long long)t->counts[0], (unsigned long long)t->counts_in[0]);
    return TN_OK;
}

static int is_half(const struct tn_transfer *t)
{
    return t->op == TN_SEND || t->op == TN_RECV;
}

static tn_status check(const struct tn_transfer *t)
{
    uint64_t count;

    if (t->op < TN_ALL_REDUCE || t->op > TN_BARRIER)
        return tn_error(TN_ERR, "self: there is no operation %u", t->op);
    if (t->op == TN_BARRIER)
        return TN_OK;
    if (!width(t->dtype))
        return tn_error(TN_ERR, "self: there is no dtype %u", t->dtype);
    if ((t->op == TN_ALL_REDUCE || t->op == TN_REDUCE_SCATTER) && (t->reduce < TN_SUM || t->reduce > TN_MIN))
        return tn_error(TN_ERR, "self: there is no reduction %u", t->reduce);
    if ((t->op == TN_BROADCAST || is_half(t)) && t->peer != 0)
        return tn_error(TN_ERR, "self: peer %u in a group of one rank", t->peer);
    return collective_count(t, &count);
}

/* Pairs one half with the oldest of the other kind, or leaves it to wait. Lock held. */
static tn_status pair(struct tn_comm *c, const struct tn_transfer *t, struct tn_request *r)
{
    struct half **others = t->op == TN_SEND ? &c->recvs : &c->sends, *o = *others;
    struct half **mine = t->op == TN_SEND ? &c->sends : &c->recvs;

    if (!o) {
        struct half *h = malloc(sizeof *h);
        if (!h)
            return tn_error(TN_ERR_MEMORY, "self: no memory for a transfer that waits");
        *h = (struct half){NULL, r, *t};
        while (*mine)
            mine = &(*mine)->next;
        *mine = h;
        r->open++;
        return TN_OK;
    }
    if (o->what.count != t->count || o->what.dtype != t->dtype)
        return tn_error(TN_ERR_SHAPE, "self: %llu elements of dtype %u meet %llu elements of dtype %u",
                        (unsigned long long)t->count, t->dtype, (unsigned long long)o->what.count,
                        o->what.dtype);
    move(t->op == TN_SEND ? &o->what : t, t->op == TN_SEND ? t : &o->what, t->count);
    o->request->open--;
    *others = o->next;
    free(o);
    return TN_OK;
}

static tn_status run(struct tn_comm *c, const struct tn_transfer *t, struct tn_request *r)
{
    uint64_t count;

    if (is_half(t))
        return pair(c, t, r);
    collective_count(t, &count);
    if (t->op != TN_BROADCAST || (t->from && t->to))
        move(t, t, count); /* a broadcast's root may have its data in place */
    return TN_OK;
}

static tn_status comm_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                            struct tn_request **out)
{
    struct tn_request *r = &done;
    tn_status s = TN_OK;

    (void)stream;
    *out = NULL;
    for (uint32_t i = 0; i < n; i++)
        if ((s = check(&t[i])) < 0)
            return s;
    for (uint32_t i = 0; i < n && r == &done; i++)
        if (is_half(&t[i]) && !(r = calloc(1, sizeof *r)))
            return tn_error(TN_ERR_MEMORY, "self: no memory for a request");
    pthread_mutex_lock(&c->all->lock);
    if (c->all->dead)
        s = tn_error(TN_ERR, "self: the communicator was aborted, or failed before");
    if (r != &done)
        r->comm = c;
    for (uint32_t i = 0; i < n && s >= 0; i++)
        s = run(c, &t[i], r);
    c->all->dead |= s < 0;
    int kept = r->open != 0; /* halves in the lists: r stays until they go */
    pthread_cond_broadcast(&c->all->changed);
    pthread_mutex_unlock(&c->all->lock);
    if (s < 0 && r != &done && !kept)
        free(r);
    *out = s < 0 ? NULL : r;
    return s;
}

static struct timespec deadline(double seconds)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    if (seconds > 1e6)
        seconds = 1e6;
    t.tv_sec += (time_t)seconds;
    t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static tn_status comm_wait(struct tn_request *r, double seconds)
{
    struct tn_comm *c = r->comm;
    struct timespec until = deadline(seconds);
    int late = seconds <= 0;

    if (r == &done)
        return TN_OK;
    pthread_mutex_lock(&c->all->lock);
    while (r->open && !c->all->dead && !late)
        late = pthread_cond_timedwait(&c->all->changed, &c->all->lock, &until) == ETIMEDOUT;
    int open = r->open != 0, dead = c->all->dead;
    if (open && late && seconds > 0) {
        c->all->dead = 1;
        pthread_cond_broadcast(&c->all->changed);
    }
    pthread_mutex_unlock(&c->all->lock);
    if (!open)
        free(r);
    if (open && dead)
        return tn_error(TN_ERR, "self: the communicator was aborted, or failed before");
    if (open && seconds > 0)
        return tn_error(TN_ERR_TIMEOUT, "self: after %g s a send or receive still waits for its other half",
                        seconds);
    return open ? TN_DECLINED : TN_OK;
}

static void comm_abort(struct tn_comm *c)
{
    pthread_mutex_lock(&c->all->lock);
    c->all->dead = 1;
    pthread_cond_broadcast(&c->all->changed);
    pthread_mutex_unlock(&c->all->lock);
}

/* Halves without the other one, and their requests when the last of them goes. */
static void drop(struct half *h)
{
    while (h) {
        struct half *next = h->next;
        if (!--h->request->open)
            free(h->request);
        free(h);
        h = next;
    }
}

static void comm_close(struct tn_comm *c)
{
    struct shared *all;

    if (!c)
        return;
    all = c->all;
    pthread_mutex_lock(&all->lock);
    drop(c->sends);
    drop(c->recvs);
    int last = !--all->users;
    pthread_mutex_unlock(&all->lock);
    free(c);
    if (!last)
        return;
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

static const char *const devices[] = {"cpu", NULL};

static const struct tn_comm_api self = {
    .struct_size = sizeof self,
    .devices = devices,
    .probe = probe,
    .open = comm_open,
    .group = comm_group,
    .start = comm_start,
    .wait = comm_wait,
    .abort = comm_abort,
    .close = comm_close,
};

TN_PLUGIN("self", "1.0", "the communicator of one process", TN_COMM_ID, &self);
