/* world.c - joining, opening and closing a world: see world.h. */
#include <stdlib.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/status.h"
#include "plugin/load.h"
#include "world/world_own.h"

#define GOODBYE 2.0      /* seconds for connections to end when all have said goodbye */
#define MEET_TO_SAY 10.0 /* seconds that a rank with a trouble of its own waits to meet the others */

/* --- what all must have alike */

/* Names of places on a host, and its number of CPUs: they may differ. What lies there is compared by who
 * reads it. */
static int is_local(const char *key)
{
    static const char *const local[] = {"data.dir", "plugins.path", "backend.threads"};

    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (!strcmp(key, local[i]))
            return 1;
    return 0;
}

static tn_status agree_plugins(struct tn_world *w)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_fact *fact = NULL;
    uint32_t n = 0;
    tn_status s;

    for (const struct tn_loaded *p = NULL; (p = tn_plugin_each(p));) {
        fact = tn_alloc_grow(a, fact, n, sizeof *fact);
        fact[n++] = (struct tn_fact){tn_text(a, "plugin %s", p->card.note.name),
                                     tn_text(a, "version %s, build %s", p->card.note.version,
                                             *p->card.build_id ? p->card.build_id : "without id")};
    }
    fact = tn_alloc_grow(a, fact, n, sizeof *fact);
    fact[n++] = (struct tn_fact){"tenon", TN_VERSION};
    s = tn_world_agree(w, "plugins", fact, n);
    tn_arena_free(a);
    return s;
}

static tn_status agree_config(struct tn_world *w, const struct tn_config *c)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_config_entry e;
    struct tn_fact *fact = NULL;
    uint32_t n = 0;
    tn_status s;

    for (size_t i = 0; tn_config_at(c, i, &e); i++) {
        if (!e.value || is_local(e.name))
            continue;
        fact = tn_alloc_grow(a, fact, n, sizeof *fact);
        fact[n++] = (struct tn_fact){e.name, e.value};
    }
    s = tn_world_agree(w, "configuration", fact, n);
    tn_arena_free(a);
    return s;
}

/* --- joining */
static tn_status join(struct tn_world *w, const struct tn_config *c, tn_status own)
{
    tn_status s;

    tn_world_phase(w, "rendezvous", 0);
    if ((s = tn_world_meet(w)) < 0)
        return s;
    tn_world_phase(w, "agreement", 1);
    if (own < 0)
        tn_error_long(own, w->own->trouble);
    if ((s = tn_world_settle(w, own)) < 0)
        return s;
    tn_world_say(w);
    if ((s = tn_world_provide(w->own->client)) < 0 || (s = agree_plugins(w)) < 0 ||
        (s = agree_config(w, c)) < 0)
        return s;
    tn_world_phase(w, "start", 0);
    return TN_OK;
}

/* What all know stays as it is; any other reason is this rank's own, and the others are told. Who comes with
 * a trouble has nothing better to say than that, and does not wait long for those to whom it says it. */
tn_status tn_world_join(struct tn_world *w, const struct tn_config *c, tn_status own)
{
    tn_status s;

    if (w->size == 1 || !w->bootstrap)
        return own;
    if (own < 0) {
        w->own->trouble = strdup(tn_error_text());
        w->timeout = w->timeout < MEET_TO_SAY ? w->timeout : MEET_TO_SAY;
    }
    s = join(w, c, own);
    if (s < 0 && own < 0 && !w->own->agreed)
        s = tn_error_long(own, w->own->trouble ? w->own->trouble : "");
    else if (s < 0 && !w->own->agreed && tn_world_has_failed(w))
        s = tn_world_failed(w);
    if (s < 0)
        tn_world_abandon(w, tn_error_text());
    return s;
}

tn_status tn_world_greet(struct tn_world *w)
{
    tn_status s = TN_OK;

    if (w->size == 1 || !w->bootstrap)
        return TN_OK;
    tn_world_phase(w, "rendezvous", 0);
    s = tn_world_meet(w);
    if (s < 0)
        tn_world_abandon(w, tn_error_text());
    else
        tn_world_phase(w, "start", 0);
    return s;
}

/* --- opening */

/* Published under the lock, since the watching thread may abort it at any time. */
static void publish(struct tn_world *w, struct tn_comm **where, struct tn_comm *c)
{
    pthread_mutex_lock(&w->own->lock);
    *where = c;
    int late = w->own->judged;
    pthread_mutex_unlock(&w->own->lock);
    if (late && c)
        w->comm_api->abort(c);
}

static tn_status open_group(struct tn_world *w, int axis, struct tn_comm **where)
{
    int64_t n = w->mesh.size[axis], *ranks = calloc((size_t)n, sizeof *ranks);
    uint32_t *list = calloc((size_t)n, sizeof *list);
    struct tn_comm *c = NULL;
    tn_status s =
        ranks && list ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for a group of %lld ranks", (long long)n);

    if (s == TN_OK) {
        tn_mesh_group(&w->mesh, axis, ranks);
        for (int64_t i = 0; i < n; i++)
            list[i] = (uint32_t)ranks[i];
        s = w->comm_api->group(w->comm, list, (uint32_t)n, &c);
    }
    if (s == TN_OK)
        publish(w, where, c);
    free(ranks);
    free(list);
    return s;
}

