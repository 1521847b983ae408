/* world.c - communicators made and ended: the world, its groups.
 *
 * A group is made by exactly its ranks, and ncclCommSplit is for all ranks of the parent; so each
 * communicator is made from unique ids of its own. Before it is handed out all its ranks have met in a first
 * exchange, so that the connections that NCCL makes when it first needs them are there, and a start waits for
 * nobody. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "nccl.h"

double tn_nccl_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void tn_nccl_nap(double waited)
{
    if (waited < 1e-3)
        sched_yield();
    else
        usleep(waited < 0.1 ? 20 : 100);
}

tn_status tn_nccl_use(const struct tn_world *w)
{
    static _Thread_local int current = -1;
    cudaError_t e;

    if (current == w->device)
        return TN_OK;
    if ((e = cudaSetDevice(w->device)))
        return tn_error(TN_ERR, "nccl: device %d: %s (error %d)", w->device, cudaGetErrorString(e), (int)e);
    current = w->device;
    return TN_OK;
}

/* --- parts of a communicator */

static struct tn_comm *comm_new(struct tn_world *w, const uint32_t *ranks, uint32_t rank, uint32_t n)
{
    struct tn_comm *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->world = w, c->rank = rank, c->n = n;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->spares, NULL);
    c->ranks = calloc(n, sizeof *c->ranks);
    c->from = calloc(n, sizeof *c->from);
    c->counts = calloc(n, sizeof *c->counts);
    for (uint32_t p = 0; c->ranks && p < n; p++)
        c->ranks[p] = ranks ? ranks[p] : p;
    return c;
}

static tn_status make_streams(struct tn_comm *c)
{
    cudaError_t e = cudaEventCreateWithFlags(&c->ready, cudaEventDisableTiming);

    for (int i = 0; i < TN_LANES && !e; i++)
        e = cudaStreamCreateWithFlags(&c->lane[i].stream, cudaStreamNonBlocking);
    if (!e && c->n > 1) {
        const uint64_t least = 8 * (uint64_t)c->n * c->n;

        c->scratch_bytes = least > c->world->scratch ? least : c->world->scratch;
        e = cudaMalloc((void **)&c->scratch, c->scratch_bytes);
    }
    if (!e && c->scratch)
        e = cudaMemsetAsync(c->scratch, 0, 1024, c->lane[0].stream);
    return tn_nccl_cuda(c->world, e, "making a communicator");
}

/* Both lanes at once. */
static tn_status connect(struct tn_comm *c, double until)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id[TN_LANES];
    tn_status s = tn_nccl_meet(c, until, id);

    config.blocking = 0;
    for (int i = 0; i < TN_LANES && !s; i++)
        s = tn_nccl_result(c, &c->lane[i],
                           ncclCommInitRankConfig(&c->lane[i].comm, (int)c->n, id[i], (int)c->rank, &config),
                           "connect");
    return s ? s : tn_nccl_settle(c, 3, until, "connect");
}

/* What is on the lanes' streams ends, unless the world does. */
static tn_status idle(const struct tn_comm *c, double until)
{
    tn_status s = TN_ERR_TIMEOUT;

    while (s == TN_ERR_TIMEOUT && tn_nccl_now() < until && !atomic_load(&c->world->dead))
        s = tn_nccl_drain(c, tn_nccl_now() + 0.05);
    return s;
}

/* One element from all, to and from both neighbours. */
static tn_status first_exchange(struct tn_comm *c, double until)
{
    const uint32_t next = (c->rank + 1) % c->n, before = (c->rank + c->n - 1) % c->n;
    uint8_t *at = c->scratch;
    const struct tn_transfer t[] = {
        {.op = TN_BARRIER},
        {.op = TN_SEND, .dtype = TN_U8, .peer = next, .from = at, .count = 1},
        {.op = TN_RECV, .dtype = TN_U8, .peer = before, .to = at + 256, .count = 1},
        {.op = TN_SEND, .dtype = TN_U8, .peer = before, .from = at, .count = 1},
        {.op = TN_RECV, .dtype = TN_U8, .peer = next, .to = at + 512, .count = 1},
    };
    const struct tn_lane *l = c->lane;
    /* the other lane must see what this one has cleared */
    tn_status s = tn_nccl_cuda(c->world, cudaEventRecord(c->ready, l[0].stream), "cudaEventRecord");

    if (!s)
        s = tn_nccl_cuda(c->world, cudaStreamWaitEvent(l[1].stream, c->ready, 0), "cudaStreamWaitEvent");
    if (!s)
        s = tn_nccl_enqueue(c, t, sizeof t / sizeof *t);
    if (!s && idle(c, until)) {
        char group[120], missing[160];

        tn_comm_say(c, group, sizeof group);
        tn_nccl_missing(c, missing, sizeof missing);
        s = tn_nccl_fail(c->world, TN_ERR_TIMEOUT, "nccl: in %s the first exchange of rank %u did not end%s",
                         group, c->rank, missing);
    }
    return s;
}

