/* server.c - the server of the store: connections and their buffers. See store.h.
 *
 * One thread, one poll. Nothing here waits for a peer: what comes is gathered until a message is whole, what goes
 * is kept until the peer takes it, and a peer that breaks a rule, or leaves too much unread, is dropped. */
#include "world/server.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void drop(struct tn_store_server *s, struct peer *p, const char *how)
{
    if (p->gone)
        return;
    p->gone = 1;
    if (p->rank == TN_NOBODY) {
        s->strangers--;
        return;
    }
    s->of_rank[p->rank] = NULL;
    server_forget(s, p);
    server_lost(s, p, how);
}

static void flush_out(struct tn_store_server *s, struct peer *p)
{
    while (p->out_at < p->out_used && !p->gone) {
        ssize_t k = send(p->fd, p->out + p->out_at, p->out_used - p->out_at, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (k < 0) {
            drop(s, p, strerror(errno));
            return;
        }
        p->out_at += (size_t)k;
    }
    p->out_at = p->out_used = 0;
}

static void queue(struct tn_store_server *s, struct peer *p, const void *data, size_t bytes)
{
    if (p->gone || !bytes)
        return;
    if (p->out_used + bytes > p->out_room) {
        size_t room = (p->out_used + bytes) * 2;
        char *more = p->out_used - p->out_at + bytes > SERVER_BEHIND ? NULL : realloc(p->out, room);
        if (!more) {
            drop(s, p, "it left too much unread");
            return;
        }
        p->out = more;
        p->out_room = room;
    }
    memcpy(p->out + p->out_used, data, bytes);
    p->out_used += bytes;
}

void server_send(struct tn_store_server *s, struct peer *p, const struct tn_wire_head *h, const void *value)
{
    queue(s, p, h, sizeof *h);
    queue(s, p, value, h->bytes);
    if (!p->gone)
        flush_out(s, p);
}

/* --- the handshake */
static void refuse(struct tn_store_server *s, struct peer *p, uint32_t answer, const char *text)
{
    struct tn_wire_welcome w = {.answer = answer};

    snprintf(w.text, sizeof w.text, "%s", text);
    queue(s, p, &w, sizeof w);
    if (!p->gone)
        flush_out(s, p);
    drop(s, p, "refused");
}

static void welcome(struct tn_store_server *s, struct peer *p, uint32_t rank)
{
    struct tn_wire_welcome w = {.answer = TN_WIRE_WELCOME};

    p->rank = rank;
    s->strangers--;
    s->joined++;
    s->of_rank[rank] = p;
    s->was_here[rank] = 1;
    queue(s, p, &w, sizeof w);
    if (!p->gone)
        flush_out(s, p);
    if (!p->gone)
        server_tell(s, p);
}

static void shake(struct tn_store_server *s, struct peer *p)
{
    struct tn_wire_hello h;
    char text[120];

    memcpy(&h, p->in, sizeof h);
    h.job.job[sizeof h.job.job - 1] = 0;
    if (memcmp(h.magic, TN_WIRE_MAGIC, sizeof h.magic) || h.order != TN_WIRE_ORDER)
        drop(s, p, "not a rank");
    else if (h.job.nonce != s->job.nonce || strcmp(h.job.job, s->job.job)) {
        snprintf(text, sizeof text, "it is the store of the run \"%.60s\"", s->job.job);
        refuse(s, p, TN_WIRE_OTHER, text);
    } else if (h.job.size != s->job.size || h.rank >= s->job.size) {
        snprintf(text, sizeof text, "rank %u of %u came to rank 0 of %u", h.rank, h.job.size, s->job.size);
        refuse(s, p, TN_WIRE_REFUSED, text);
    } else if (s->was_here[h.rank]) {
        snprintf(text, sizeof text, "a rank %u was here before: two processes have the same rank", h.rank);
        refuse(s, p, TN_WIRE_REFUSED, text);
    } else
        welcome(s, p, h.rank);
}

/* --- messages */
static void frame(struct tn_store_server *s, struct peer *p, const struct tn_wire_head *h, const char *key)
{
    const char *value = key + h->key_bytes;
    struct tn_report r;

    switch (h->type) {
    case TN_WIRE_REPORT:
    case TN_WIRE_ACCUSE:
        if (h->bytes != sizeof r) {
            drop(s, p, "it broke the protocol");
            return;
        }
        memcpy(&r, value, sizeof r);
        server_reported(s, p, &r, h->type == TN_WIRE_ACCUSE);
        return;
    case TN_WIRE_GOODBYE:
        server_goodbye(s, p, value, h->bytes);
        return;
    default:
        server_request(s, p, h, key, value);
    }
}

/* Is the head one of this protocol? Keys end with their only 0, which is checked when they are here. */
static int is_sound(const struct tn_wire_head *h)
{
    return h->type >= TN_WIRE_SET && h->type <= TN_WIRE_GOODBYE && h->key_bytes <= TN_STORE_KEY &&
           h->bytes <= TN_STORE_VALUE && (h->type > TN_WIRE_ADD) == !h->key_bytes;
}

/* How many bytes must be here before something can be done. */
static size_t wanted(const struct peer *p)
{
    struct tn_wire_head h;

    if (p->rank == TN_NOBODY)
        return sizeof(struct tn_wire_hello);
    if (p->in_used < sizeof h)
        return sizeof h;
    memcpy(&h, p->in, sizeof h);
    return is_sound(&h) ? sizeof h + h.key_bytes + h.bytes : 0;
}

static void digest(struct tn_store_server *s, struct peer *p)
{
    size_t want = 0;

    while (!p->gone && (want = wanted(p)) && p->in_used >= want) {
        struct tn_wire_head h = {0};

        if (p->rank != TN_NOBODY) {
            memcpy(&h, p->in, sizeof h);
            if (h.key_bytes && memchr(p->in + sizeof h, 0, h.key_bytes) != p->in + sizeof h + h.key_bytes - 1) {
                drop(s, p, "it broke the protocol");
                return;
            }
            frame(s, p, &h, p->in + sizeof h);
        } else
            shake(s, p);
        p->in_used -= want;
        memmove(p->in, p->in + want, p->in_used);
    }
    if (!p->gone && !want)
        drop(s, p, "it broke the protocol");
}

static int make_room(struct peer *p, size_t room)
{
    char *more;

    if (p->in_room >= room)
        return 1;
    if (!(more = realloc(p->in, room)))
        return 0;
    p->in = more;
    p->in_room = room;
    return 1;
}

static void take_in(struct tn_store_server *s, struct peer *p)
{
    for (int rounds = 0; rounds < 64 && !p->gone; rounds++) {
        size_t want = wanted(p);
        if (!make_room(p, want)) {
            drop(s, p, "no memory for its message");
            return;
        }
        ssize_t k = recv(p->fd, p->in + p->in_used, want - p->in_used, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (k <= 0) {
            drop(s, p, k ? strerror(errno) : "its connection was closed");
            return;
        }
        p->in_used += (size_t)k;
        digest(s, p);
    }
}

/* --- connections */
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
    queue(s, p, TN_WIRE_MAGIC, 8);
    if (!p->gone)
        flush_out(s, p);
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
            drop(s, p, "no handshake");
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
            flush_out(s, p);
        if (!p->gone && list[2 + i].revents & (POLLIN | POLLHUP | POLLERR))
            take_in(s, p);
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
