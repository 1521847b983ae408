/* comm.c - the table of a communicator: open, group, start, wait, abort, close.
 *
 * start puts operations into an inbox, which the engine empties when it next passes; what is small it moves
 * itself if the engine is free. Requests and operations are used again, so a step that was taken once takes
 * no memory. */
#include <math.h>
#include <stdlib.h>
#include "meet.h"

#define HASTE 100e-6 /* seconds from start to wait */

/* --- the table */

static tn_status comm_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    *world = NULL;
    if (rank >= size)
        return tn_error(TN_ERR_CONFIG, TN_SELF ": rank %u of %u", rank, size);
    return tn_world_open(rank, size, seconds, world);
}

static tn_status comm_group(struct tn_comm *c, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    *out = NULL;
    if (!n)
        return tn_error(TN_ERR, TN_SELF ": a group without ranks");
    return tn_world_group(c->world, ranks, n, out);
}

/* Inbox's lock held. NULL: no memory. */
static struct tn_request *new_request(struct tn_comm *c, uint32_t n)
{
    struct tn_request *r = c->spare_request;

    if (r)
        c->spare_request = r->next;
    else if (!(r = calloc(1, sizeof *r)))
        return NULL;
    r->comm = c;
    r->next = NULL;
    r->last = NULL;
    r->started = 0;
    atomic_store(&r->left, n);
    return r;
}

static int have_ops(struct tn_comm *c, uint32_t n)
{
    for (struct tn_op *op = c->spare_op; op && n; op = op->next)
        n--;
    for (; n; n--) {
        struct tn_op *op = tn_op_new(c->n);
        if (!op)
            return 0;
        op->next = c->spare_op;
        c->spare_op = op;
    }
    return 1;
}

static struct tn_request *enqueue(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, int *small)
{
    struct tn_request *r = have_ops(c, n) ? new_request(c, n) : NULL;

    for (uint32_t i = 0; r && i < n; i++) {
        struct tn_op *op = c->spare_op;
        c->spare_op = op->next;
        tn_op_set(c, &t[i], op);
        op->request = r;
        if (t[i].op != TN_SEND && t[i].op != TN_RECV) {
            op->index = ++c->begun;
            atomic_store(&c->mine->begun, c->begun);
        }
        r->last = op;
        *c->inbox_end = op;
        c->inbox_end = &op->next;
        *small &= (int)op->small;
    }
    if (r && n)
        atomic_store(&c->world->posted, 1);
    return r;
}

static tn_status comm_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                            struct tn_request **out)
{
    struct tn_world *w = c->world;
    struct tn_pipe_guard guard;
    int small = 1;

    (void)stream;
    *out = NULL;
    if (atomic_load(&w->dead))
        return tn_world_failed(w);
    for (uint32_t i = 0; i < n; i++) {
        tn_status s = tn_op_check(c, &t[i]);
        if (s < 0)
            return s;
    }
    pthread_mutex_lock(&w->inbox);
    *out = enqueue(c, t, n, &small);
    pthread_mutex_unlock(&w->inbox);
    if (!*out)
        return tn_error(TN_ERR_MEMORY, TN_SELF ": no memory for %u transfers", n);
    tn_pipe_guard_begin(w, &guard);
    if (small && !pthread_mutex_trylock(&w->engine)) {
        if (!tn_world_notice(w))
            tn_engine_pass(w);
        pthread_mutex_unlock(&w->engine);
    }
    tn_pipe_guard_end(&guard);
    if (atomic_load(&w->driven))
        tn_bell_wake(w->board);
    if (!small) {
        (*out)->started = tn_now();
        tn_drive_start(w);
    } else {
        tn_drive_wake(w);
    }
    return TN_OK;
}