/* In the list from here on: the keeper aborts it if need be. */
static tn_status comm_make(struct tn_comm *c, double until)
{
    struct tn_world *w = c->world;
    tn_status s = c->ranks && c->from && c->counts
                      ? TN_OK
                      : tn_error(TN_ERR_MEMORY, "nccl: no memory for %u ranks", c->n);

    pthread_mutex_lock(&w->lock);
    c->next = w->comms;
    w->comms = c;
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_lock(&c->lock);
    if (!s)
        s = make_streams(c);
    if (!s && c->n > 1)
        s = connect(c, until);
    if (!s && c->n > 1)
        s = first_exchange(c, until);
    c->made = 1;
    pthread_mutex_unlock(&c->lock);
    return s;
}

/* --- the world and its groups */

static void say_world(const struct tn_world *w)
{
    char text[200];
    int version = 0;

    ncclGetVersion(&version);
    snprintf(text, sizeof text, "nccl: rank %u of %u, device %d, NCCL %d.%d.%d%s", w->rank, w->size,
             w->device, version / 10000, version / 100 % 100, version % 100,
             w->ordered ? ", sums in the order of ranks (TENON_NCCL_ORDER)" : "");
    tn_host->log(2, text);
}

tn_status tn_nccl_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **out)
{
    static uint64_t instance;
    const char *order = getenv("TENON_NCCL_ORDER"), *scratch = getenv("TENON_NCCL_SCRATCH");
    const long mib = scratch ? strtol(scratch, NULL, 10) : TN_SCRATCH;
    struct tn_world *w;
    cudaError_t e;
    tn_status s;

    *out = NULL;
    if (rank >= size)
        return tn_error(TN_ERR, "nccl: rank %u of %u", rank, size);
    if (scratch && (mib < 1 || mib > 4096))
        return tn_error(TN_ERR_CONFIG, "TENON_NCCL_SCRATCH=%s: it may be 1 to 4096, in MiB", scratch);
    if (order && *order && strcmp(order, "ranks"))
        return tn_error(TN_ERR_CONFIG, "TENON_NCCL_ORDER=%s: it may be ranks, or not be set", order);
    if (!(w = calloc(1, sizeof *w)))
        return tn_error(TN_ERR_MEMORY, "nccl: no memory for a world");
    w->rank = rank, w->size = size, w->seconds = seconds, w->instance = ++instance,
    w->ordered = order && *order;
    w->scratch = (uint64_t)mib << 20;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->store = tn_host->interface ? tn_host->interface(TN_STORE_ID) : NULL;
    if ((e = cudaGetDevice(&w->device)) || !(*out = comm_new(w, NULL, rank, size))) {
        free(w);
        return e ? tn_error(TN_ERR, "nccl: no device: %s (error %d)", cudaGetErrorString(e), (int)e)
                 : tn_error(TN_ERR_MEMORY, "nccl: no memory for a world");
    }
    snprintf((*out)->key, sizeof(*out)->key, "nccl/%llu", (unsigned long long)w->instance);
    if (!(s = tn_nccl_use(w)) && !(s = tn_nccl_keep(w)) && !(s = comm_make(*out, tn_nccl_now() + seconds))) {
        say_world(w);
        return TN_OK;
    }
    if (!atomic_load(&w->dead)) /* so that close waits for nobody */
        tn_nccl_fail(w, s, "nccl: the world was not opened");
    tn_nccl_close(*out);
    *out = NULL;
    return s;
}

