/* server.c - the server of the store: its thread, and the list of connections. See store.h.
 *
 * One thread, one poll; nothing here waits for a peer. */
#include "world/server.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void add_peer(struct tn_store_server *s, int fd)
{
    struct peer *p = s->strangers < SERVER_STRANGERS ? calloc(1, sizeof *p) : NULL;

    if (p && s->n_peer == s->room_peer) {
        uint32_t room = s->room_peer ? s->room_peer * 2 : 64;
        struct peer **more = realloc(s->peer, room * sizeof *more);
        if (more) {
            s->peer = more;
            s->room_peer = room;
        }
    }
    if (!p || s->n_peer == s->room_peer) {
        free(p);
        close(fd);
        return;
    }
    p->fd = fd;
    p->rank = TN_NOBODY;
    p->until = tn_net_now() + TN_STORE_SHAKE;
    s->peer[s->n_peer++] = p;
    s->strangers++;
    server_greet(s, p);
}

/* When descriptors are used up the listener stays readable; a short sleep keeps the thread from spinning. */
static void take_new(struct tn_store_server *s)
{
    tn_status r;
    int fd;

    while ((r = tn_net_accept(s->listener, &fd)) == TN_OK)
        add_peer(s, fd);
    if (r < 0)
        usleep(20000);
}

static void sweep(struct tn_store_server *s)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < s->n_peer; i++) {
        struct peer *p = s->peer[i];
        if (!p->gone) {
            s->peer[kept++] = p;
            continue;
        }
        close(p->fd);
        free(p->in);
        free(p->out);
        free(p);
    }
    s->n_peer = kept;
}

static double expire_strangers(struct tn_store_server *s, double now)
{
    double next = INFINITY;

    for (uint32_t i = 0; i < s->n_peer; i++) {
        struct peer *p = s->peer[i];
        if (p->rank != TN_NOBODY || p->gone)
            continue;
        if (p->until <= now)
            server_drop(s, p, "no handshake");
        else
            next = fmin(next, p->until);
    }
    return next;
}

/* --- the thread */
static int is_over(struct tn_store_server *s, double *until)
{
    pthread_mutex_lock(&s->lock);
    int stop = s->stop;
    *until = s->stop_until;
    pthread_mutex_unlock(&s->lock);
    if (!stop)
        *until = INFINITY;
    return stop && (s->n_peer == s->strangers || *until <= tn_net_now());
}

static void poll_once(struct tn_store_server *s, struct pollfd *list, double until)
{
    uint32_t n = s->n_peer;
    char bin[64];

    list[0] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    list[1] = (struct pollfd){.fd = s->wake[0], .events = POLLIN};
    for (uint32_t i = 0; i < n; i++)
        list[2 + i] = (struct pollfd){
            .fd = s->peer[i]->fd,
            .events = (short)(POLLIN | (s->peer[i]->out_at < s->peer[i]->out_used ? POLLOUT : 0))};
    if (poll(list, 2 + n, isinf(until) ? -1 : tn_net_ms(until)) <= 0)
        return;
    if (list[1].revents && read(s->wake[0], bin, sizeof bin) < 0)
        bin[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct peer *p = s->peer[i];
        if (!p->gone && list[2 + i].revents & POLLOUT)
            server_flush(s, p);
        if (!p->gone && list[2 + i].revents & (POLLIN | POLLHUP | POLLERR))
            server_take_in(s, p);
    }
    if (list[0].revents)
        take_new(s);
}

static void *serve(void *arg)
{
    struct tn_store_server *s = arg;
    struct pollfd *list = NULL;
    uint32_t room = 0;
    double until;

    while (!is_over(s, &until)) {
        double now = tn_net_now();

        until = fmin(until, fmin(server_late(s, now), fmin(server_trial(s, now), expire_strangers(s, now))));
        sweep(s);
        if (s->n_peer + 2 > room) {
            struct pollfd *more = realloc(list, (s->n_peer * 2 + 64) * sizeof *more);
            if (!more)
                break;
            list = more;
            room = s->n_peer * 2 + 64;
        }
        poll_once(s, list, until);
        sweep(s);
    }
    free(list);
    return NULL;
}

static void server_free(struct tn_store_server *s)
{
    for (uint32_t i = 0; i < s->n_peer; i++)
        s->peer[i]->gone = 1;
    sweep(s);
    server_keys_free(s);
    tn_net_close(s->listener);
    tn_net_close(s->wake[0]);
    tn_net_close(s->wake[1]);
    pthread_mutex_destroy(&s->lock);
    free(s->peer);
    free(s->of_rank);
    free(s->was_here);
    free(s->dead);
    free(s->verdict);
    free(s);
}

/* Signals belong to the threads of the program. */
static int start_thread(struct tn_store_server *s)
{
    sigset_t all, old;
    int e;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    e = pthread_create(&s->thread, NULL, serve, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return e;
}

tn_status tn_store_serve(int listener, const struct tn_store_job *job, struct tn_store_server **out)
{
    struct tn_store_server *s = calloc(1, sizeof *s);
    int e = ENOMEM;

    *out = NULL;
    if (!s) {
        tn_net_close(listener);
        return tn_error(TN_ERR_MEMORY, "no memory for the store of %u ranks", job->size);
    }
    pthread_mutex_init(&s->lock, NULL);
    s->listener = listener;
    s->wake[0] = s->wake[1] = -1;
    s->job = *job;
    s->of_rank = calloc(job->size, sizeof(struct peer *));
    s->was_here = calloc(job->size, 1);
    s->dead = calloc(job->size, sizeof *s->dead);
    s->verdict = calloc(TN_VERDICT_MOST, sizeof *s->verdict);
    if (s->of_rank && s->was_here && s->dead && s->verdict)
        e = pipe2(s->wake, O_CLOEXEC | O_NONBLOCK) ? errno : start_thread(s);
    if (e) {
        server_free(s);
        return tn_error(TN_ERR_IO, "the store of %u ranks cannot start: %s", job->size, strerror(e));
    }
    *out = s;
    return TN_OK;
}

void tn_store_end(struct tn_store_server *s, double seconds)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = 1;
    s->stop_until = tn_net_now() + seconds;
    pthread_mutex_unlock(&s->lock);
    while (write(s->wake[1], "", 1) < 0 && errno == EINTR)
        ;
    pthread_join(s->thread, NULL);
    server_free(s);
}
