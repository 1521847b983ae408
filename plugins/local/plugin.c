/* local - a communicator whose ranks are threads of one process.
 *
 * For tests of strategies, under sanitizers and without a launcher: what N processes would send, N threads read from each
 * other's memory. Whoever comes last does the work for all: a collective when all ranks of the group have started it,
 * a message when both its ends have; results are made from everybody's input before any is stored, so in place needs no
 * care, and a wait only waits. Sums are added in the order of ranks. Its score is the lowest there is: somebody has to name
 * it. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "local.h"

#define MOST 32

struct slot {                                    /* one collective start of a group */
    struct slot *next;
    uint64_t number;
    uint32_t arrived, reserved0;
    struct tn_request *of[MOST];                 /* by rank */
};

struct mail {                                    /* one end of a message; the other one is not there yet */
    struct mail *next;
    uint32_t from, to, is_send, reserved0;
    uint64_t number;                             /* of this sender to this receiver */
    const struct tn_transfer *what;
    struct tn_request *of;
};

struct group {
    struct group *next;
    uint32_t n, members, ranks[MOST];            /* ranks of the world, in order; members: who has opened it */
    struct slot *slots;
    struct mail *mail;
    uint64_t sends[MOST * MOST], receives[MOST * MOST];      /* started so far, [from][to] */
};

struct tn_comm {
    struct group *group;
    uint32_t rank, size;                         /* within the group */
    uint64_t number;                             /* of collective starts so far */
};

struct tn_request {
    struct tn_comm *comm;
    uint32_t n, pending;                         /* pending: parts that are not done */
    uint64_t *counts;                            /* of all transfers: the caller's are borrowed for the start only */
    struct tn_transfer t[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct group *groups;
static int dead;
static char why[300];                            /* it is dead */

static tn_status probe(uint32_t *score, char *reason, uint64_t reason_size)
{
    *score = 1;
    snprintf(reason, reason_size, "threads as ranks, for tests");
    return TN_OK;
}

/* Lock held. The first reason stays. */
static void die(const char *text)
{
    if (!dead)
        snprintf(why, sizeof why, "%s", text);
    dead = 1;
    pthread_cond_broadcast(&changed);
}

/* --- groups */

/* The oldest group of these ranks that this rank has not opened yet. Lock held; NULL: no memory. */
static struct group *find_group(const uint32_t *ranks, uint32_t n, uint32_t place)
{
    struct group **at = &groups;

    for (; *at; at = &(*at)->next)
        if ((*at)->n == n && !memcmp((*at)->ranks, ranks, n * sizeof *ranks) && !((*at)->members >> place & 1))
            return *at;
    if ((*at = calloc(1, sizeof **at))) {
        (*at)->n = n;
        memcpy((*at)->ranks, ranks, n * sizeof *ranks);
    }
    return *at;
}

static tn_status join(const uint32_t *ranks, uint32_t n, uint32_t place, struct tn_comm **out)
{
    struct tn_comm *c = calloc(1, sizeof *c);

    if (!c)
        return tn_error(TN_ERR_MEMORY, "local: no memory for a group");
    pthread_mutex_lock(&lock);
    c->group = dead ? NULL : find_group(ranks, n, place);
    if (c->group)
        c->group->members |= 1u << place;
    pthread_mutex_unlock(&lock);
    if (!c->group) {
        free(c);
        return dead ? tn_error(TN_ERR, "local: %s", why) : tn_error(TN_ERR_MEMORY, "local: no memory for a group");
    }
    c->rank = place, c->size = n;
    *out = c;
    return TN_OK;
}

static tn_status comm_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    uint32_t all[MOST];

    (void)seconds;
    *world = NULL;
    if (rank >= size || size > MOST)
        return tn_error(TN_ERR_CONFIG, "local: rank %u of %u; threads of one process can be %d", rank, size, MOST);
    for (uint32_t i = 0; i < size; i++)
        all[i] = i;
    return join(all, size, rank, world);
}

static tn_status comm_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    uint32_t place = n;

    *out = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (ranks[i] >= world->group->n)
            return tn_error(TN_ERR, "local: a group with rank %u, and there are %u", ranks[i], world->group->n);
        if (ranks[i] == world->group->ranks[world->rank])
            place = i;
    }
    if (place == n)
        return tn_error(TN_ERR, "local: rank %u is not in the group it opens", world->rank);
    return join(ranks, n, place, out);
}

/* --- what is done by who comes last. Lock held. */

static void finish(struct tn_request *r)
{
    r->pending--;
    pthread_cond_broadcast(&changed);
}

/* Item i of every rank's list, of which all are there. */
static tn_status together(const struct slot *slot, uint32_t size, uint32_t i)
{
    const struct tn_transfer *all[MOST];
    void *result[MOST] = {NULL};
    tn_status s = TN_OK;

    for (uint32_t k = 0; k < size; k++)
        all[k] = slot->of[k]->n == slot->of[0]->n ? &slot->of[k]->t[i] : NULL;
    for (uint32_t k = 0; k < size && !s; k++)
        s = local_result(all, size, k, &result[k]);
    for (uint32_t k = 0; k < size; k++) {
        if (!s)
            local_store(all[k], size, k, result[k]);
        free(result[k]);
    }
    return s;
}

