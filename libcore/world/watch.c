/* watch.c - what this rank says of itself when something fails, and what it hears: see world.h.
 *
 * The store decides who is at fault (store.h); here its verdict becomes one sentence, the communicators are
 * aborted, and a process that does not end by itself is ended. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/status.h"
#include "world/world_own.h"

#define NOBODY_GONE "no rank is gone"
#define BEAT 30.0                       /* seconds from one heartbeat line to the next */
#define LAST_RESORT 1.0                 /* seconds from the verdict to the end of the process */
#define PATIENCE (TN_STORE_TRIAL + 0.3) /* seconds until the store itself is at fault */

const char *tn_world_name(const struct tn_world *w, uint32_t rank, char *out, size_t bytes)
{
    const struct tn_world_peer *p = w->own->peer && rank < w->size ? &w->own->peer[rank] : NULL;

    if (p && p->pid)
        snprintf(out, bytes, "rank %u of %u (host %.40s, process %lld)", rank, w->size, p->host,
                 (long long)p->pid);
    else
        snprintf(out, bytes, "rank %u of %u", rank, w->size);
    return out;
}

/* --- positions */
void tn_world_phase(struct tn_world *w, const char *name, int heartbeat)
{
    struct tn_world_own *o;

    if (!w)
        return;
    o = w->own;
    pthread_mutex_lock(&o->lock);
    o->phase = name;
    o->phase_since = tn_net_now();
    o->next_beat = o->phase_since + BEAT;
    o->heartbeat = heartbeat;
    pthread_mutex_unlock(&o->lock);
}

static void set_position(struct tn_world_own *o, const char *collective, uint64_t sequence, int64_t peer)
{
    o->collective = collective;
    o->waits_for = peer;
    if (collective)
        o->sequence = sequence;
}

void tn_world_waits(struct tn_world *w, const char *collective, uint64_t sequence, int64_t peer)
{
    pthread_mutex_lock(&w->own->lock);
    set_position(w->own, collective, sequence, peer);
    pthread_mutex_unlock(&w->own->lock);
}

static void report(struct tn_world_own *o, struct tn_report *r)
{
    pthread_mutex_lock(&o->lock);
    snprintf(r->phase, sizeof r->phase, "%s", o->phase);
    snprintf(r->collective, sizeof r->collective, "%s", o->collective ? o->collective : "");
    r->sequence = o->sequence;
    r->peer = o->waits_for >= 0 ? (uint32_t)o->waits_for : TN_NOBODY;
    pthread_mutex_unlock(&o->lock);
}

static void describe(void *arg, struct tn_report *out)
{
    report(((struct tn_world *)arg)->own, out);
}

static void tick(void *arg)
{
    struct tn_world *w = arg;
    struct tn_world_own *o = w->own;
    const char *phase = NULL;
    double now = tn_net_now(), since;

    if (w->rank)
        return;
    pthread_mutex_lock(&o->lock);
    since = o->phase_since;
    if (o->heartbeat && now >= o->next_beat) {
        phase = o->phase;
        o->next_beat = now + BEAT;
    }
    pthread_mutex_unlock(&o->lock);
    if (phase)
        tn_log(TN_LOG_INFO, "%s: goes on for %.0f s", phase, now - since);
}