static tn_status open_comms(struct tn_world *w)
{
    struct tn_comm *c = NULL;
    tn_status s = w->comm_api->open(w->rank, w->size, w->timeout, &c);

    if (s < 0)
        return s;
    publish(w, &w->comm, c);
    for (int a = 0; a < TN_AXES && s == TN_OK; a++)
        if (w->mesh.size[a] > 1)
            s = open_group(w, a, &w->group[a]);
    if (s == TN_OK && w->mesh.size[tn_axis_find("pp")] > 1)
        s = open_group(w, tn_axis_find("pp"), &w->back);
    return s;
}

tn_status tn_world_open(struct tn_world *w)
{
    char why[600];
    tn_status s;

    if (!w->comm_api)
        return TN_OK;
    tn_world_phase(w, "connect", 1);
    s = open_comms(w);
    if (s == TN_OK || !w->own->client) {
        tn_world_phase(w, "start", 0);
        return s;
    }
    if (tn_world_has_failed(w)) /* that is why it did not open */
        return tn_world_failed(w);
    snprintf(why, sizeof why, "%s", tn_error_text());
    tn_world_fail(w, "connect", NULL, 0, -1);
    return tn_error(s, "communicator %s: %.500s; %s", w->comm_name, why, w->own->verdict);
}

/* --- closing */
static void close_comms(struct tn_world *w)
{
    struct tn_comm *c[TN_AXES + 2];

    pthread_mutex_lock(&w->own->lock);
    memcpy(c, w->group, sizeof w->group);
    c[TN_AXES] = w->back;
    c[TN_AXES + 1] = w->comm;
    memset(w->group, 0, sizeof w->group);
    w->comm = w->back = NULL;
    while (w->own->aborting) /* a verdict came meanwhile */
        pthread_cond_wait(&w->own->changed, &w->own->lock);
    pthread_mutex_unlock(&w->own->lock);
    for (int i = 0; i < TN_AXES + 2; i++)
        if (c[i])
            w->comm_api->close(c[i]);
}

/* The work was done, but not all ranks came to the end: no success. Whoever has an error to print prints
 * that. */
static void end_in_failure(struct tn_world *w)
{
    char text[sizeof w->own->verdict];

    pthread_mutex_lock(&w->own->lock);
    int told = w->own->told || w->own->agreed;
    w->own->told = 1;
    memcpy(text, w->own->verdict, sizeof text);
    pthread_mutex_unlock(&w->own->lock);
    if (told)
        return;
    tn_log(TN_LOG_ERROR, "%s", *text ? text : tn_error_text());
    fflush(NULL);
    _exit(1);
}

/* Waits for the others to come to the end too. A rank that comes with an error keeps it, and says it to those
 * that do not come, since they need it: the store does after a while, and here it is said when the time is
 * over. */
static tn_status say_goodbye(struct tn_world *w)
{
    tn_status own = tn_error_status(), s;
    int hushed = tn_error_is_hushed();
    char *trouble = own < 0 ? strdup(tn_error_text()) : NULL;

    s = tn_store_goodbye(w->own->client, w->own->agreed || !trouble ? "" : trouble, w->timeout);
    if (own < 0) {
        pthread_mutex_lock(&w->own->lock);
        w->own->told |= s < 0;
        pthread_mutex_unlock(&w->own->lock);
        tn_error_long(own, trouble ? trouble : "");
        if (s < 0)
            tn_world_abandon(w, tn_error_text());
        if (hushed)
            tn_error_hush();
    }
    free(trouble);
    return s;
}

/* What all end with, rank 0 says, and before it lets the others go: a launcher ends who is left when the first one has
 * ended. */
static void say_agreed(const struct tn_world *w)
{
    if (!w->own->agreed || w->rank || tn_error_status() >= 0 || tn_error_is_hushed())
        return;
    tn_log(TN_LOG_ERROR, "%s", tn_error_text());
    fflush(NULL);
    tn_error_hush();
}

static void disconnect(struct tn_world *w)
{
    int was_here = w->own->client != NULL;

    pthread_mutex_lock(&w->own->lock);
    w->own->released = 1;
    pthread_cond_broadcast(&w->own->changed);
    pthread_mutex_unlock(&w->own->lock);
    tn_world_withdraw();
    tn_store_disconnect(w->own->client);
    tn_store_end(w->own->server, was_here ? GOODBYE : 0);
}

/* Communicators close after the goodbye, when nobody needs them any more and everybody is there to close
 * them. After a failure the thread that watches stays to end the process, and so does what it looks at. */
void tn_world_close(struct tn_world *w)
{
    if (!w)
        return;
    if (w->own && w->own->client) {
        tn_world_phase(w, "end", 1);
        say_agreed(w);
        if (tn_world_has_failed(w) || say_goodbye(w) < 0) {
            end_in_failure(w);
            return;
        }
    }
    if (w->own && w->comm_api)
        close_comms(w);
    if (w->own)
        disconnect(w);
    if (w->bootstrap && w->bootstrap->leave)
        w->bootstrap->leave();
    if (w->own) {
        pthread_cond_destroy(&w->own->changed);
        pthread_mutex_destroy(&w->own->lock);
        free(w->own->peer);
        free(w->own->trouble);
        free(w->own);
    }
    free(w);
}
