/* world.c - communicators made and ended: the world, its groups, the thread.
 *
 * A group has segments and streams of its own, for its members. Keys in the store carry the number of the
 * world in its process and of the group among those with the same ranks, so a second world or group never
 * meets the keys of the first. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "meet.h"

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
    c->loan_step = tn_loan_step(n);
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
        if (c->stream[p].link)
            tn_link_stream_free(c->stream[p].link);
    tn_engine_free(c);
    tn_segment_free(c);
    free(c->ranks);
    free(c->stream);
    free(c);
}

static void know_peers(struct tn_meeting *m)
{
    struct tn_world *w = m->c->world;
    uint32_t here = 1;

    for (uint32_t p = 0; p < w->size; p++) {
        here += p != w->rank && tn_who_same_host(&m->who[p], &m->who[w->rank]);
        w->peer[p].pidfd = -1;
        if (p == w->rank)
            continue;
        if (m->near[p])
            w->peer[p].segment = m->c->stream[p].theirs;
        if (m->near[p] || tn_who_same_processes(&m->who[p], &m->who[w->rank]))
            w->peer[p].pidfd = (int32_t)syscall(SYS_pidfd_open, (pid_t)m->who[p].pid, 0);
    }
    w->spin = here <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) ? 100e-6 : 0;
    w->patience = w->spin;
}

static tn_status start_thread(struct tn_world *w)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&w->thread, NULL, tn_world_thread, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? tn_error(TN_ERR, TN_SELF ": no thread for communication: %s", strerror(failed)) : TN_OK;
}

static tn_status meet_world(struct tn_meeting *m)
{
    struct tn_world *w = m->c->world;
    tn_status s;

    snprintf(m->prefix, sizeof m->prefix, TN_SELF "/%llu", (unsigned long long)w->instance);
    if ((s = tn_meeting_introduce(m)) < 0)
        return s;
    w->board = &m->c->mine->board;
    for (uint32_t p = 0; p < w->size; p++)
        w->peer[p].pidfd = -1;
    if (w->size == 1)
        return start_thread(w);
    if ((s = tn_link_prepare(m)) < 0 || (s = tn_meeting_meet(m)) < 0 || (s = tn_meeting_agree(m)) < 0)
        return s;
    know_peers(m);
    tn_meeting_log(m);
    if ((s = tn_link_connect(m)) < 0)
        return s;
    if (w->link && !tn_link_polls) /* what is waited for comes by threads that want the processor */
        w->spin = w->patience = 0;
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
    struct tn_meeting m = {0};
    tn_status s;

    if (!c || !(w->peer = calloc(size, sizeof *w->peer))) {
        tn_comm_free(c);
        free(w);
        return tn_error(TN_ERR_MEMORY, TN_SELF ": no memory for %u ranks", size);
    }
    w->rank = rank;
    w->size = size;
    w->seconds = seconds;
    w->instance = ++instance;
    w->users = 1;
    w->comms = c;
    pthread_mutex_init(&w->engine, NULL);
    pthread_mutex_init(&w->inbox, NULL);
    s = tn_meeting_new(c, seconds, &m);
    if (s >= 0)
        s = meet_world(&m);
    tn_meeting_end(&m);
    if (s < 0) {
        tn_link_failed();
        if (w->link)
            tn_link_stop(w->link);
        tn_comm_free(c);
        if (w->link)
            tn_link_close(w->link);
        world_free(w);
        return s;
    }
    *out = c;
    return TN_OK;
}

/* A connection that is closed with something unread takes along what was on its way out, a verdict maybe. */
static void linger(struct tn_world *w)
{
    const double until = tn_now() + 0.3;
    int left = 1;

    while (left && tn_now() < until) {
        left = 0;
        for (uint32_t p = 0; p < w->size; p++)
            left |= p != w->rank && !w->peer[p].segment && !w->peer[p].gone;
        tn_link_poll(w->link);
        tn_world_look(w);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

/* The last communicator is closed: ends the thread, then frees all. */
void tn_world_close(struct tn_world *w, struct tn_comm *last)
{
    if (w->link && atomic_load(&w->dead))
        linger(w);
    atomic_store(&w->stop, 1);
    tn_bell_ring(&w->board->ask_bell);
    tn_bell_ring(&w->board->bell);
    pthread_join(w->thread, NULL);
    if (w->link)
        tn_link_stop(w->link);
    tn_comm_free(last);
    if (w->link)
        tn_link_close(w->link);
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
            return tn_error(TN_ERR, TN_SELF ": a group with rank %u in a world of %u", ranks[i], w->size);
        for (uint32_t j = 0; j < i; j++)
            if (ranks[i] == ranks[j])
                return tn_error(TN_ERR, TN_SELF ": a group with rank %u twice", ranks[i]);
        if (ranks[i] == w->rank) {
            *place = i;
            found = 1;
        }
    }
    return found ? TN_OK : tn_error(TN_ERR, TN_SELF ": rank %u makes a group that it is not in", w->rank);
}

static tn_status meet_group(struct tn_meeting *m)
{
    struct tn_comm *c = m->c;
    struct tn_world *w = c->world;
    tn_status s = tn_meeting_introduce(m);

    snprintf(m->prefix, sizeof m->prefix, TN_SELF "/%llu/%016llx", (unsigned long long)w->instance,
             (unsigned long long)c->tag);
    for (uint32_t p = 0; p < c->n && s >= 0; p++)
        if (p != c->rank && !w->peer[c->ranks[p]].segment)
            s = tn_link_stream_new(w->link, c->ranks[p], c->tag, &c->stream[p].link);
    if (c->n == 1 || s < 0)
        return s;
    if ((s = tn_meeting_meet(m)) < 0 || (s = tn_meeting_agree(m)) < 0)
        return s;
    for (uint32_t p = 0; p < c->n; p++)
        if (p != c->rank && !m->near[p] && w->peer[c->ranks[p]].segment)
            return tn_error(
                TN_ERR, TN_SELF ": rank %u shares memory with rank %u in the world, but not in a group: %s",
                w->rank, c->ranks[p], "no more memory, or no more files");
    return TN_OK;
}

tn_status tn_world_group(struct tn_world *w, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    uint32_t place = 0;
    struct tn_comm *c;
    struct tn_meeting m;
    tn_status s = atomic_load(&w->dead) ? tn_world_failed(w) : find_place(w, ranks, n, &place);

    if (s < 0)
        return s;
    if (!(c = comm_new(w, ranks, place, n)))
        return tn_error(TN_ERR_MEMORY, TN_SELF ": no memory for a group of %u ranks", n);
    c->tag = tag_of(w, ranks, n);
    s = tn_meeting_new(c, w->seconds, &m);
    if (s >= 0 && !c->tag)
        s = tn_error(TN_ERR_MEMORY, TN_SELF ": no memory for a group of %u ranks", n);
    if (s >= 0)
        s = meet_group(&m);
    tn_meeting_end(&m);
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
