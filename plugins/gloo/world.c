/* world.c - ranks find each other through the host's store, and agree on how they talk.
 *
 * Each rank says who it is: host, process, segment, address. Those that seem to share a host try each other's
 * segment; a pair talks through shared memory if both could open the other's, else over TCP. A group repeats
 * it with segments of its own, for its members. Keys carry the number of the world in its process and of the
 * group among those with the same ranks, so a second world or group never meets the keys of the first. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "gloo.h"

struct who { /* in the store */
    int64_t pid;
    uint64_t nonce;
    int32_t fd, reserved0; /* -1: no shared memory */
    char host[64], boot[64], address[64], interface[32];
};

struct meeting { /* of the ranks of one communicator */
    struct tn_comm *c;
    const struct tn_store *store;
    struct who *who;
    double until;
    uint32_t *near; /* by rank: talk through shared memory */
    char prefix[64];
    int fd;
};

/* --- the store */
static tn_status put(const struct meeting *m, const char *what, const void *data, uint64_t bytes)
{
    char key[128];

    snprintf(key, sizeof key, "%s/%s/%u", m->prefix, what, m->c->rank);
    return m->store->set(key, data, bytes);
}

static tn_status get(const struct meeting *m, const char *what, uint32_t rank, void *data, uint64_t *bytes)
{
    double left = m->until - tn_now();
    char key[128], group[100];

    snprintf(key, sizeof key, "%s/%s/%u", m->prefix, what, rank);
    if (m->store->get(key, data, bytes, left > 0.01 ? left : 0.01) == TN_OK)
        return TN_OK;
    tn_comm_say(m->c, group, sizeof group);
    return tn_error(TN_ERR_TIMEOUT, "gloo: opening %s: rank %u did not come within %g s (%s/%s)", group,
                    m->c->ranks[rank], m->c->world->seconds, m->prefix, what);
}

/* --- one rank and the others */

static void read_line(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);

    out[n > 0 ? n : 0] = 0;
    out[strcspn(out, "\n")] = 0;
    if (fd >= 0)
        close(fd);
}

static int no_shared_memory(void)
{
    const char *shm = getenv("TENON_SHM");

    return shm && !strcmp(shm, "no");
}

static tn_status introduce(struct meeting *m)
{
    struct tn_comm *c = m->c;
    struct who *me = &m->who[c->rank];
    tn_status s = tn_segment_new(c, &m->fd);

    if (s < 0)
        return s;
    if (getrandom(&me->nonce, sizeof me->nonce, 0) != sizeof me->nonce)
        me->nonce = (uint64_t)(tn_now() * 1e9);
    c->mine->nonce = me->nonce;
    me->pid = getpid();
    me->fd = no_shared_memory() ? -1 : m->fd;
    gethostname(me->host, sizeof me->host - 1);
    read_line("/proc/sys/kernel/random/boot_id", me->boot, sizeof me->boot);
    return TN_OK;
}

static int same_host(const struct who *a, const struct who *b)
{
    return !strcmp(a->host, b->host) && !strcmp(a->boot, b->boot) && *a->boot;
}

static tn_status meet(struct meeting *m)
{
    struct tn_comm *c = m->c;
    tn_status s = put(m, "who", &m->who[c->rank], sizeof *m->who);

    for (uint32_t p = 0; p < c->n && s >= 0; p++) {
        uint64_t bytes = sizeof *m->who;
        if (p == c->rank)
            continue;
        s = get(m, "who", p, &m->who[p], &bytes);
        if (s >= 0 && bytes != sizeof *m->who)
            s = tn_error(TN_ERR, "gloo: rank %u runs another version of this plugin", c->ranks[p]);
    }
    return s;
}

/* Tries the segments of ranks here; reach[p]: is it within reach. */
static void try_segments(struct meeting *m, uint32_t *reach)
{
    struct tn_comm *c = m->c;
    const struct who *me = &m->who[c->rank];

    for (uint32_t p = 0; p < c->n; p++) {
        const struct who *w = &m->who[p];
        if (p != c->rank && me->fd >= 0 && w->fd >= 0 && same_host(w, me))
            reach[p] = tn_segment_join(c, p, w->pid, w->fd, w->nonce) == TN_OK;
    }
}

