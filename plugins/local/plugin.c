/* local - a communicator whose ranks are threads of one process.
 *
 * For tests of strategies, under sanitizers and without a launcher: what N processes would send, N threads read from each
 * other's memory. A collective is complete when all ranks of the group have started it; each rank then makes its own
 * result from everybody's input, waits until nobody reads its input any more, and stores. So in place needs no care, and
 * sums are added in the order of ranks. Its score is the lowest there is: somebody has to name it. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "local.h"

struct slot {                                    /* one collective start of a group */
    struct slot *next;
    uint64_t number;
    uint32_t arrived, read;
    struct tn_request **of;                      /* by rank */
};

struct mail {                                    /* a send that waits for its receive */
    struct mail *next;
    uint32_t from, to, taken, reserved0;
    uint64_t number;                             /* of this sender to this receiver: meets the receive of that number */
    const struct tn_transfer *what;
};

struct group {
    struct group *next;
    uint32_t n, members, *ranks;                 /* ranks of the world, in order; members: who has opened it */
    struct slot *slots;
    struct mail *mail;                           /* oldest first */
    uint64_t *sends, *receives;                  /* started so far, [from][to] */
};

struct tn_comm {
    struct group *group;
    uint32_t rank, size;                         /* within the group */
    uint64_t number;                             /* of starts so far */
};

struct tn_request {
    struct tn_comm *comm;
    struct slot *slot;                           /* NULL: sends and receives only */
    uint32_t n, reserved0;
    struct mail **mail;                          /* of the sends */
    uint64_t *number;                            /* of the receives */
    struct tn_transfer t[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct group *groups;
static int dead;

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "threads as ranks, for tests");
    return TN_OK;
}

static int same_ranks(const struct group *g, const uint32_t *ranks, uint32_t n)
{
    return g->n == n && !memcmp(g->ranks, ranks, n * sizeof *ranks);
}

/* The oldest group of these ranks that this rank has not opened yet. Lock held. */
static struct group *find_group(const uint32_t *ranks, uint32_t n, uint32_t place)
{
    struct group **at = &groups, *g;

    for (; *at; at = &(*at)->next)
        if (same_ranks(*at, ranks, n) && !((*at)->members >> place & 1))
            return *at;
    g = *at = calloc(1, sizeof *g);
    g->ranks = malloc(n * sizeof *ranks);
    g->sends = calloc(n * n, sizeof *g->sends), g->receives = calloc(n * n, sizeof *g->receives);
    memcpy(g->ranks, ranks, n * sizeof *ranks);
    g->n = n;
    return g;
}

static tn_status join(const uint32_t *ranks, uint32_t n, uint32_t place, struct tn_comm **out)
{
    struct tn_comm *c = calloc(1, sizeof *c);

    if (n > 32)
        return free(c), tn_error(TN_ERR_CONFIG, "local: %u ranks; threads of one process can be 32", n);
    pthread_mutex_lock(&lock);
    c->group = find_group(ranks, n, place);
    c->group->members |= 1u << place;
    pthread_mutex_unlock(&lock);
    c->rank = place, c->size = n;
    *out = c;
    return TN_OK;
}

static tn_status comm_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    uint32_t all[32];

    (void)seconds;
    for (uint32_t i = 0; i < size && i < 32; i++)
        all[i] = i;
    return join(all, size, rank, world);
}

static tn_status comm_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    for (uint32_t i = 0; i < n; i++)
        if (ranks[i] == world->group->ranks[world->rank])
            return join(ranks, n, i, out);
    return tn_error(TN_ERR, "local: rank %u is not in the group it opens", world->rank);
}

/* --- starting */

static struct slot *arrive(struct tn_comm *c, struct tn_request *r)
{
    struct slot **at = &c->group->slots;

    while (*at && (*at)->number != c->number)
        at = &(*at)->next;
    if (!*at) {
        *at = calloc(1, sizeof **at);
        (*at)->number = c->number;
        (*at)->of = calloc(c->size, sizeof *(*at)->of);
    }
    (*at)->of[c->rank] = r;
    (*at)->arrived++;
    return *at;
}

static struct mail *post(struct tn_comm *c, const struct tn_transfer *t)
{
    struct mail **at = &c->group->mail, *m = calloc(1, sizeof *m);

    *m = (struct mail){.from = c->rank, .to = t->peer, .number = c->group->sends[c->rank * c->size + t->peer]++, .what = t};
    while (*at)
        at = &(*at)->next;
    return *at = m;
}

static int is_pair(const struct tn_transfer *t)
{
    return t->op == TN_SEND || t->op == TN_RECV;
}

static tn_status comm_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream, struct tn_request **out)
{
    struct tn_request *r = calloc(1, sizeof *r + n * sizeof *t);
    int together = 0;

    (void)stream;
    r->comm = c, r->n = n;
    r->mail = calloc(n + 1, sizeof *r->mail), r->number = calloc(n + 1, sizeof *r->number);
    memcpy(r->t, t, n * sizeof *t);
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n; i++) {
        if (t[i].op == TN_SEND)
            r->mail[i] = post(c, &r->t[i]);
        if (t[i].op == TN_RECV)
            r->number[i] = c->group->receives[t[i].peer * c->size + c->rank]++;
        together |= !is_pair(&t[i]);
    }
    if (together) {
        c->number++;
        r->slot = arrive(c, r);
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    *out = r;
    return TN_OK;
}

/* --- waiting */