/* --- the sentence */
static size_t add(char *out, size_t room, size_t k, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static size_t add(char *out, size_t room, size_t k, const char *fmt, ...)
{
    va_list ap;
    int n;

    if (k + 1 >= room)
        return k;
    va_start(ap, fmt);
    n = vsnprintf(out + k, room - k, fmt, ap);
    va_end(ap);
    return n < 0 ? k : k + (size_t)n < room ? k + (size_t)n : room - 1;
}

static size_t say_position(const struct tn_report *r, char *out, size_t room, size_t k)
{
    if (*r->collective) {
        k = add(out, room, k, "in %s", r->collective);
        if (r->sequence)
            k = add(out, room, k, " (number %llu)", (unsigned long long)r->sequence);
        if (r->peer != TN_NOBODY)
            k = add(out, room, k, " for rank %u", r->peer);
        k = add(out, room, k, ", phase %s", r->phase);
    } else
        k = add(out, room, k, "in phase %s", r->phase);
    return k;
}

static size_t say_one(const struct tn_world *w, const struct tn_report *r, char *out, size_t room, size_t k)
{
    static const char *const what[] = {
        [TN_RANK_ALIVE] = "failed",
        [TN_RANK_DEAD] = "died",
        [TN_RANK_SILENT] = "does not answer, it is stopped or cut off",
        [TN_RANK_LEFT] = "left before the others",
    };
    char name[160];

    k = add(out, room, k, "%s %s", tn_world_name(w, r->rank, name, sizeof name), what[r->state & 3]);
    if (r->state == TN_RANK_DEAD && *r->phase)
        k = add(out, room, k, " in phase %s", r->phase);
    return *r->text ? add(out, room, k, ": %s", r->text) : k;
}

/* All live and none has a trouble: the one that is furthest behind, of those that did not ask for the trial.
 */
static const struct tn_report *slowest(const struct tn_report *list, uint32_t n)
{
    const struct tn_report *low = NULL;

    for (uint32_t i = 0; i < n; i++)
        if (!low || list[i].sequence < low->sequence ||
            (list[i].sequence == low->sequence &&
             (low->failed > list[i].failed || (*low->collective && !*list[i].collective))))
            low = &list[i];
    return low;
}

static int is_at_fault(const struct tn_report *r)
{
    return r->state != TN_RANK_ALIVE || (r->failed && *r->text);
}

static void compose(struct tn_world *w, const struct tn_report *list, uint32_t n, char *out, size_t room)
{
    struct tn_report me = {.peer = TN_NOBODY};
    const struct tn_report *low;
    size_t k = 0;
    uint32_t i;
    char name[160];

    report(w->own, &me);
    for (i = 0; i < n && i < 3 && is_at_fault(&list[i]); i++) {
        k = add(out, room, k, "%s", i ? "; " : "");
        k = say_one(w, &list[i], out, room, k);
    }
    if (i == 3 && n > 3 && is_at_fault(&list[3]))
        k = add(out, room, k, "; and more ranks");
    if (!i && (low = slowest(list, n))) {
        k = add(out, room, k, NOBODY_GONE "; furthest behind is %s, ",
                tn_world_name(w, low->rank, name, sizeof name));
        k = say_position(low, out, room, k);
    }
    if (!i && !n)
        k = add(out, room, k, "a rank failed, and there was no memory to say which");
    k = add(out, room, k, "; rank %u was ", w->rank);
    say_position(&me, out, room, k);
}

/* --- the end */
static void abort_all(struct tn_world *w)
{
    struct tn_comm *c[TN_AXES + 2];

    pthread_mutex_lock(&w->own->lock);
    memcpy(c, w->group, sizeof w->group);
    c[TN_AXES] = w->back;
    c[TN_AXES + 1] = w->comm;
    w->own->aborting++; /* close waits, so they stay */
    pthread_mutex_unlock(&w->own->lock);
    for (int i = 0; i < TN_AXES + 2; i++)
        if (c[i])
            w->comm_api->abort(c[i]);
    pthread_mutex_lock(&w->own->lock);
    w->own->aborting--;
    pthread_cond_broadcast(&w->own->changed);
    pthread_mutex_unlock(&w->own->lock);
}

/* The first sentence is the one. */
static void judge(struct tn_world *w, const char *text)
{
    struct tn_world_own *o = w->own;

    pthread_mutex_lock(&o->lock);
    if (!o->judged) {
        snprintf(o->verdict, sizeof o->verdict, "%s", text);
        o->judged = 1;
        o->failed_at = tn_net_now();
    }
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

/* On the client's thread, which has nothing else to do any more. */
static void last_resort(void *arg)
{
    struct tn_world_own *o = ((struct tn_world *)arg)->own;
    double until = tn_net_now() + LAST_RESORT;
    struct timespec t = {.tv_sec = (time_t)until, .tv_nsec = (long)(fmod(until, 1) * 1e9)};

    pthread_mutex_lock(&o->lock);
    while (!o->released && pthread_cond_timedwait(&o->changed, &o->lock, &t) != ETIMEDOUT)
        ;
    int released = o->released, told = o->told;
    pthread_mutex_unlock(&o->lock);
    if (released)
        return;
    if (!told)
        tn_log(TN_LOG_ERROR, "%s", o->verdict);
    _exit(1);
}

static void verdict(void *arg, const struct tn_report *list, uint32_t n)
{
    struct tn_world *w = arg;
    char text[sizeof w->own->verdict];

    compose(w, list, n, text, sizeof text);
    judge(w, text);
    abort_all(w);
}

const struct tn_store_events tn_world_events = {
    .describe = describe, .verdict = verdict, .over = last_resort, .tick = tick};

/* --- for the others */
tn_status tn_world_failed(struct tn_world *w)
{
    struct tn_world_own *o = w->own;

    pthread_mutex_lock(&o->lock);
    int judged = o->judged;
    o->told |= judged;
    pthread_mutex_unlock(&o->lock);
    if (judged)
        return tn_error_long(TN_ERR, o->verdict);
    return TN_ERR;
}

int tn_world_has_failed(struct tn_world *w)
{
    if (!w)
        return 0;
    pthread_mutex_lock(&w->own->lock);
    int failed = w->own->judged || w->own->abandoned;
    pthread_mutex_unlock(&w->own->lock);
    return failed;
}

static void await_verdict(struct tn_world *w)
{
    double until = tn_net_now() + PATIENCE;
    struct timespec t = {.tv_sec = (time_t)until, .tv_nsec = (long)(fmod(until, 1) * 1e9)};
    struct tn_report store = {.rank = 0, .state = TN_RANK_SILENT, .peer = TN_NOBODY};
    char text[sizeof w->own->verdict];
    int late = 0;

    pthread_mutex_lock(&w->own->lock);
    while (!w->own->judged && !late)
        late = pthread_cond_timedwait(&w->own->changed, &w->own->lock, &t) == ETIMEDOUT;
    int judged = w->own->judged;
    pthread_mutex_unlock(&w->own->lock);
    if (judged)
        return;
    compose(w, &store, 1, text, sizeof text);
    judge(w, text);
    abort_all(w);
}

/* Where no rank is at fault, what the communicator said here is all that there is of a reason. */
static tn_status failed_here(struct tn_world *w, const char *said)
{
    struct tn_world_own *o = w->own;
    char text[sizeof o->verdict + 600];
    tn_status s = tn_world_failed(w);

    if (!*said || !w->comm_name || !strstr(tn_error_text(), NOBODY_GONE))
        return s;
    snprintf(text, sizeof text, "%s; communicator %s: %s", o->verdict, w->comm_name, said);
    return tn_error_long(s, text);
}

tn_status tn_world_fail(struct tn_world *w, const char *phase, const char *collective, uint64_t sequence,
                        int64_t peer)
{
    struct tn_world_own *o = w->own;
    char said[400];
    struct tn_report r = {.rank = w->rank, .failed = 1, .peer = TN_NOBODY};

    if (!o->client)
        return tn_error_status() < 0 ? tn_error_status() : TN_ERR;
    snprintf(said, sizeof said, "%s", tn_error_text());
    pthread_mutex_lock(&o->lock);
    if (phase)
        o->phase = phase;
    snprintf(o->collective_text, sizeof o->collective_text, "%s", collective ? collective : "");
    set_position(o, collective ? o->collective_text : NULL, sequence, peer);
    pthread_mutex_unlock(&o->lock);
    report(o, &r);
    if (!tn_world_has_failed(w))
        tn_store_accuse(o->client, &r); /* if the store is gone, that is the verdict */
    await_verdict(w);
    return failed_here(w, said);
}

/* The caller's error stays the recorded one. */
static void accuse_itself(struct tn_world *w, const char *text)
{
    struct tn_report r = {.rank = w->rank, .failed = 1, .peer = TN_NOBODY};
    tn_status own = tn_error_status();
    char *said = own < 0 ? strdup(tn_error_text()) : NULL;

    report(w->own, &r);
    snprintf(r.text, sizeof r.text, "%s", text && *text ? text : "for a reason that it did not say");
    r.text[strcspn(r.text, "\n")] = 0; /* of a list its first */
    if (tn_store_accuse(w->own->client, &r) == TN_OK)
        await_verdict(w);
    if (said)
        tn_error_long(own, said);
    free(said);
}

void tn_world_abandon(struct tn_world *w, const char *text)
{
    if (!w || !w->own->client)
        return;
    pthread_mutex_lock(&w->own->lock);
    int first = !w->own->judged && !w->own->abandoned && !w->own->agreed;
    if (!w->own->agreed)
        w->own->abandoned = w->own->told = 1;
    pthread_mutex_unlock(&w->own->lock);
    if (first)
        accuse_itself(w, text);
}
