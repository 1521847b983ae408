/* meet.c - ranks of a communicator find each other through the host's store, and agree on how they talk.
 *
 * Each rank says who it is: host, process, segment, address. Those that seem to share a host try each other's
 * segment; a pair talks through shared memory if both could open the other's, else over the link. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "meet.h"

#define SEGMENT 1u /* what a rank reaches of another one: its shared memory, */
#define MEMORY 2u  /* all of its memory, to read */

/* --- the store */
tn_status tn_meeting_put(const struct tn_meeting *m, const char *what, const void *data, uint64_t bytes)
{
    char key[128];

    snprintf(key, sizeof key, "%s/%s/%u", m->prefix, what, m->c->rank);
    return m->store->set(key, data, bytes);
}

tn_status tn_meeting_get(const struct tn_meeting *m, const char *what, uint32_t rank, void *data,
                         uint64_t *bytes)
{
    double left = m->until - tn_now();
    char key[128], group[100];
    tn_status status;

    snprintf(key, sizeof key, "%s/%s/%u", m->prefix, what, rank);
    status = m->store->get(key, data, bytes, left > 0.01 ? left : 0.01);
    if (status != TN_ERR_TIMEOUT)
        return status; /* the store knows better, if a rank has failed */
    tn_comm_say(m->c, group, sizeof group);
    return tn_error(TN_ERR_TIMEOUT, TN_SELF ": opening %s: rank %u did not come within %g s (%s/%s)", group,
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
    struct stat space;

    if (s < 0)
        return s;
    if (getrandom(&me->nonce, sizeof me->nonce, 0) != sizeof me->nonce)
        me->nonce = (uint64_t)(tn_now() * 1e9);
    c->mine->nonce = me->nonce;
    me->pid = getpid();
    me->pids = stat("/proc/self/ns/pid", &space) ? 0 : space.st_ino;
    me->fd = no_shared_memory() ? -1 : m->fd;
    me->nonce_at = tn_loans_wanted() ? (uintptr_t)&c->mine->nonce : 0;
    if (c->n > 1 && me->fd >= 0 && me->nonce_at)
        tn_loans_permit();
    gethostname(me->host, sizeof me->host - 1);
    read_line("/proc/sys/kernel/random/boot_id", me->boot, sizeof me->boot);
    return TN_OK;
}

int tn_who_same_host(const struct tn_who *a, const struct tn_who *b)
{
    return !strcmp(a->host, b->host) && !strcmp(a->boot, b->boot) && *a->boot;
}

int tn_who_same_processes(const struct tn_who *a, const struct tn_who *b)
{
    return tn_who_same_host(a, b) && a->pids && a->pids == b->pids;
}

tn_status tn_meeting_meet(struct tn_meeting *m)
{
    struct tn_comm *c = m->c;
    tn_status s = tn_meeting_put(m, "who", &m->who[c->rank], sizeof *m->who);

    for (uint32_t p = 0; p < c->n && s >= 0; p++) {
        uint64_t bytes = sizeof *m->who;
        if (p == c->rank)
            continue;
        s = tn_meeting_get(m, "who", p, &m->who[p], &bytes);
        if (s >= 0 && bytes != sizeof *m->who)
            s = tn_error(TN_ERR, TN_SELF ": rank %u runs another version of this plugin", c->ranks[p]);
    }
    return s;
}

/* Tries the segments of ranks here; reach[p]: is it within reach, and is its memory. */
static void try_segments(struct tn_meeting *m, uint32_t *reach)
{
    struct tn_comm *c = m->c;
    const struct tn_who *me = &m->who[c->rank];

    for (uint32_t p = 0; p < c->n; p++) {
        const struct tn_who *w = &m->who[p];
        if (p != c->rank && me->fd >= 0 && w->fd >= 0 && tn_who_same_host(w, me))
            reach[p] = tn_segment_join(c, p, w->pid, w->fd, w->nonce) == TN_OK ? SEGMENT : 0;
        if (reach[p] && w->nonce_at && tn_who_same_processes(w, me) &&
            tn_loans_possible(w->pid, w->nonce_at, w->nonce))
            reach[p] |= MEMORY;
    }
}

/* What this rank found of a near one, and that of this one. */
static tn_status agree(struct tn_comm *c, uint32_t p, uint32_t ours, uint32_t theirs)
{
    struct tn_stream *s = &c->stream[p];

    s->may_borrow = ours & MEMORY;
    s->may_lend = theirs & MEMORY;
    if (s->may_borrow && !c->scratch && !(c->scratch = aligned_alloc(TN_LINE, c->n * c->loan_step)))
        return tn_error(TN_ERR_MEMORY, TN_SELF ": no memory for a communicator");
    return TN_OK;
}

tn_status tn_meeting_agree(struct tn_meeting *m)
{
    struct tn_comm *c = m->c;
    uint32_t *reach = calloc(2 * c->n, sizeof *reach);
    tn_status s;

    if (!reach)
        return tn_error(TN_ERR_MEMORY, TN_SELF ": no memory for a communicator");
    try_segments(m, reach);
    s = tn_meeting_put(m, "reach", reach, c->n * sizeof *reach);
    for (uint32_t p = 0; p < c->n && s >= 0; p++) {
        uint64_t bytes = c->n * sizeof *reach;
        if (p == c->rank)
            continue;
        s = tn_meeting_get(m, "reach", p, reach + c->n, &bytes);
        m->near[p] = s >= 0 && reach[p] && reach[c->n + c->rank];
        if (!m->near[p])
            c->stream[p].theirs = NULL;
        else
            s = agree(c, p, reach[p], reach[c->n + c->rank]);
    }
    free(reach);
    return s;
}

tn_status tn_meeting_new(struct tn_comm *c, double seconds, struct tn_meeting *m)
{
    *m = (struct tn_meeting){.c = c, .fd = -1, .until = tn_now() + seconds};
    m->store = tn_host && tn_host->interface ? tn_host->interface(TN_STORE_ID) : NULL;
    m->who = calloc(c->n, sizeof *m->who);
    m->near = calloc(c->n, sizeof *m->near);
    if (!m->who || !m->near || !c->ranks || !c->stream)
        return tn_error(TN_ERR_MEMORY, TN_SELF ": no memory for a communicator");
    if (c->n > 1 && !m->store)
        return tn_error(TN_ERR_CONFIG,
                        TN_SELF ": %u ranks need a store to find each other, and this program has none",
                        c->n);
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
    snprintf(text, sizeof text, TN_SELF ": rank %u of %u on %s%s%s%s%s%s; shared memory with:%s; %s with:%s",
             m->c->rank, m->c->n, me->host, *me->address ? ", address " : "", me->address,
             *me->address ? " (" : "", me->interface, *me->address ? ")" : "", *near ? near : " none",
             tn_link_kind, *far ? far : " none");
    tn_host->log(2, text);
    for (uint32_t p = 0; p < m->c->n; p++)
        if (p != m->c->rank && !m->near[p] && tn_who_same_host(me, &m->who[p])) {
            snprintf(text, sizeof text, TN_SELF ": rank %u reaches rank %u on its own host by %s only: %s",
                     m->c->rank, p, tn_link_kind,
                     no_shared_memory() ? "TENON_SHM=no"
                                        : "its memory cannot be opened (another user or container?)");
            tn_host->log(no_shared_memory() ? 2 : 1, text);
        }
}