static tn_status agree(struct meeting *m)
{
    struct tn_comm *c = m->c;
    uint32_t *reach = calloc(2 * c->n, sizeof *reach);
    tn_status s;

    if (!reach)
        return tn_error(TN_ERR_MEMORY, "gloo: no memory for a communicator");
    try_segments(m, reach);
    s = put(m, "reach", reach, c->n * sizeof *reach);
    for (uint32_t p = 0; p < c->n && s >= 0; p++) {
        uint64_t bytes = c->n * sizeof *reach;
        if (p == c->rank)
            continue;
        s = get(m, "reach", p, reach + c->n, &bytes);
        m->near[p] = s >= 0 && reach[p] && reach[c->n + c->rank];
        if (!m->near[p])
            c->stream[p].theirs = NULL;
    }
    free(reach);
    return s;
}

/* --- TCP */

static void arrived(void *world)
{
    struct tn_world *w = world;

    tn_bell_wake(w->board);
}

static void lost(void *world, uint32_t peer)
{
    struct tn_world *w = world;

    atomic_store(&w->peer[peer].gone, 1);
    tn_bell_wake(w->board);
}

static tn_status check_address(const struct meeting *m, uint32_t p)
{
    const struct who *me = &m->who[m->c->rank], *w = &m->who[p];
    uint32_t loop = tn_address_is_loopback(me->address) ? m->c->rank : p;

    if (same_host(me, w) || (!tn_address_is_loopback(me->address) && !tn_address_is_loopback(w->address)))
        return TN_OK;
    return tn_error(
        TN_ERR_CONFIG,
        "gloo: ranks %u (%s) and %u (%s) are on two hosts, but rank %u has only the loopback address %s; "
        "name its interface by TENON_IFACE",
        m->c->rank, me->host, p, w->host, loop, m->who[loop].address);
}

static tn_status connect_all(struct meeting *m, uint8_t *all)
{
    struct tn_comm *c = m->c;
    struct tn_world *w = c->world;
    tn_status s = TN_OK;

    for (uint32_t p = 0; p < c->n && s >= 0; p++) {
        uint32_t bytes;
        if (p == c->rank || m->near[p])
            continue;
        s = tn_tcp_listen(w->tcp, p, all + p * (TN_TCP_ADDRESS + 4) + 4, &bytes);
        memcpy(all + p * (TN_TCP_ADDRESS + 4), &bytes, 4);
        if (s >= 0)
            s = tn_tcp_stream_new(w->tcp, p, c->tag, &c->stream[p].tcp);
    }
    if (s >= 0)
        s = put(m, "pairs", all, c->n * (TN_TCP_ADDRESS + 4));
    for (uint32_t p = 0; p < c->n && s >= 0; p++) {
        uint64_t size = c->n * (TN_TCP_ADDRESS + 4);
        uint32_t bytes;
        if (p == c->rank || m->near[p])
            continue;
        s = get(m, "pairs", p, all, &size);
        memcpy(&bytes, all + c->rank * (TN_TCP_ADDRESS + 4), 4);
        if (s >= 0)
            s = tn_tcp_connect(w->tcp, p, all + c->rank * (TN_TCP_ADDRESS + 4) + 4, bytes);
    }
    return s;
}

static tn_status open_tcp(struct meeting *m)
{
    struct tn_comm *c = m->c;
    struct tn_world *w = c->world;
    const struct tn_tcp_user user = {w, arrived, tn_world_control, lost};
    uint8_t *all;
    uint32_t far = 0;
    tn_status s = TN_OK;

    for (uint32_t p = 0; p < c->n && s >= 0; p++)
        if (p != c->rank && !m->near[p]) {
            far++;
            s = check_address(m, p);
        }
    if (!far || s < 0)
        return s;
    all = calloc(c->n, TN_TCP_ADDRESS + 4);
    if (!all)
        return tn_error(TN_ERR_MEMORY, "gloo: no memory for addresses");
    s = tn_tcp_open(m->who[c->rank].address, c->rank, c->n, m->until - tn_now(), &user, &w->tcp);
    if (s >= 0)
        s = connect_all(m, all);
    free(all);
    return s;
}