/* The last part of the time serves to find out who is at fault. */
static tn_status wait_long(struct tn_request *r, double seconds)
{
    struct tn_world *w = r->comm->world;
    double now = tn_now(), until = now + (seconds < 1e8 ? seconds : 1e8),
           ask = until - fmin(0.5, seconds / 4);
    struct tn_pipe_guard guard;
    tn_status s = TN_OK;
    int mine = 0;

    if (r->started > 0)
        atomic_store(&w->hasty, now - r->started < HASTE);
    tn_pipe_guard_begin(w, &guard);
    atomic_fetch_add(&w->waiting, 1);
    tn_drive_until(r, ask, &mine);
    if (atomic_load(&r->left) && !atomic_load(&w->dead)) {
        tn_world_ask(w, r->comm);
        tn_drive_until(r, until, &mine);
    }
    pthread_mutex_lock(&w->engine);
    if (atomic_load(&r->left))
        s = atomic_load(&w->dead) ? w->code : tn_request_late(r, seconds);
    pthread_mutex_unlock(&w->engine);
    atomic_store(&w->board->waits_for, 0);
    atomic_fetch_sub(&w->waiting, 1);
    if (mine)
        tn_drive_end(w);
    tn_drive_wake(w);
    tn_pipe_guard_end(&guard);
    return s < 0 ? tn_world_failed(w) : s;
}

static tn_status poll_once(struct tn_request *r)
{
    struct tn_world *w = r->comm->world;
    struct tn_pipe_guard guard;

    tn_pipe_guard_begin(w, &guard);
    if (w->link)
        tn_link_poll(w->link);
    if (!pthread_mutex_trylock(&w->engine)) {
        if (!tn_world_notice(w))
            tn_engine_pass(w);
        pthread_mutex_unlock(&w->engine);
    }
    tn_pipe_guard_end(&guard);
    if (!atomic_load(&r->left))
        return TN_OK;
    if (!atomic_load(&w->dead))
        return TN_DECLINED;
    pthread_mutex_lock(&w->engine); /* nobody is inside a pass that began before */
    pthread_mutex_unlock(&w->engine);
    return tn_world_failed(w);
}

static tn_status comm_wait(struct tn_request *r, double seconds)
{
    struct tn_world *w = r->comm->world;
    tn_status s = TN_OK;

    if (atomic_load(&r->left))
        s = seconds > 0 ? wait_long(r, seconds) : poll_once(r);
    if (s == TN_DECLINED)
        return s;
    pthread_mutex_lock(&w->inbox);
    r->next = r->comm->spare_request;
    r->comm->spare_request = r;
    pthread_mutex_unlock(&w->inbox);
    return s;
}

static void comm_abort(struct tn_comm *c)
{
    char text[80];

    snprintf(text, sizeof text, TN_SELF ": rank %u aborted the communication", c->world->rank);
    pthread_mutex_lock(&c->world->engine);
    tn_world_fail(c->world, TN_ERR, text);
    pthread_mutex_unlock(&c->world->engine);
}

/* All are here, so nobody needs this rank any more. */
static void meet_at_end(struct tn_comm *c)
{
    const struct tn_transfer end = {.op = TN_BARRIER};
    struct tn_request *r;

    if (!atomic_load(&c->world->dead) && c->n > 1 && comm_start(c, &end, 1, NULL, &r) == TN_OK)
        comm_wait(r, c->world->seconds);
}

static void comm_close(struct tn_comm *c)
{
    struct tn_world *w;
    struct tn_comm **at;

    if (!c)
        return;
    w = c->world;
    meet_at_end(c);
    if (w->users == 1) {
        tn_world_close(w, c);
        return;
    }
    pthread_mutex_lock(&w->engine);
    pthread_mutex_lock(&w->inbox);
    for (at = &w->comms; *at != c; at = &(*at)->next)
        ;
    *at = c->next;
    w->users--;
    pthread_mutex_unlock(&w->inbox);
    pthread_mutex_unlock(&w->engine);
    tn_comm_free(c);
}

static const char *const devices[] = {"cpu", NULL};

const struct tn_comm_api tn_streams_comm = {
    .struct_size = sizeof tn_streams_comm,
    .devices = devices,
    .probe = tn_link_probe,
    .open = comm_open,
    .group = comm_group,
    .start = comm_start,
    .wait = comm_wait,
    .abort = comm_abort,
    .close = comm_close,
};
