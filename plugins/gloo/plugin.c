/* plugin.c - the communicator gloo: starts, waits, and who drives the engine meanwhile.
 *
 * One thread at a time drives: it passes over the streams, and sleeps on this process's bell when nothing
 * moves. That is a thread in wait, so that a result costs no change of threads; while nobody waits and there
 * is work that others depend on, it is the progress thread. A second wait sleeps on the turn word until its
 * request is done or the place of the driver is free. What moves moves under the engine's lock, so after a
 * failure has been noted with the lock held nobody touches the caller's memory again. */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include "gloo.h"

#define NAP 0.02 /* seconds: how often a sleeper looks whether processes have ended */
#define THREAD_SPIN 20

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* --- driving */

/* Marks who has ended before the pass takes what they still sent. */
static int mark_gone(struct tn_world *w)
{
    int any = 0;

    for (uint32_t p = 0; p < w->size; p++)
        if (w->peer[p].gone) {
            w->peer[p].gone = 2;
            any = 1;
        }
    return any;
}

/* Did anything happen that a driver has to look at. */
static int step(struct tn_world *w)
{
    int happened;

    tn_world_answer(w);
    pthread_mutex_lock(&w->engine);
    happened = tn_world_notice(w);
    if (!happened) {
        int any = mark_gone(w);
        happened = tn_engine_pass(w);
        if (!happened && any)
            tn_world_gone(w);
        happened |= (int)atomic_load(&w->dead);
    }
    pthread_mutex_unlock(&w->engine);
    return happened;
}

static int drive_try(struct tn_world *w)
{
    uint32_t no = 0;

    return !atomic_load(&w->driven) && atomic_compare_exchange_strong(&w->driven, &no, 1);
}

static void drive_end(struct tn_world *w)
{
    atomic_store(&w->driven, 0);
    if (atomic_load(&w->waiting))
        tn_bell_ring(&w->turn);
}

static int has_work(struct tn_world *w)
{
    return !atomic_load(&w->dead) && (atomic_load(&w->busy) || atomic_load(&w->posted));
}

static void wake_thread(struct tn_world *w)
{
    if (has_work(w) && !atomic_load(&w->driven))
        tn_bell_ring(&w->board->ask_bell);
}

/* The driver sleeps until a bell, after a last look. */
static void doze(struct tn_world *w, double seconds)
{
    struct tn_board *b = w->board;
    uint32_t seen;

    atomic_store(&b->sleeping, 1);
    seen = atomic_load(&b->bell);
    atomic_thread_fence(memory_order_seq_cst);
    if (!step(w) && !atomic_load(&w->stop)) {
        double begin = tn_now();
        tn_bell_wait(&b->bell, seen, seconds < NAP ? seconds : NAP);
        if (tn_now() - begin > NAP / 2)
            tn_world_look(w);
    }
    atomic_store(&b->sleeping, 0);
}

static void drive(struct tn_world *w)
{
    int idle = 0;

    while (has_work(w) && !atomic_load(&w->stop)) {
        if (step(w))
            idle = 0;
        else if (idle++ < THREAD_SPIN)
            pause_briefly();
        else
            doze(w, NAP);
    }
}

void *tn_world_thread(void *world)
{
    struct tn_world *w = world;

    while (!atomic_load(&w->stop)) {
        uint32_t seen = atomic_load(&w->board->ask_bell);
        tn_world_answer(w);
        if (has_work(w) && drive_try(w)) {
            drive(w);
            drive_end(w);
        } else if (!atomic_load(&w->stop)) {
            tn_bell_wait(&w->board->ask_bell, seen, 10);
        }
    }
    return NULL;
}

/* A write to a closed connection must not kill a caller that has not ignored SIGPIPE. */
struct pipe_guard {
    sigset_t before;
    int on;
};

static void guard_begin(const struct tn_world *w, struct pipe_guard *g)
{
    sigset_t pipe_only;

    g->on = w->tcp != NULL;
    if (!g->on)
        return;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &g->before);
}

static void guard_end(struct pipe_guard *g)
{
    sigset_t pipe_only;

    if (!g->on)
        return;
    if (!sigismember(&g->before, SIGPIPE)) {
        sigemptyset(&pipe_only);
        sigaddset(&pipe_only, SIGPIPE);
        while (sigtimedwait(&pipe_only, NULL, &(struct timespec){0, 0}) == SIGPIPE)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &g->before, NULL);
}