/* --- communicators */

static struct tn_comm *comm_new(struct tn_world *w, const uint32_t *ranks, uint32_t rank, uint32_t n)
{
    struct tn_comm *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->world = w;
    c->rank = rank;
    c->n = n;
    c->ring = tn_ring_bytes(n);
    c->inbox_end = &c->inbox;
    c->ranks = calloc(n, sizeof *c->ranks);
    c->stream = calloc(n, sizeof *c->stream);
    for (uint32_t p = 0; c->ranks && c->stream && p < n; p++) {
        c->ranks[p] = ranks ? ranks[p] : p;
        c->stream[p].comm = c;
        c->stream[p].peer = p;
        c->stream[p].world = c->ranks[p];
    }
    return c;
}

void tn_comm_free(struct tn_comm *c)
{
    if (!c)
        return;
    for (uint32_t p = 0; c->stream && p < c->n; p++)
        if (c->stream[p].tcp)
            tn_tcp_stream_free(c->stream[p].tcp);
    tn_engine_free(c);
    tn_segment_free(c);
    free(c->ranks);
    free(c->stream);
    free(c);
}

static tn_status meeting_new(struct tn_comm *c, double seconds, struct meeting *m)
{
    *m = (struct meeting){.c = c, .fd = -1, .until = tn_now() + seconds};
    m->store = tn_host && tn_host->interface ? tn_host->interface(TN_STORE_ID) : NULL;
    m->who = calloc(c->n, sizeof *m->who);
    m->near = calloc(c->n, sizeof *m->near);
    if (!m->who || !m->near || !c->ranks || !c->stream)
        return tn_error(TN_ERR_MEMORY, "gloo: no memory for a communicator");
    if (c->n > 1 && !m->store)
        return tn_error(TN_ERR_CONFIG,
                        "gloo: %u ranks need a store to find each other, and this program has none", c->n);
    return TN_OK;
}

static void meeting_end(struct meeting *m)
{
    if (m->fd >= 0)
        close(m->fd);
    free(m->who);
    free(m->near);
}

static void log_place(const struct meeting *m)
{
    char near[120] = "", far[120] = "", text[400];
    const struct who *me = &m->who[m->c->rank];

    for (uint32_t p = 0; p < m->c->n; p++) {
        char *list = m->near[p] ? near : far;
        size_t at = strlen(list);
        if (p != m->c->rank && at + 20 < sizeof near)
            snprintf(list + at, sizeof near - at, at + 40 < sizeof near ? " %u" : " …", p);
    }
    snprintf(text, sizeof text,
             "gloo: rank %u of %u on %s, address %s (%s); shared memory with:%s; TCP with:%s", m->c->rank,
             m->c->n, me->host, me->address, me->interface, *near ? near : " none", *far ? far : " none");
    tn_host->log(2, text);
    for (uint32_t p = 0; p < m->c->n; p++)
        if (p != m->c->rank && !m->near[p] && same_host(me, &m->who[p])) {
            snprintf(text, sizeof text, "gloo: rank %u reaches rank %u on its own host by TCP only: %s",
                     m->c->rank, p,
                     no_shared_memory() ? "TENON_SHM=no"
                                        : "its memory cannot be opened (another user or container?)");
            tn_host->log(no_shared_memory() ? 2 : 1, text);
        }
}