static tn_status arrive(struct tn_comm *c, struct tn_request *r)
{
    struct slot **at = &c->group->slots, *slot;
    tn_status s = TN_OK;

    while (*at && (*at)->number != c->number)
        at = &(*at)->next;
    if (!*at && !(*at = calloc(1, sizeof **at)))
        return tn_error(TN_ERR_MEMORY, "local: no memory for a collective");
    slot = *at;
    slot->number = c->number++;
    slot->of[c->rank] = r;
    if (++slot->arrived < c->size)
        return TN_OK;
    for (uint32_t i = 0; i < r->n && !s; i++)
        s = together(slot, c->size, i);
    if (s)
        return s;                                /* the world is dead now, and nobody is done */
    for (uint32_t k = 0; k < c->size; k++)
        finish(slot->of[k]);
    *at = slot->next;
    free(slot);
    return s;
}

static tn_status deliver(const struct tn_transfer *send, const struct tn_transfer *take, uint32_t from, uint32_t to)
{
    if (send->count != take->count || send->dtype != take->dtype)
        return tn_error(TN_ERR_SHAPE, "local: rank %u sends %llu elements of dtype %u, rank %u expects %llu of dtype %u", from,
                        (unsigned long long)send->count, send->dtype, to, (unsigned long long)take->count, take->dtype);
    if (take->count)
        memcpy(take->to, send->from, take->count * local_width(take->dtype));
    return TN_OK;
}

/* One end of a message: the other is there, or it waits. */
static tn_status post(struct tn_comm *c, struct tn_request *r, const struct tn_transfer *t)
{
    const uint32_t is_send = t->op == TN_SEND, from = is_send ? c->rank : t->peer, to = is_send ? t->peer : c->rank;
    const uint64_t number = (is_send ? c->group->sends : c->group->receives)[from * MOST + to]++;
    struct mail **at = &c->group->mail, *m;
    tn_status s;

    while (*at && ((*at)->from != from || (*at)->to != to || (*at)->number != number || (*at)->is_send == is_send))
        at = &(*at)->next;
    if (!*at) {
        if (!(*at = calloc(1, sizeof **at)))
            return tn_error(TN_ERR_MEMORY, "local: no memory for a message");
        **at = (struct mail){.from = from, .to = to, .is_send = is_send, .number = number, .what = t, .of = r};
        return TN_OK;
    }
    m = *at;
    s = deliver(is_send ? t : m->what, is_send ? m->what : t, from, to);
    if (s)
        return s;
    finish(m->of), finish(r);
    *at = m->next;
    free(m);
    return s;
}

/* --- starting */

static int is_pair(const struct tn_transfer *t)
{
    return t->op == TN_SEND || t->op == TN_RECV;
}

static tn_status check(const struct tn_comm *c, const struct tn_transfer *t)
{
    const int has_peer = is_pair(t) || t->op == TN_BROADCAST, reduces = t->op == TN_ALL_REDUCE || t->op == TN_REDUCE_SCATTER;

    if (t->op < TN_ALL_REDUCE || t->op > TN_BARRIER)
        return tn_error(TN_ERR, "local: there is no operation %u", t->op);
    if (t->op != TN_BARRIER && !local_width(t->dtype))
        return tn_error(TN_ERR, "local: there is no dtype %u", t->dtype);
    if (reduces && (t->reduce < TN_SUM || t->reduce > TN_MIN))
        return tn_error(TN_ERR, "local: there is no reduction %u", t->reduce);
    if (has_peer && t->peer >= c->size)
        return tn_error(TN_ERR, "local: rank %u of %u is no peer", t->peer, c->size);
    return TN_OK;
}

/* Counts are copied behind each other: two lists for a transfer. */
static struct tn_request *new_request(struct tn_comm *c, const struct tn_transfer *t, uint32_t n)
{
    struct tn_request *r = calloc(1, sizeof *r + n * sizeof *t);
    uint64_t *at = r ? r->counts = calloc((size_t)n * 2 * c->size + 1, sizeof *at) : NULL;

    if (!at)
        return free(r), NULL;
    r->comm = c, r->n = n;
    for (uint32_t i = 0; i < n; i++, at += 2 * c->size) {
        r->t[i] = t[i];
        if (t[i].counts)
            r->t[i].counts = memcpy(at, t[i].counts, c->size * sizeof *at);
        if (t[i].counts_in)
            r->t[i].counts_in = memcpy(at + c->size, t[i].counts_in, c->size * sizeof *at);
    }
    return r;
}

