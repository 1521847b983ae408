/* keeper.c - a thread that asks NCCL for asynchronous errors, and ends everything when there is one.
 *
 * NCCL finds out what a peer has done to it in threads of its own, and says it to who asks. The keeper asks
 * every now and then. The first failure, whoever finds it, is the one that all say. The keeper then aborts
 * NCCL's communicators, which makes their kernels end, so that streams come to an end too; it takes each
 * communicator's lock first, and those that hold it look whether the world is dead. One that will not let go
 * is left as it is. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "nccl.h"

#define LOOK 0.05    /* seconds between questions */
#define PATIENCE 3.0 /* seconds until what is aborted has to have ended */

static struct timespec in(double seconds)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)seconds;
    t.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* --- failing */

tn_status tn_nccl_failed(struct tn_world *w)
{
    char text[sizeof w->text];
    tn_status code;

    pthread_mutex_lock(&w->lock);
    snprintf(text, sizeof text, "%s", w->text);
    code = w->code;
    pthread_mutex_unlock(&w->lock);
    return tn_error(code, "%s", text);
}

/* The first one stays. */
static void die(struct tn_world *w, tn_status code, const char *text)
{
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->dead)) {
        snprintf(w->text, sizeof w->text, "%s", text);
        w->code = code;
        atomic_store(&w->dead, 1);
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
}

tn_status tn_nccl_fail(struct tn_world *w, tn_status code, const char *fmt, ...)
{
    char text[sizeof w->text];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    die(w, code, text);
    return tn_nccl_failed(w);
}

tn_status tn_nccl_cuda(struct tn_world *w, cudaError_t e, const char *what)
{
    if (!e)
        return TN_OK;
    cudaGetLastError();
    return tn_nccl_fail(w, TN_ERR, "nccl: rank %u: %s: %s (error %d, %s)", w->rank, what,
                        cudaGetErrorString(e), (int)e, cudaGetErrorName(e));
}

/* What else is known: of one that is being made, who is missing; else what was begun last. */
static void state_say(const struct tn_comm *c, char *out, size_t size)
{
    char last[120];

    if (!c->made) {
        tn_nccl_missing(c, out, size);
        return;
    }
    tn_transfer_say(&c->last, last, sizeof last);
    snprintf(out, size, "; last begun there: %s", last);
}

tn_status tn_nccl_result(struct tn_comm *c, const struct tn_lane *l, ncclResult_t r, const char *what)
{
    char group[120], after[160];
    const char *more = l->comm ? ncclGetLastError(l->comm) : NULL;

    if (r == ncclSuccess || r == ncclInProgress)
        return TN_OK;
    tn_comm_say(c, group, sizeof group);
    state_say(c, after, sizeof after);
    return tn_nccl_fail(c->world, TN_ERR, "nccl: in %s rank %u could not %s: %s%s%.100s%s", group, c->rank,
                        what, ncclGetErrorString(r), more && *more ? ": " : "", more && *more ? more : "",
                        after);
}

static tn_status too_late(struct tn_comm *c, const char *what, double seconds)
{
    char group[120], after[160];

    tn_comm_say(c, group, sizeof group);
    state_say(c, after, sizeof after);
    return tn_nccl_fail(c->world, TN_ERR_TIMEOUT, "nccl: in %s rank %u could not %s within %.3g s%s", group,
                        c->rank, what, seconds, after);
}

tn_status tn_nccl_settle(struct tn_comm *c, uint32_t lanes, double until, const char *what)
{
    const double begin = tn_nccl_now();

    for (int i = 0; i < TN_LANES; i++) {
        ncclResult_t state = ncclSuccess, r;
        tn_status s;

        while (lanes >> i & 1 && c->lane[i].comm) {
            if (atomic_load(&c->world->dead))
                return tn_nccl_failed(c->world);
            r = ncclCommGetAsyncError(c->lane[i].comm, &state);
            if ((s = tn_nccl_result(c, &c->lane[i], r ? r : state, what)))
                return s;
            if (state == ncclSuccess)
                break;
            if (tn_nccl_now() > until)
                return too_late(c, what, tn_nccl_now() - begin);
            tn_nccl_nap(tn_nccl_now() - begin);
        }
    }
    return TN_OK;
}

/* --- the thread */

static void look_at(struct tn_comm *c)
{
    if (pthread_mutex_trylock(&c->lock)) /* whoever has it asks */
        return;
    for (int i = 0; i < TN_LANES; i++) {
        ncclResult_t state = ncclSuccess;

        if (c->lane[i].comm && (ncclCommGetAsyncError(c->lane[i].comm, &state) || state != ncclSuccess))
            tn_nccl_result(c, &c->lane[i], state, "go on");
    }
    pthread_mutex_unlock(&c->lock);
}

static void end(struct tn_comm *c)
{
    struct timespec until = in(1);

    if (pthread_mutex_timedlock(&c->lock, &until))
        return;
    for (int i = 0; i < TN_LANES; i++)
        if (c->lane[i].comm) {
            ncclCommAbort(c->lane[i].comm);
            c->lane[i].comm = NULL;
        }
    pthread_mutex_unlock(&c->lock);
}

/* None leaves the list while it is gone through: close waits for busy to end. */
static void *keep(void *arg)
{
    struct tn_world *w = arg;
    struct tn_comm *c, *first;

    tn_nccl_use(w);
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        const int dead = (int)atomic_load(&w->dead);
        struct timespec until;

        if (dead && w->aborted) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        w->busy = 1;
        first = w->comms;
        pthread_mutex_unlock(&w->lock);
        for (c = first; c; c = c->next)
            dead ? end(c) : look_at(c);
        for (c = first; c && dead; c = c->next)
            tn_nccl_drain(c, tn_nccl_now() + PATIENCE);
        pthread_mutex_lock(&w->lock);
        w->busy = 0;
        w->aborted |= (uint32_t)dead;
        pthread_cond_broadcast(&w->changed);
        until = in(LOOK);
        if (!w->stop && !atomic_load(&w->dead))
            pthread_cond_timedwait(&w->changed, &w->lock, &until);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

tn_status tn_nccl_keep(struct tn_world *w)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&w->keeper, NULL, keep, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->kept = !failed;
    return failed ? tn_error(TN_ERR, "nccl: no thread to watch NCCL: %s", strerror(failed)) : TN_OK;
}

void tn_nccl_unkeep(struct tn_world *w)
{
    if (!w->kept)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = 1;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->keeper, NULL);
    w->kept = 0;
}

/* --- by the host */

void tn_nccl_aborted(struct tn_world *w)
{
    struct timespec until = in(2 * PATIENCE);

    pthread_mutex_lock(&w->lock);
    while (w->kept && !w->aborted && pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&w->lock);
}

void tn_nccl_abort(struct tn_comm *c)
{
    die(c->world, TN_ERR, "nccl: the communicator was aborted");
    tn_nccl_aborted(c->world);
}

tn_status tn_nccl_check(struct tn_comm *world)
{
    return atomic_load(&world->world->dead) ? tn_nccl_failed(world->world) : TN_OK;
}