/* --- the table */

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 20;
    snprintf(why, why_size, "shared memory within a host, TCP between hosts");
    return TN_OK;
}

static tn_status comm_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    *world = NULL;
    if (rank >= size)
        return tn_error(TN_ERR_CONFIG, "gloo: rank %u of %u", rank, size);
    return tn_world_open(rank, size, seconds, world);
}

static tn_status comm_group(struct tn_comm *c, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    *out = NULL;
    if (!n)
        return tn_error(TN_ERR, "gloo: a group without ranks");
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

static tn_status comm_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, struct tn_queue *q,
                            struct tn_request **out)
{
    struct tn_world *w = c->world;
    struct pipe_guard guard;
    int small = 1;

    (void)q;
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
        return tn_error(TN_ERR_MEMORY, "gloo: no memory for %u transfers", n);
    guard_begin(w, &guard);
    if (small && !pthread_mutex_trylock(&w->engine)) {
        if (!tn_world_notice(w))
            tn_engine_pass(w);
        pthread_mutex_unlock(&w->engine);
    }
    guard_end(&guard);
    if (atomic_load(&w->driven))
        tn_bell_wake(w->board);
    wake_thread(w);
    return TN_OK;
}

/* In wait: the rank that the caller lacks, for others to read. */
static void say_lack(struct tn_request *r)
{
    struct tn_world *w = r->comm->world;

    pthread_mutex_lock(&w->engine);
    atomic_store(&w->board->waits_for, tn_request_lacks(r));
    pthread_mutex_unlock(&w->engine);
}

/* Drives, or sleeps while another one drives, until the request is done or the time has come. */
static void wait_until(struct tn_request *r, double until, int *mine)
{
    struct tn_world *w = r->comm->world;
    uint32_t idle = 0;
    double now;

    while (atomic_load(&r->left) && !atomic_load(&w->dead) && (now = tn_now()) < until) {
        uint32_t turn = atomic_load(&w->turn);
        if (*mine || (*mine = drive_try(w))) {
            if (step(w)) {
                idle = 0;
            } else if (idle++ < w->spin) {
                pause_briefly();
            } else {
                say_lack(r);
                doze(w, until - now);
            }
        } else if (atomic_load(&r->left) && !atomic_load(&w->dead)) {
            say_lack(r);
            tn_bell_wait(&w->turn, turn, until - now);
        }
    }
}

/* The last part of the time serves to find out who is at fault. */
static tn_status wait_long(struct tn_request *r, double seconds)
{
    struct tn_world *w = r->comm->world;
    double until = tn_now() + (seconds < 1e8 ? seconds : 1e8), ask = until - fmin(0.5, seconds / 4);
    struct pipe_guard guard;
    tn_status s = TN_OK;
    int mine = 0;

    guard_begin(w, &guard);
    atomic_fetch_add(&w->waiting, 1);
    wait_until(r, ask, &mine);
    if (atomic_load(&r->left) && !atomic_load(&w->dead)) {
        tn_world_ask(w, r->comm);
        wait_until(r, until, &mine);
    }
    pthread_mutex_lock(&w->engine);
    if (atomic_load(&r->left))
        s = atomic_load(&w->dead) ? w->code : tn_request_late(r, seconds);
    pthread_mutex_unlock(&w->engine);
    atomic_store(&w->board->waits_for, 0);
    atomic_fetch_sub(&w->waiting, 1);
    if (mine)
        drive_end(w);
    wake_thread(w);
    guard_end(&guard);
    return s < 0 ? tn_world_failed(w) : s;
}

static tn_status poll_once(struct tn_request *r)
{
    struct tn_world *w = r->comm->world;
    struct pipe_guard guard;

    guard_begin(w, &guard);
    if (!pthread_mutex_trylock(&w->engine)) {
        if (!tn_world_notice(w))
            tn_engine_pass(w);
        pthread_mutex_unlock(&w->engine);
    }
    guard_end(&guard);
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

    snprintf(text, sizeof text, "gloo: rank %u aborted the communication", c->world->rank);
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

static const struct tn_comm_api gloo = {
    .struct_size = sizeof gloo,
    .devices = devices,
    .probe = probe,
    .open = comm_open,
    .group = comm_group,
    .start = comm_start,
    .wait = comm_wait,
    .abort = comm_abort,
    .close = comm_close,
};

TN_PLUGIN("gloo", "1.0", "shared memory within a host, Gloo's TCP between hosts", TN_COMM_ID, &gloo);