/* Lock held. 0: the time is over. */
static int pause_until(const struct timespec *end)
{
    return pthread_cond_timedwait(&changed, &lock, end) != ETIMEDOUT;
}

static struct mail *find_mail(const struct tn_comm *c, const struct tn_transfer *t, uint64_t number)
{
    struct mail *m = c->group->mail;

    while (m && (m->to != c->rank || m->from != t->peer || m->number != number))
        m = m->next;
    return m;
}

static void unlink_mail(struct group *g, struct mail *m)
{
    struct mail **at = &g->mail;

    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    free(m);
}

static tn_status receive(struct tn_comm *c, const struct tn_transfer *t, uint64_t number, const struct timespec *end)
{
    struct mail *m;

    while (!(m = find_mail(c, t, number)) && !dead)
        if (!pause_until(end))
            return tn_error(TN_ERR_TIMEOUT, "local: rank %u waited in vain for rank %u to send", c->rank, t->peer);
    if (dead)
        return tn_error(TN_ERR, "local: another rank has failed");
    if (m->what->count != t->count || m->what->dtype != t->dtype)
        return tn_error(TN_ERR_SHAPE, "local: rank %u sends %llu elements, rank %u expects %llu", t->peer, (unsigned long long)m->what->count,
                        c->rank, (unsigned long long)t->count);
    if (t->count)
        memcpy(t->to, m->what->from, t->count * local_width(t->dtype));
    m->taken = 1;
    pthread_cond_broadcast(&changed);
    return TN_OK;
}

static tn_status pairs(struct tn_request *r, const struct timespec *end)
{
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < r->n && !s; i++)
        if (r->t[i].op == TN_RECV)
            s = receive(r->comm, &r->t[i], r->number[i], end);
    for (uint32_t i = 0; i < r->n && !s; i++) {
        while (r->mail[i] && !r->mail[i]->taken && !dead && !s)
            if (!pause_until(end))
                s = tn_error(TN_ERR_TIMEOUT, "local: rank %u did not receive from rank %u in time", r->t[i].peer, r->comm->rank);
        if (r->mail[i] && r->mail[i]->taken)
            unlink_mail(r->comm->group, r->mail[i]);
    }
    return dead ? tn_error(TN_ERR, "local: another rank has failed") : s;
}

/* All have arrived: results, then nobody reads, then they are stored. */
static tn_status together(struct tn_request *r, const struct timespec *end)
{
    struct slot *slot = r->slot, **at = &r->comm->group->slots;
    void **result = calloc(r->n, sizeof *result);
    tn_status s = TN_OK;
    int over;

    while (slot->arrived < r->comm->size && !dead && !s)
        if (!pause_until(end))
            s = tn_error(TN_ERR_TIMEOUT, "local: only %u of %u ranks came to collective %llu", slot->arrived, r->comm->size,
                         (unsigned long long)slot->number);
    over = dead;
    pthread_mutex_unlock(&lock);
    for (uint32_t i = 0; i < r->n && !s && !over; i++) {
        const struct tn_transfer *all[32];

        for (uint32_t k = 0; k < r->comm->size; k++)
            all[k] = slot->of[k]->n == r->n ? &slot->of[k]->t[i] : NULL;
        s = local_result(all, r->comm->size, r->comm->rank, &result[i]);
    }
    pthread_mutex_lock(&lock);
    dead |= s != TN_OK;
    slot->read++;
    pthread_cond_broadcast(&changed);
    while (slot->read < r->comm->size && !dead)
        if (!pause_until(end))
            dead = 1;
    if (dead && !s)
        s = tn_error(TN_ERR, "local: another rank has failed");
    for (uint32_t i = 0; i < r->n; i++) {
        if (!s)
            local_store(&r->t[i], r->comm->size, r->comm->rank, result[i]);
        free(result[i]);
    }
    free(result);
    if (++slot->read == 2 * r->comm->size) {
        while (*at != slot)
            at = &(*at)->next;
        *at = slot->next;
        free(slot->of);
        free(slot);
    }
    return s;
}

/* Would a wait find everybody there? Lock held. */
static int is_ready(const struct tn_request *r)
{
    if (r->slot && r->slot->arrived < r->comm->size)
        return 0;
    for (uint32_t i = 0; i < r->n; i++)
        if ((r->mail[i] && !r->mail[i]->taken) || (r->t[i].op == TN_RECV && !find_mail(r->comm, &r->t[i], r->number[i])))
            return 0;
    return 1;
}

static tn_status comm_wait(struct tn_request *r, double seconds)
{
    struct timespec end;
    tn_status s = TN_OK;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)seconds + 1;
    pthread_mutex_lock(&lock);
    if (seconds <= 0 && !dead && !is_ready(r)) {
        pthread_mutex_unlock(&lock);
        return TN_DECLINED;
    }
    if (r->slot)
        s = together(r, &end);
    if (!s)
        s = pairs(r, &end);
    dead |= s != TN_OK;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(r->mail);
    free(r->number);
    free(r);
    return s;
}

static void comm_abort(struct tn_comm *c)
{
    (void)c;
    pthread_mutex_lock(&lock);
    dead = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void comm_close(struct tn_comm *c)
{
    struct group **at = &groups;

    pthread_mutex_lock(&lock);
    c->group->members &= ~(1u << c->rank);
    while (*at && *at != c->group)
        at = &(*at)->next;
    if (*at && !c->group->members && !c->group->slots) {
        *at = c->group->next;
        free(c->group->ranks);
        free(c->group->sends), free(c->group->receives);
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