static void know_peers(struct meeting *m)
{
    struct tn_world *w = m->c->world;
    uint32_t here = 1;

    for (uint32_t p = 0; p < w->size; p++) {
        here += p != w->rank && same_host(&m->who[p], &m->who[w->rank]);
        w->peer[p].pidfd = -1;
        if (p == w->rank || !m->near[p])
            continue;
        w->peer[p].segment = m->c->stream[p].theirs;
        w->peer[p].pidfd = (int32_t)syscall(SYS_pidfd_open, (pid_t)m->who[p].pid, 0);
    }
    w->spin = here <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) ? 300 : 0;
}

static tn_status start_thread(struct tn_world *w)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&w->thread, NULL, tn_world_thread, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? tn_error(TN_ERR, "gloo: no thread for communication: %s", strerror(failed)) : TN_OK;
}

static tn_status meet_world(struct meeting *m)
{
    struct tn_world *w = m->c->world;
    tn_status s;

    snprintf(m->prefix, sizeof m->prefix, "gloo/%llu", (unsigned long long)w->instance);
    if ((s = introduce(m)) < 0)
        return s;
    w->board = &m->c->mine->board;
    for (uint32_t p = 0; p < w->size; p++)
        w->peer[p].pidfd = -1;
    if (w->size == 1)
        return start_thread(w);
    struct who *me = &m->who[w->rank];
    if ((s = tn_address_find(me->address, sizeof me->address, me->interface, sizeof me->interface)) < 0 ||
        (s = meet(m)) < 0 || (s = agree(m)) < 0)
        return s;
    know_peers(m);
    log_place(m);
    if ((s = open_tcp(m)) < 0)
        return s;
    return start_thread(w);
}

static void world_free(struct tn_world *w)
{
    for (uint32_t p = 0; w->peer && p < w->size; p++)
        if (w->peer[p].pidfd >= 0)
            close(w->peer[p].pidfd);
    pthread_mutex_destroy(&w->engine);
    pthread_mutex_destroy(&w->inbox);
    free(w->peer);
    free(w->tags);
    free(w);
}

tn_status tn_world_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **out)
{
    static uint64_t instance;
    struct tn_world *w = calloc(1, sizeof *w);
    struct tn_comm *c = w ? comm_new(w, NULL, rank, size) : NULL;
    struct meeting m = {0};
    tn_status s;

    if (!c || !(w->peer = calloc(size, sizeof *w->peer))) {
        tn_comm_free(c);
        free(w);
        return tn_error(TN_ERR_MEMORY, "gloo: no memory for %u ranks", size);
    }
    w->rank = rank;
    w->size = size;
    w->seconds = seconds;
    w->instance = ++instance;
    w->users = 1;
    w->comms = c;
    pthread_mutex_init(&w->engine, NULL);
    pthread_mutex_init(&w->inbox, NULL);
    s = meeting_new(c, seconds, &m);
    if (s >= 0)
        s = meet_world(&m);
    meeting_end(&m);
    if (s < 0) {
        if (w->tcp)
            tn_tcp_stop(w->tcp);
        tn_comm_free(c);
        if (w->tcp)
            tn_tcp_close(w->tcp);
        world_free(w);
        return s;
    }
    *out = c;
    return TN_OK;
}

