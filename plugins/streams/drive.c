/* drive.c - who drives the engine, and who sleeps meanwhile.
 *
 * One thread at a time drives: it passes over the streams, and sleeps on this process's bell when nothing
 * moves. That is a thread in wait, so that a result costs no change of threads; while nobody waits and there
 * is work that others depend on, it is the progress thread. A second wait sleeps on the turn word until its
 * request is done or the place of the driver is free; the progress thread leaves that place to any wait. What
 * moves moves under the engine's lock, so after a failure has been noted with the lock held nobody touches
 * the caller's memory again.
 *
 * A caller that waits as soon as it has started needs no thread, and to wake one costs more than a small sum.
 * So after work was seen the thread looks by itself every millisecond, for a while, and such callers ring no
 * bell. */
#include <math.h>
#include <signal.h>
#include <time.h>
#include "streams.h"

#define NAP 0.02 /* seconds: how often a sleeper looks whether processes have ended */
#define THREAD_SPIN 5e-6
#define SHORT_NAP 50e-6 /* where a link must be polled: the first sleeps, */
#define LONG_NAP 2e-3   /* the longest of who waits, */
#define TICK 1e-3       /* how often the thread looks by itself, */
#define TICKS 20        /* so many times after the last work */
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
    if (atomic_load(&w->asleep))
        tn_bell_ring(&w->turn);
}

static int has_work(struct tn_world *w)
{
    return !atomic_load(&w->dead) && (atomic_load(&w->busy) || atomic_load(&w->posted));
}

/* Who starts work that is large, and has just shown that it waits at once, needs no thread within a tick. */
void tn_drive_start(struct tn_world *w)
{
    if (!atomic_load(&w->hasty) || !atomic_load(&w->ticking))
        tn_drive_wake(w);
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

/* The longest sleep of a driver that has found nothing to do for some time. */
static double nap(const struct tn_world *w, double idle)
{
    return !w->link || !tn_link_polls ? NAP : fmin(LONG_NAP, SHORT_NAP + idle / 16);
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
    double moved = tn_now(), idle;

    while (has_work(w) && !atomic_load(&w->stop) && !atomic_load(&w->waiting)) {
        idle = tn_now() - moved;
        if (step(w))
            moved += idle;
        else if (idle < THREAD_SPIN)
            pause_briefly();
        else
            doze(w, nap(w, idle));
    }
}

void *tn_world_thread(void *world)
{
    struct tn_world *w = world;
    uint32_t left = 0; /* ticks */

    while (!atomic_load(&w->stop)) {
        uint32_t seen = atomic_load(&w->board->ask_bell);
        tn_world_answer(w);
        atomic_store(&w->ticking, left > 0);
        if (has_work(w)) {
            left = TICKS;
            atomic_store(&w->ticking, 1);
        }
        if (has_work(w) && !atomic_load(&w->waiting) && drive_try(w)) {
            drive(w);
            tn_drive_end(w);
        } else if (!atomic_load(&w->stop)) {
            if (w->link)
                tn_link_poll(w->link);
            tn_bell_wait(&w->board->ask_bell, seen, left ? TICK : w->link && tn_link_polls ? IDLE_NAP : 10);
            left -= left > 0;
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

/* How long to look before sleeping. To be woken takes some 30 us: ranks on processors of their own that sleep
 * by turns lose that each time, and never stop it unless one looks for longer. Ranks that share a processor,
 * or wait for one that computes, only lose by looking. So what has not helped is halved, what has is doubled,
 * and now and then the most is tried again. */
static void learn(struct tn_world *w, int slept)
{
    if (!slept)
        w->patience = fmin(w->spin, 2 * w->patience);
    else
        w->patience = ++w->sleeps % 16 ? fmax(w->patience / 2, w->spin / 64) : w->spin;
}

/* Sleeps while another thread drives. Who ends that, or the request, looks for sleepers after it. */
static void sleep_meanwhile(struct tn_request *r, double seconds)
{
    struct tn_world *w = r->comm->world;
    uint32_t turn;

    atomic_fetch_add(&w->asleep, 1);
    turn = atomic_load(&w->turn);
    if (atomic_load(&r->left) && !atomic_load(&w->dead) && atomic_load(&w->driven))
        tn_bell_wait(&w->turn, turn, seconds);
    atomic_fetch_sub(&w->asleep, 1);
}

/* Drives, or sleeps while another one drives, until the request is done or the time has come. */
void tn_drive_until(struct tn_request *r, double until, int *mine)
{
    struct tn_world *w = r->comm->world;
    double now, moved = 0;
    int slept = 0;

    while (atomic_load(&r->left) && !atomic_load(&w->dead) && (now = tn_now()) < until) {
        if (moved == 0)
            moved = now;
        if (*mine || (*mine = drive_try(w))) {
            if (step(w)) {
                if (slept || now > moved + w->patience / 4)
                    learn(w, slept);
                slept = 0;
                moved = now;
            } else if (now - moved < w->patience) {
                pause_briefly();
            } else {
                slept = 1;
                say_lack(r);
                doze(w, fmin(until - now, nap(w, now - moved)));
            }
        } else if (now - moved < w->spin) {
            pause_briefly(); /* the progress thread leaves its place soon */
        } else if (atomic_load(&r->left) && !atomic_load(&w->dead)) {
            say_lack(r);
            sleep_meanwhile(r, until - now);
        }
    }
}
