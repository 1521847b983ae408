/* drive.c - who drives the engine, and who sleeps meanwhile.
 *
 * One thread at a time drives: it passes over the streams, and sleeps on this process's bell when nothing
 * moves. That is a thread in wait, so that a result costs no change of threads; while nobody waits and there
 * is work that others depend on, it is the progress thread. A second wait sleeps on the turn word until its
 * request is done or the place of the driver is free. What moves moves under the engine's lock, so after a
 * failure has been noted with the lock held nobody touches the caller's memory again. */
#include <math.h>
#include <signal.h>
#include <time.h>
#include "streams.h"

#define NAP 0.02 /* seconds: how often a sleeper looks whether processes have ended */
#define THREAD_SPIN 20
#define SHORT_NAP 50e-6 /* where a link must be polled: the first sleeps, */
#define LONG_NAP 2e-3   /* the longest of who waits, */
#define IDLE_NAP 5e-3   /* and of the thread while nobody waits: questions are answered */

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
    if (w->link)
        tn_link_poll(w->link);
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

void tn_drive_end(struct tn_world *w)
{
    atomic_store(&w->driven, 0);
    if (atomic_load(&w->waiting))
        tn_bell_ring(&w->turn);
}

static int has_work(struct tn_world *w)
{
    return !atomic_load(&w->dead) && (atomic_load(&w->busy) || atomic_load(&w->posted));
}

void tn_drive_wake(struct tn_world *w)
{
    if (has_work(w) && !atomic_load(&w->driven))
        tn_bell_ring(&w->board->ask_bell);
}

/* Whose process has ended: asked by who sleeps, not more often than a nap. Driver. */
static void look_sometimes(struct tn_world *w)
{
    double now = tn_now();

    if (now - w->looked > NAP / 2) {
        w->looked = now;
        tn_world_look(w);
    }
}

/* The longest sleep of a driver that has found nothing to do so many times. */
static double nap(const struct tn_world *w, uint32_t idle)
{
    return !w->link || !tn_link_polls ? NAP : fmin(LONG_NAP, SHORT_NAP * (1 + idle / 64.0));
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
        tn_bell_wait(&b->bell, seen, seconds);
        look_sometimes(w);
    }
    atomic_store(&b->sleeping, 0);
}

static void drive(struct tn_world *w)
{
    uint32_t idle = 0;

    while (has_work(w) && !atomic_load(&w->stop)) {
        if (step(w))
            idle = 0;
        else if (idle++ < THREAD_SPIN)
            pause_briefly();
        else
            doze(w, nap(w, idle - THREAD_SPIN));
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
            tn_drive_end(w);
        } else if (!atomic_load(&w->stop)) {
            if (w->link)
                tn_link_poll(w->link);
            tn_bell_wait(&w->board->ask_bell, seen, w->link && tn_link_polls ? IDLE_NAP : 10);
        }
    }
    return NULL;
}

void tn_pipe_guard_begin(const struct tn_world *w, struct tn_pipe_guard *g)
{
    sigset_t pipe_only;

    g->on = w->link != NULL;
    if (!g->on)
        return;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &g->before);
}

void tn_pipe_guard_end(struct tn_pipe_guard *g)
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

/* In wait: the rank that the caller lacks, for others to read. */
static void say_lack(struct tn_request *r)
{
    struct tn_world *w = r->comm->world;

    pthread_mutex_lock(&w->engine);
    atomic_store(&w->board->waits_for, tn_request_lacks(r));
    pthread_mutex_unlock(&w->engine);
}

/* Drives, or sleeps while another one drives, until the request is done or the time has come. */
void tn_drive_until(struct tn_request *r, double until, int *mine)
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
                doze(w, fmin(until - now, nap(w, idle - w->spin)));
            }
        } else if (atomic_load(&r->left) && !atomic_load(&w->dead)) {
            say_lack(r);
            tn_bell_wait(&w->turn, turn, until - now);
        }
    }
}