static tn_status check_list(const struct tn_world *w, const uint32_t *ranks, uint32_t n, uint32_t *me)
{
    *me = n;
    for (uint32_t i = 0; i < n; i++) {
        if (ranks[i] >= w->size)
            return tn_error(TN_ERR, "nccl: a group with rank %u of a world of %u", ranks[i], w->size);
        for (uint32_t k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return tn_error(TN_ERR, "nccl: a group with rank %u twice", ranks[i]);
        if (ranks[i] == w->rank)
            *me = i;
    }
    return *me < n ? TN_OK
                   : tn_error(TN_ERR, "nccl: rank %u makes a group of %u ranks without itself", w->rank, n);
}

/* Keys: the list, and how many groups of this list there were. */
static tn_status name(struct tn_comm *c)
{
    struct tn_world *w = c->world;
    uint64_t hash = UINT64_C(1469598103934665603), *tags = realloc(w->tags, (w->n_tags + 1) * sizeof *tags);
    uint32_t before = 0;

    if (!tags)
        return tn_error(TN_ERR_MEMORY, "nccl: no memory for a group");
    w->tags = tags;
    for (uint32_t i = 0; i < c->n; i++)
        for (int b = 0; b < 32; b += 8)
            hash = (hash ^ (c->ranks[i] >> b & 255)) * UINT64_C(1099511628211);
    for (uint32_t i = 0; i < w->n_tags; i++)
        before += tags[i] == hash;
    tags[w->n_tags++] = hash;
    snprintf(c->key, sizeof c->key, "nccl/%llu/%016llx.%u", (unsigned long long)w->instance,
             (unsigned long long)hash, before);
    return TN_OK;
}

tn_status tn_nccl_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    struct tn_world *w = world->world;
    struct tn_comm *c;
    uint32_t me;
    tn_status s = check_list(w, ranks, n, &me);

    *out = NULL;
    if (s || (s = tn_nccl_use(w)))
        return s;
    if (atomic_load(&w->dead))
        return tn_nccl_failed(w);
    if (!(c = comm_new(w, ranks, me, n)) || !c->ranks) {
        free(c);
        return tn_error(TN_ERR_MEMORY, "nccl: no memory for a group of %u ranks", n);
    }
    c->is_group = 1;
    if (!(s = name(c)) && !(s = comm_make(c, tn_nccl_now() + w->seconds))) {
        *out = c;
        return TN_OK;
    }
    if (!atomic_load(&w->dead))
        tn_nccl_fail(w, s, "nccl: a group was not made");
    tn_nccl_close(c);
    return s;
}

/* --- ending */

/* The keeper does not know it any more. */
static void leave(struct tn_comm *c)
{
    struct tn_world *w = c->world;
    struct tn_comm **at = &w->comms;

    pthread_mutex_lock(&w->lock);
    while (w->busy)
        pthread_cond_wait(&w->changed, &w->lock);
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    pthread_mutex_unlock(&w->lock);
}

/* As all ranks do it: what was begun ends, and NCCL's communicators with it. */
static void finish(struct tn_comm *c)
{
    const double until = tn_nccl_now() + c->world->seconds;
    tn_status s = idle(c, until);

    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < TN_LANES && !s; i++)
        if (c->lane[i].comm)
            s = tn_nccl_result(c, &c->lane[i], ncclCommFinalize(c->lane[i].comm), "close");
    if (!s)
        s = tn_nccl_settle(c, 3, until, "close");
    for (int i = 0; i < TN_LANES && !s; i++)
        if (c->lane[i].comm) {
            ncclCommDestroy(c->lane[i].comm);
            c->lane[i].comm = NULL;
        }
    pthread_mutex_unlock(&c->lock);
    if (s && !atomic_load(&c->world->dead))
        tn_nccl_fail(c->world, s, "nccl: a communicator did not come to its end within %g s",
                     c->world->seconds);
}

/* What is still used by a stream that does not end is left. */
static void comm_free(struct tn_comm *c)
{
    const int ended = tn_nccl_drain(c, tn_nccl_now()) == TN_OK;

    for (int i = 0; i < TN_LANES && ended; i++)
        if (c->lane[i].stream)
            cudaStreamDestroy(c->lane[i].stream);
    if (ended) {
        tn_nccl_halves_free(c);
        tn_nccl_requests_free(c);
        if (c->ready)
            cudaEventDestroy(c->ready);
        cudaFree(c->scratch);
    } else {
        c->world->left = 1;
    }
    free(c->ranks);
    free(c->from);
    free(c->counts);
    free(c);
}

static void world_free(struct tn_world *w)
{
    tn_nccl_unkeep(w);
    if (!w->left)
        tn_nccl_pinned_free(w);
    free(w->tags);
    free(w);
}

void tn_nccl_close(struct tn_comm *c)
{
    struct tn_world *w = c ? c->world : NULL;
    int last;

    if (!c || tn_nccl_use(w))
        return;
    last = !c->is_group;
    if (!atomic_load(&w->dead))
        finish(c);
    if (atomic_load(&w->dead))
        tn_nccl_aborted(w);
    leave(c);
    comm_free(c);
    if (last)
        world_free(w);
}
