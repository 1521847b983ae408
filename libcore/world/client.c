/* client.c - a rank's side of the store: the connection, and the thread that reads it. See store.h.
 *
 * Requests are sent by whoever asks, under one lock; the client's thread alone receives, and hands each
 * answer to the request that has its number. A request that gave up is off the list, so a late answer finds
 * nobody. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "world/client.h"

#define PATIENCE 60.0 /* seconds for an answer that waits for nobody */

/* --- the thread */
static const char *what_of(const struct tn_report *r)
{
    return r->state == TN_RANK_DEAD     ? "died"
           : r->state == TN_RANK_SILENT ? "does not answer"
           : r->state == TN_RANK_LEFT   ? "has left"
                                        : "failed";
}

/* The first verdict counts, the end of the connection after it or after the goodbye does not. */
static void judge(struct tn_store_client *c, const struct tn_report *list, uint32_t n)
{
    pthread_mutex_lock(&c->lock);
    int first = !c->judged && !c->bye;
    pthread_mutex_unlock(&c->lock);
    if (first) /* only this thread sets judged */
        c->events.verdict(c->events.arg, list, n);
    pthread_mutex_lock(&c->lock);
    if (first && n)
        snprintf(c->why, sizeof c->why, "rank %u %s", list->rank, what_of(list));
    else if (!c->judged)
        snprintf(c->why, sizeof c->why, "the run is over");
    c->judged = 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (first && c->events.over)
        c->events.over(c->events.arg);
}

static void answer_notice(struct tn_store_client *c)
{
    struct tn_wire_head h = {.type = TN_WIRE_REPORT, .bytes = sizeof(struct tn_report)};
    struct tn_report r = {.rank = c->rank, .peer = TN_NOBODY};

    c->events.describe(c->events.arg, &r);
    if (client_send(c, &h, NULL, &r) < 0)
        return;
}

/* Takes value. */
static void answered(struct tn_store_client *c, const struct tn_wire_head *h, char *value)
{
    pthread_mutex_lock(&c->lock);
    for (struct request *r = c->first; r; r = r->next)
        if (r->id == h->id && !r->done) {
            r->done = 1;
            r->status = h->arg;
            r->value = value;
            r->bytes = h->bytes;
            value = NULL;
            pthread_cond_broadcast(&c->changed);
            break;
        }
    pthread_mutex_unlock(&c->lock);
    free(value);
}