static tn_status begin(struct tn_comm *c, struct tn_request *r)
{
    int collective = 0;
    tn_status s = TN_OK;

    if (dead)
        return tn_error(TN_ERR, "local: %s", why);
    for (uint32_t i = 0; i < r->n; i++)
        collective |= !is_pair(&r->t[i]), r->pending += is_pair(&r->t[i]);
    r->pending += collective != 0;
    for (uint32_t i = 0; i < r->n && !s; i++)
        if (is_pair(&r->t[i]))
            s = post(c, r, &r->t[i]);
    return s || !collective ? s : arrive(c, r);
}

static tn_status comm_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream, struct tn_request **out)
{
    char text[200];
    tn_status s = TN_OK;

    (void)stream;
    *out = NULL;
    for (uint32_t i = 0; i < n && !s; i++)
        s = check(c, &t[i]);
    if (s)
        return s;
    if (!(*out = new_request(c, t, n)))
        return tn_error(TN_ERR_MEMORY, "local: no memory for a list of %u transfers", n);
    pthread_mutex_lock(&lock);
    s = begin(c, *out);
    if (dead) {                                  /* nothing was begun */
        free((*out)->counts), free(*out);
        *out = NULL;
    } else if (s) {
        snprintf(text, sizeof text, "rank %u failed", c->group->ranks[c->rank]);
        die(text);                               /* it, and who waits for it; what it had posted stays where it is */
        *out = NULL;
    }
    pthread_mutex_unlock(&lock);
    return s;
}

/* --- waiting */

/* Who is not there? Lock held. */
static void name_missing(const struct tn_request *r, char *out, size_t room)
{
    const struct group *g = r->comm->group;

    for (const struct slot *s = g->slots; s; s = s->next)
        for (uint32_t k = 0; s->of[r->comm->rank] == r && k < r->comm->size; k++)
            if (!s->of[k]) {
                snprintf(out, room, "rank %u did not come to collective %llu in time", g->ranks[k], (unsigned long long)s->number);
                return;
            }
    for (const struct mail *m = g->mail; m; m = m->next)
        if (m->of == r) {
            snprintf(out, room, "rank %u did not %s rank %u in time", g->ranks[m->is_send ? m->to : m->from],
                     m->is_send ? "receive from" : "send to", g->ranks[m->is_send ? m->from : m->to]);
            return;
        }
    snprintf(out, room, "rank %u waited in vain", g->ranks[r->comm->rank]);
}

static tn_status comm_wait(struct tn_request *r, double seconds)
{
    struct timespec end;
    char text[300];
    double until;
    int over, late = 0;

    clock_gettime(CLOCK_REALTIME, &end);
    until = (double)end.tv_nsec * 1e-9 + (seconds > 0 ? fmin(seconds, 1e8) : 0);
    end.tv_sec += (time_t)until, end.tv_nsec = (long)((until - floor(until)) * 1e9);
    pthread_mutex_lock(&lock);
    while (r->pending && !dead && seconds > 0 && !late)
        late = pthread_cond_timedwait(&changed, &lock, &end) == ETIMEDOUT;
    if (r->pending && !dead && seconds <= 0) {
        pthread_mutex_unlock(&lock);
        return TN_DECLINED;
    }
    over = r->pending && !dead;
    if (over) {
        name_missing(r, text, sizeof text);
        die(text);
    }
    snprintf(text, sizeof text, "%s", why);
    late = r->pending != 0;
    pthread_mutex_unlock(&lock);
    if (!late) {                                 /* else others may still read it */
        free(r->counts);
        free(r);
        return TN_OK;
    }
    return over ? tn_error(TN_ERR_TIMEOUT, "local: %s", text) : tn_error(TN_ERR, "local: %s", text);
}

static void comm_abort(struct tn_comm *c)
{
    char text[80];

    pthread_mutex_lock(&lock);
    snprintf(text, sizeof text, "rank %u aborted", c->group->ranks[c->rank]);
    die(text);
    pthread_mutex_unlock(&lock);
}

/* What a failure left in a group is lost, for others may hold it. */
static void comm_close(struct tn_comm *c)
{
    struct group **at = &groups;

    if (!c)
        return;
    pthread_mutex_lock(&lock);
    c->group->members &= ~(1u << c->rank);
    while (*at && *at != c->group)
        at = &(*at)->next;
    if (*at && !c->group->members && (dead || (!c->group->slots && !c->group->mail))) {
        *at = c->group->next;
        free(c->group);
    }
    if (!groups)
        dead = 0;
    pthread_mutex_unlock(&lock);
    free(c);
}

static const char *const devices[] = {"cpu", NULL};

static const struct tn_comm_api local = {
    .struct_size = sizeof local,
    .devices = devices,
    .probe = probe,
    .open = comm_open,
    .group = comm_group,
    .start = comm_start,
    .wait = comm_wait,
    .abort = comm_abort,
    .close = comm_close,
};

TN_PLUGIN("local", "0.1.0", "threads of one process as ranks, for tests", TN_COMM_ID, &local);
