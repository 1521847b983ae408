/* client.c - a rank's side of the store: see store.h.
 *
 * Requests are sent by whoever asks, under one lock; the client's thread alone receives, and hands each answer to
 * the request that has its number. A request that gave up is off the list, so a late answer finds nobody. */
#include <errno.h>
#include <pthread.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "world/wire.h"

#define GRACE 2.0                                /* seconds for the server's own answer to a wait that is over */
#define PATIENCE 60.0                            /* seconds for an answer that waits for nobody */

struct request {
    struct request *next;
    uint64_t id;
    int done;
    tn_status status;
    char *value;                                 /* owned, with a 0 behind it */
    uint64_t bytes;
};

struct tn_store_client {
    int fd;
    uint32_t rank;
    pthread_t thread;
    struct tn_store_events events;
    pthread_mutex_t sending;                     /* a message is sent as one */
    pthread_mutex_t lock;                        /* all below */
    pthread_cond_t changed;
    struct request *first;
    uint64_t next_id;
    int bye, stop;
    int judged;                                  /* a verdict came, or the server is gone */
    char why[200];
};

static tn_status send_frame(struct tn_store_client *c, const struct tn_wire_head *h, const char *key,
                            const void *value)
{
    double until = tn_net_now() + c->events.patience;
    tn_status s;

    pthread_mutex_lock(&c->sending);
    s = tn_net_send(c->fd, h, sizeof *h, until);
    if (s == TN_OK && h->key_bytes)
        s = tn_net_send(c->fd, key, h->key_bytes, until);
    if (s == TN_OK && h->bytes)
        s = tn_net_send(c->fd, value, h->bytes, until);
    if (s < 0)
        shutdown(c->fd, SHUT_RDWR);              /* half a message ends the connection */
    pthread_mutex_unlock(&c->sending);
    return s;
}

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
    if (first && n)
        snprintf(c->why, sizeof c->why, "rank %u %s", list->rank, what_of(list));
    else if (!c->judged)
        snprintf(c->why, sizeof c->why, "the run is over");
    c->judged = 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (first)
        c->events.verdict(c->events.arg, list, n);
}