static void said_bye(struct tn_store_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->bye = 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* A frame whose head has begun to arrive. 0: the connection is no good any more. */
static int take_frame(struct tn_store_client *c)
{
    double until = tn_net_now() + c->events.patience;
    struct tn_wire_head h;
    char *value;

    if (tn_net_receive(c->fd, &h, sizeof h, until) < 0 || h.key_bytes || h.bytes > TN_STORE_VALUE)
        return 0;
    if (!(value = malloc((size_t)h.bytes + 1)))
        return 0;
    value[h.bytes] = 0;
    if (tn_net_receive(c->fd, value, h.bytes, until) < 0) {
        free(value);
        return 0;
    }
    if (h.type == TN_WIRE_ANSWER) {
        answered(c, &h, value);
        return 1;
    }
    if (h.type == TN_WIRE_NOTICE)
        answer_notice(c);
    else if (h.type == TN_WIRE_VERDICT)
        judge(c, (const struct tn_report *)(const void *)value, h.bytes / (uint32_t)sizeof(struct tn_report));
    else if (h.type == TN_WIRE_BYE)
        said_bye(c);
    free(value);
    return 1;
}

static int is_stopped(struct tn_store_client *c)
{
    pthread_mutex_lock(&c->lock);
    int stop = c->stop;
    pthread_mutex_unlock(&c->lock);
    return stop;
}

static void *listen_on(void *arg)
{
    struct tn_store_client *c = arg;
    struct tn_report gone = {
        .rank = 0, .state = TN_RANK_DEAD, .peer = TN_NOBODY, .text = "its connection was closed"};
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    double tick = tn_net_now() + 1;

    while (!is_stopped(c)) {
        int r = poll(&p, 1, tn_net_ms(tick));
        if (r > 0 && !take_frame(c)) {
            if (!is_stopped(c))
                judge(c, &gone, 1);
            break;
        }
        if (tn_net_now() < tick)
            continue;
        tick = tn_net_now() + 1;
        if (c->events.tick)
            c->events.tick(c->events.arg);
    }
    return NULL;
}

/* --- opening */
static tn_status shake(int fd, const struct tn_net_address *to, const struct tn_store_job *job, uint32_t rank,
                       double until)
{
    struct tn_wire_hello h = {.magic = TN_WIRE_MAGIC, .order = TN_WIRE_ORDER, .rank = rank, .job = *job};
    struct tn_wire_welcome w;
    char magic[8];
    tn_status s = tn_net_send(fd, &h, sizeof h, until);

    if (s == TN_OK)
        s = tn_net_receive(fd, magic, sizeof magic, until);
    if (s < 0 || memcmp(magic, h.magic, sizeof magic))
        return (void)tn_error(TN_ERR_IO, "%s port %u is no store of this program%s", to->text, to->port,
                              s == TN_ERR_TIMEOUT ? ": it is silent" : ""),
               TN_DECLINED;
    if ((s = tn_net_receive(fd, &w, sizeof w, until)) < 0)
        return (void)tn_error(TN_ERR_IO, "the store at %s port %u did not answer", to->text, to->port),
               TN_DECLINED;
    w.text[sizeof w.text - 1] = 0;
    if (w.answer == TN_WIRE_WELCOME)
        return TN_OK;
    tn_error(TN_ERR_CONFIG, "the store at %s port %u does not take this process: %s", to->text, to->port,
             w.text);
    return w.answer == TN_WIRE_OTHER ? TN_DECLINED : TN_ERR_CONFIG;
}

static void client_free(struct tn_store_client *c)
{
    tn_net_close(c->fd);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->sending);
    free(c);
}

static tn_status client_start(int fd, uint32_t rank, const struct tn_store_events *events,
                              struct tn_store_client **out)
{
    struct tn_store_client *c = calloc(1, sizeof *c);
    pthread_condattr_t clock;
    sigset_t all, old;
    int e;

    if (!c) {
        tn_net_close(fd);
        return tn_error(TN_ERR_MEMORY, "no memory for a connection to the store");
    }
    c->fd = fd;
    c->rank = rank;
    c->events = *events;
    if (!(c->events.patience > 0))
        c->events.patience = PATIENCE;
    c->next_id = 1;
    pthread_mutex_init(&c->sending, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &clock);
    pthread_condattr_destroy(&clock);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    e = pthread_create(&c->thread, NULL, listen_on, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) {
        client_free(c);
        return tn_error(TN_ERR_IO, "no thread for the connection to the store: %s", strerror(e));
    }
    *out = c;
    return TN_OK;
}

tn_status tn_store_connect(const struct tn_net_address *to, const struct tn_store_job *job, uint32_t rank,
                           const struct tn_store_events *events, double until, struct tn_store_client **out)
{
    double soon = tn_net_now() + TN_STORE_SHAKE / 2;
    tn_status s;
    int fd;

    *out = NULL;
    if (until > soon)
        until = soon;
    if (tn_net_connect(to, until, &fd) < 0)
        return TN_DECLINED;
    if ((s = shake(fd, to, job, rank, until)) != TN_OK) {
        tn_net_close(fd);
        return s;
    }
    return client_start(fd, rank, events, out);
}

void tn_store_disconnect(struct tn_store_client *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = 1;
    pthread_mutex_unlock(&c->lock);
    shutdown(c->fd, SHUT_RDWR);
    pthread_join(c->thread, NULL);
    client_free(c);
}

tn_status tn_store_near(const struct tn_store_client *c, struct tn_net_address *out)
{
    return tn_net_near(c->fd, out);
}
