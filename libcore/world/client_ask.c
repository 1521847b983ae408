/* client_ask.c - requests to the store: see store.h. */
#include <errno.h>
#include <stdlib.h>
#include "world/client.h"

#define GRACE 2.0   /* seconds for the server's own answer to a wait that is over */
#define FOREVER 4e9 /* seconds; more does not fit every clock */

static struct timespec clock_time(double t)
{
    t = t < FOREVER ? t : FOREVER;
    return (struct timespec){.tv_sec = (time_t)t, .tv_nsec = (long)((t - (double)(time_t)t) * 1e9)};
}

tn_status client_send(struct tn_store_client *c, const struct tn_wire_head *h, const char *key,
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
        shutdown(c->fd, SHUT_RDWR); /* half a message ends the connection */
    pthread_mutex_unlock(&c->sending);
    return s;
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

/* seconds: that the answer may wait for others. r->value is owned by the caller, where the status is TN_OK.
 */
static tn_status ask(struct tn_store_client *c, struct tn_wire_head h, const char *key, const void *value,
                     double seconds, struct request *r)
{
    size_t n = strlen(key) + 1;
    tn_status s;

    if (n > TN_STORE_KEY || n == 1)
        return tn_error(TN_ERR, "a key of the store has 1 to %u characters, \"%.40s\" has %zu",
                        TN_STORE_KEY - 1, key, n - 1);
    if ((s = begin(c, r)) < 0)
        return s;
    h.id = r->id;
    h.key_bytes = (uint32_t)n;
    s = client_send(c, &h, key, value);
    if (s < 0) {
        finish(c, r, key, GRACE); /* the thread sees the end of the connection, and knows more */
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

tn_status tn_store_take(struct tn_store_client *c, const char *key, char **data, uint64_t *bytes,
                        double seconds)
{
    double ms = seconds > 0 ? seconds * 1e3 : 0;
    struct tn_wire_head h = {.type = TN_WIRE_GET, .arg = ms < 2e9 ? (int32_t)ms + (ms > 0) : INT32_MAX};
    struct request r;
    tn_status s = ask(c, h, key, NULL, seconds, &r);

    *data = s == TN_OK ? r.value : NULL;
    *bytes = s == TN_OK ? r.bytes : 0;
    return s;
}

tn_status tn_store_get(struct tn_store_client *c, const char *key, void *data, uint64_t *bytes,
                       double seconds)
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

    return client_send(c, &h, NULL, report);
}

tn_status tn_store_goodbye(struct tn_store_client *c, const char *text, double seconds)
{
    struct tn_wire_head h = {.type = TN_WIRE_GOODBYE, .bytes = (uint32_t)strlen(text)};
    struct timespec until = clock_time(tn_net_now() + seconds);
    int late = 0;
    tn_status s = client_send(c, &h, NULL, text);

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