static void answer_notice(struct tn_store_client *c)
{
    struct tn_wire_head h = {.type = TN_WIRE_REPORT, .bytes = sizeof(struct tn_report)};
    struct tn_report r = {.rank = c->rank, .peer = TN_NOBODY};

    c->events.describe(c->events.arg, &r);
    if (send_frame(c, &h, NULL, &r) < 0)
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
    struct tn_report gone = {.rank = 0, .state = TN_RANK_DEAD, .peer = TN_NOBODY,
                             .text = "its connection was closed"};
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
        return (void)tn_error(TN_ERR_IO, "the store at %s port %u did not answer", to->text, to->port), TN_DECLINED;
    w.text[sizeof w.text - 1] = 0;
    if (w.answer == TN_WIRE_WELCOME)
        return TN_OK;
    tn_error(TN_ERR_CONFIG, "the store at %s port %u does not take this process: %s", to->text, to->port, w.text);
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

/* --- requests */
#define FOREVER 4e9                              /* seconds; more does not fit every clock */

static struct timespec clock_time(double t)
{
    t = t < FOREVER ? t : FOREVER;
    return (struct timespec){.tv_sec = (time_t)t, .tv_nsec = (long)((t - (double)(time_t)t) * 1e9)};
}

static tn_status begin(struct tn_store_client *c, struct request *r)
{
    tn_status s = TN_OK;

    *r = (struct request){0};
    pthread_mutex_lock(&c->lock);
    if (c->judged)
        s = tn_error(TN_ERR, "the store is closed: %s", c->why);
    r->id = c->next_id++;
    r->next = c->first;
    if (s == TN_OK)
        c->first = r;
    pthread_mutex_unlock(&c->lock);
    return s;
}

/* Until it is answered, the run has failed, or the time is over. Takes it off the list. */
static tn_status finish(struct tn_store_client *c, struct request *r, const char *key, double seconds)
{
    struct timespec until = clock_time(tn_net_now() + seconds);
    struct request **at = &c->first;
    int late = 0;

    pthread_mutex_lock(&c->lock);
    while (!r->done && !c->judged && !late)
        late = pthread_cond_timedwait(&c->changed, &c->lock, &until) == ETIMEDOUT;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    int done = r->done;
    pthread_mutex_unlock(&c->lock);
    if (done)
        return r->status;
    if (late)
        return tn_error(TN_ERR_TIMEOUT, "rank 0, which has the store, did not answer about \"%s\"", key);
    return tn_error(TN_ERR, "while waiting for \"%s\": %s", key, c->why);
}

/* What the server's own statuses mean. */
static tn_status explain(tn_status s, const char *key, double seconds)
{
    if (s == TN_ERR_TIMEOUT)
        return tn_error(s, "nobody gave \"%s\" to the store within %g s", key, seconds);
    if (s == TN_ERR_MEMORY)
        return tn_error(s, "the store of rank 0 has no room for \"%s\"", key);
    if (s == TN_ERR_SHAPE)
        return tn_error(s, "\"%s\" in the store is no counter", key);
    return s < 0 ? tn_error(s, "the store refuses \"%s\"", key) : s;
}

/* seconds: that the answer may wait for others. r->value is owned by the caller, where the status is TN_OK. */
static tn_status ask(struct tn_store_client *c, struct tn_wire_head h, const char *key, const void *value,
                     double seconds, struct request *r)
{
    size_t n = strlen(key) + 1;
    tn_status s;

    if (n > TN_STORE_KEY || n == 1)
        return tn_error(TN_ERR, "a key of the store has 1 to %u characters, \"%.40s\" has %zu", TN_STORE_KEY - 1,
                        key, n - 1);
    if ((s = begin(c, r)) < 0)
        return s;
    h.id = r->id;
    h.key_bytes = (uint32_t)n;
    s = send_frame(c, &h, key, value);
    if (s < 0) {
        finish(c, r, key, GRACE);                /* the thread sees the end of the connection, and knows more */
        return s;
    }
    s = finish(c, r, key, seconds + (seconds > 0 ? GRACE : c->events.patience));
    if (r->done && s != TN_OK) {
        free(r->value);
        r->value = NULL;
        return explain(s, key, seconds);
    }
    return s;
}

tn_status tn_store_set(struct tn_store_client *c, const char *key, const void *data, uint64_t bytes)
{
    struct tn_wire_head h = {.type = TN_WIRE_SET, .bytes = (uint32_t)bytes};
    struct request r;
    tn_status s;

    if (bytes > TN_STORE_VALUE)
        return tn_error(TN_ERR, "\"%s\" has %llu bytes, the store takes %u", key, (unsigned long long)bytes,
                        TN_STORE_VALUE);
    s = ask(c, h, key, data, 0, &r);
    if (s == TN_OK)
        free(r.value);
    return s;
}

tn_status tn_store_take(struct tn_store_client *c, const char *key, char **data, uint64_t *bytes, double seconds)
{
    double ms = seconds > 0 ? seconds * 1e3 : 0;
    struct tn_wire_head h = {.type = TN_WIRE_GET, .arg = ms < 2e9 ? (int32_t)ms + (ms > 0) : INT32_MAX};
    struct request r;
    tn_status s = ask(c, h, key, NULL, seconds, &r);

    *data = s == TN_OK ? r.value : NULL;
    *bytes = s == TN_OK ? r.bytes : 0;
    return s;
}

tn_status tn_store_get(struct tn_store_client *c, const char *key, void *data, uint64_t *bytes, double seconds)
{
    uint64_t room = *bytes;
    char *value;
    tn_status s = tn_store_take(c, key, &value, bytes, seconds);

    if (s == TN_OK && *bytes > room)
        s = tn_error(TN_ERR_SHAPE, "\"%s\" in the store has %llu bytes, there is room for %llu", key,
                     (unsigned long long)*bytes, (unsigned long long)room);
    else if (s == TN_OK && *bytes)
        memcpy(data, value, *bytes);
    free(value);
    return s;
}

tn_status tn_store_add(struct tn_store_client *c, const char *key, int64_t amount, int64_t *out)
{
    struct tn_wire_head h = {.type = TN_WIRE_ADD, .bytes = sizeof amount};
    struct request r;
    tn_status s = ask(c, h, key, &amount, 0, &r);

    *out = 0;
    if (s == TN_OK && r.bytes == sizeof *out)
        memcpy(out, r.value, sizeof *out);
    if (s == TN_OK)
        free(r.value);
    return s;
}

tn_status tn_store_check(struct tn_store_client *c, const char *key)
{
    struct tn_wire_head h = {.type = TN_WIRE_CHECK};
    struct request r;
    tn_status s = ask(c, h, key, NULL, 0, &r);

    if (s == TN_OK)
        free(r.value);
    return s;
}

/* --- the end */
tn_status tn_store_accuse(struct tn_store_client *c, const struct tn_report *report)
{
    struct tn_wire_head h = {.type = TN_WIRE_ACCUSE, .bytes = sizeof *report};

    return send_frame(c, &h, NULL, report);
}

tn_status tn_store_goodbye(struct tn_store_client *c, const char *text, double seconds)
{
    struct tn_wire_head h = {.type = TN_WIRE_GOODBYE, .bytes = (uint32_t)strlen(text)};
    struct timespec until = clock_time(tn_net_now() + seconds);
    int late = 0;
    tn_status s = send_frame(c, &h, NULL, text);

    if (s < 0)
        return s;
    pthread_mutex_lock(&c->lock);
    while (!c->bye && !c->judged && !late)
        late = pthread_cond_timedwait(&c->changed, &c->lock, &until) == ETIMEDOUT;
    int bye = c->bye;
    pthread_mutex_unlock(&c->lock);
    if (bye)
        return TN_OK;
    return late ? tn_error(TN_ERR_TIMEOUT, "not all ranks came to the end within %g s", seconds)
                : tn_error(TN_ERR, "at the end: %s", c->why);
}
