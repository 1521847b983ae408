/* meet.c - ranks of a communicator find each other through the host's store, and agree on how they talk.
 *
 * Each rank says who it is: host, process, segment, address. Those that seem to share a host try each other's
 * segment; a pair talks through shared memory if both could open the other's, else over TCP. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>
#include "meet.h"

/* --- the store */
static tn_status put(const struct tn_meeting *m, const char *what, const void *data, uint64_t bytes)
{
    char key[128];

    snprintf(key, sizeof key, "%s/%s/%u", m->prefix, what, m->c->rank);
    return m->store->set(key, data, bytes);
}

static tn_status get(const struct tn_meeting *m, const char *what, uint32_t rank, void *data, uint64_t *bytes)
{
    double left = m->until - tn_now();
    char key[128], group[100];
    tn_status status;

    snprintf(key, sizeof key, "%s/%s/%u", m->prefix, what, rank);
    status = m->store->get(key, data, bytes, left > 0.01 ? left : 0.01);
    if (status != TN_ERR_TIMEOUT)
        return status; /* the store knows better, if a rank has failed */
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

tn_status tn_meeting_introduce(struct tn_meeting *m)
{
    struct tn_comm *c = m->c;
    struct tn_who *me = &m->who[c->rank];
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

int tn_who_same_host(const struct tn_who *a, const struct tn_who *b)
{
    return !strcmp(a->host, b->host) && !strcmp(a->boot, b->boot) && *a->boot;
}

/* The one that the host found when the ranks met is better than a guess: it leads to rank 0. */
tn_status tn_meeting_address(struct tn_meeting *m)
{
    struct tn_who *me = &m->who[m->c->rank];
    char key[40], known[sizeof me->address] = "";
    uint64_t bytes = sizeof known - 1;
    const char *name = getenv("TENON_IFACE");

    snprintf(key, sizeof key, "tenon/address/%u", m->c->rank);
    if ((!name || !*name) && m->store->get(key, known, &bytes, 0.01) == TN_OK && *known &&
        !tn_address_is_loopback(known) && tn_address_known(known, me->interface, sizeof me->interface)) {
        memcpy(me->address, known, sizeof known);
        return TN_OK;
    }
    return tn_address_find(me->address, sizeof me->address, me->interface, sizeof me->interface);
}

tn_status tn_meeting_meet(struct tn_meeting *m)
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
static void try_segments(struct tn_meeting *m, uint32_t *reach)
{
    struct tn_comm *c = m->c;
    const struct tn_who *me = &m->who[c->rank];

    for (uint32_t p = 0; p < c->n; p++) {
        const struct tn_who *w = &m->who[p];
        if (p != c->rank && me->fd >= 0 && w->fd >= 0 && tn_who_same_host(w, me))
            reach[p] = tn_segment_join(c, p, w->pid, w->fd, w->nonce) == TN_OK;
    }
}

tn_status tn_meeting_agree(struct tn_meeting *m)
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

static tn_status check_address(const struct tn_meeting *m, uint32_t p)
{
    const struct tn_who *me = &m->who[m->c->rank], *w = &m->who[p];
    uint32_t loop = tn_address_is_loopback(me->address) ? m->c->rank : p;

    if (tn_who_same_host(me, w) ||
        (!tn_address_is_loopback(me->address) && !tn_address_is_loopback(w->address)))
        return TN_OK;
    return tn_error(
        TN_ERR_CONFIG,
        "gloo: ranks %u (%s) and %u (%s) are on two hosts, but rank %u has only the loopback address %s; "
        "name its interface by TENON_IFACE",
        m->c->rank, me->host, p, w->host, loop, m->who[loop].address);
}

static tn_status connect_all(struct tn_meeting *m, uint8_t *all)
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

tn_status tn_meeting_tcp(struct tn_meeting *m)
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

tn_status tn_meeting_new(struct tn_comm *c, double seconds, struct tn_meeting *m)
{
    *m = (struct tn_meeting){.c = c, .fd = -1, .until = tn_now() + seconds};
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

void tn_meeting_end(struct tn_meeting *m)
{
    if (m->fd >= 0)
        close(m->fd);
    free(m->who);
    free(m->near);
}

void tn_meeting_log(const struct tn_meeting *m)
{
    char near[120] = "", far[120] = "", text[400];
    const struct tn_who *me = &m->who[m->c->rank];

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
        if (p != m->c->rank && !m->near[p] && tn_who_same_host(me, &m->who[p])) {
            snprintf(text, sizeof text, "gloo: rank %u reaches rank %u on its own host by TCP only: %s",
                     m->c->rank, p,
                     no_shared_memory() ? "TENON_SHM=no"
                                        : "its memory cannot be opened (another user or container?)");
            tn_host->log(no_shared_memory() ? 2 : 1, text);
        }
}