/* A connection that is closed with something unread takes along what was on its way out, a verdict maybe. */
static void linger(const struct tn_world *w)
{
    const double until = tn_now() + 0.3;
    int left = 1;

    while (left && tn_now() < until) {
        left = 0;
        for (uint32_t p = 0; p < w->size; p++)
            left |= p != w->rank && !w->peer[p].segment && !w->peer[p].gone;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

/* The last communicator is closed: ends the thread, then frees all. */
void tn_world_close(struct tn_world *w, struct tn_comm *last)
{
    if (w->tcp && atomic_load(&w->dead))
        linger(w);
    atomic_store(&w->stop, 1);
    tn_bell_ring(&w->board->ask_bell);
    tn_bell_ring(&w->board->bell);
    pthread_join(w->thread, NULL);
    if (w->tcp)
        tn_tcp_stop(w->tcp);
    tn_comm_free(last);
    if (w->tcp)
        tn_tcp_close(w->tcp);
    world_free(w);
}

/* --- groups */

static uint64_t hash(uint64_t h, uint64_t x)
{
    for (int i = 0; i < 8; i++, x >>= 8)
        h = (h ^ (x & 255)) * UINT64_C(0x100000001b3);
    return h;
}

/* A number that all members compute alike: from the ranks, and how many groups of just these ranks there
 * were. It is never used again. 0: no memory. */
static uint64_t tag_of(struct tn_world *w, const uint32_t *ranks, uint32_t n)
{
    uint64_t tag = UINT64_C(0xcbf29ce484222325), *tags = realloc(w->tags, (w->n_tags + 1) * sizeof *tags);

    if (!tags)
        return 0;
    w->tags = tags;
    for (uint32_t i = 0; i < n; i++)
        tag = hash(tag, ranks[i]);
    for (uint64_t i = 0; i < w->n_tags;) {
        if (tags[i++] == tag) {
            tag = hash(tag, n);
            i = 0;
        }
    }
    tags[w->n_tags++] = tag;
    return tag;
}

static tn_status find_place(const struct tn_world *w, const uint32_t *ranks, uint32_t n, uint32_t *place)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (ranks[i] >= w->size)
            return tn_error(TN_ERR, "gloo: a group with rank %u in a world of %u", ranks[i], w->size);
        for (uint32_t j = 0; j < i; j++)
            if (ranks[i] == ranks[j])
                return tn_error(TN_ERR, "gloo: a group with rank %u twice", ranks[i]);
        if (ranks[i] == w->rank) {
            *place = i;
            found = 1;
        }
    }
    return found ? TN_OK : tn_error(TN_ERR, "gloo: rank %u makes a group that it is not in", w->rank);
}

static tn_status meet_group(struct meeting *m)
{
    struct tn_comm *c = m->c;
    struct tn_world *w = c->world;
    tn_status s = introduce(m);

    snprintf(m->prefix, sizeof m->prefix, "gloo/%llu/%016llx", (unsigned long long)w->instance,
             (unsigned long long)c->tag);
    for (uint32_t p = 0; p < c->n && s >= 0; p++)
        if (p != c->rank && !w->peer[c->ranks[p]].segment)
            s = tn_tcp_stream_new(w->tcp, c->ranks[p], c->tag, &c->stream[p].tcp);
    if (c->n == 1 || s < 0)
        return s;
    if ((s = meet(m)) < 0 || (s = agree(m)) < 0)
        return s;
    for (uint32_t p = 0; p < c->n; p++)
        if (p != c->rank && !m->near[p] && w->peer[c->ranks[p]].segment)
            return tn_error(TN_ERR,
                            "gloo: rank %u shares memory with rank %u in the world, but not in a group: %s",
                            w->rank, c->ranks[p], "no more memory, or no more files");
    return TN_OK;
}

tn_status tn_world_group(struct tn_world *w, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    uint32_t place = 0;
    struct tn_comm *c;
    struct meeting m;
    tn_status s = atomic_load(&w->dead) ? tn_world_failed(w) : find_place(w, ranks, n, &place);

    if (s < 0)
        return s;
    if (!(c = comm_new(w, ranks, place, n)))
        return tn_error(TN_ERR_MEMORY, "gloo: no memory for a group of %u ranks", n);
    c->tag = tag_of(w, ranks, n);
    s = meeting_new(c, w->seconds, &m);
    if (s >= 0 && !c->tag)
        s = tn_error(TN_ERR_MEMORY, "gloo: no memory for a group of %u ranks", n);
    if (s >= 0)
        s = meet_group(&m);
    meeting_end(&m);
    if (s < 0) {
        tn_comm_free(c);
        return s;
    }
    pthread_mutex_lock(&w->engine);
    pthread_mutex_lock(&w->inbox);
    c->next = w->comms;
    w->comms = c;
    w->users++;
    pthread_mutex_unlock(&w->inbox);
    pthread_mutex_unlock(&w->engine);
    *out = c;
    return TN_OK;
}
