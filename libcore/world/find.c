/* find.c - which launcher started this process, as which rank, and what the mesh is: see world.h.
 *
 * Nothing leaves this process here: no connection, no file. So variables that contradict each other, and a
 * mesh that does not fit the world, end the run before anything was touched. */
#include <stdlib.h>
#include <time.h>
#include "base/status.h"
#include "plugin/load.h"
#include "world/world_own.h"

static const char *place_of(const struct tn_config *c, const char *key, char *out, size_t room)
{
    if (tn_config_is_set(c, key))
        snprintf(out, room, "%s: %s", tn_config_origin(c, key), key);
    else
        snprintf(out, room, "%s", key);
    return out;
}

static tn_status choose(struct tn_registry *r, struct tn_config *c, const char *key, const char *id,
                        const void **table)
{
    const char *name = tn_config_text(c, key);
    char place[300];

    place_of(c, key, place, sizeof place);
    return name ? tn_registry_get(r, place, name, id, table)
                : tn_registry_best(r, place, id, NULL, NULL, table);
}

/* --- the launcher */

/* A launcher's variables that speak to a plugin and are wrong end the run, even if another plugin would do.
 */
static tn_status check_broken(struct tn_registry *r)
{
    for (const struct tn_candidate *k = NULL; (k = tn_registry_each(r, k));) {
        const struct tn_probe *p;
        const struct tn_offer *o;

        if (!tn_card_provides(&k->card, TN_BOOTSTRAP_ID) || tn_registry_ask(r, k, &p) < 0)
            continue;
        o = tn_probe_offer(p, TN_BOOTSTRAP_ID);
        if (o && o->status == TN_ERR_CONFIG)
            return tn_error(TN_ERR_CONFIG, "%s", o->why);
    }
    return TN_OK;
}

int tn_world_launched(struct tn_registry *r)
{
    uint32_t best = 0;

    for (const struct tn_candidate *k = NULL; (k = tn_registry_each(r, k));) {
        const struct tn_probe *p;
        const struct tn_offer *o;

        if (!tn_card_provides(&k->card, TN_BOOTSTRAP_ID) || tn_registry_ask(r, k, &p) < 0)
            continue;
        o = tn_probe_offer(p, TN_BOOTSTRAP_ID);
        if (o && (o->score > best || o->status == TN_ERR_CONFIG))
            best = o->status == TN_ERR_CONFIG ? UINT32_MAX : o->score;
    }
    return best > 1;
}

/* Communicators are asked now, in children, since a launcher's library may start threads in locate. */
static void ask_communicators(struct tn_registry *r)
{
    for (const struct tn_candidate *k = NULL; (k = tn_registry_each(r, k));) {
        const struct tn_probe *p;
        if (tn_card_provides(&k->card, TN_COMM_ID))
            tn_registry_ask(r, k, &p);
    }
}

static tn_status check_place(const char *name, struct tn_place *p)
{
    p->address[sizeof p->address - 1] = 0;
    p->job[sizeof p->job - 1] = 0;
    if (!p->size || p->rank >= p->size || p->port > 65535 ||
        (p->local_size && p->local_rank >= p->local_size) || (p->nodes && p->node >= p->nodes))
        return tn_error(TN_ERR, "bootstrap %s says rank %u of %u, local %u of %u, node %u of %u, port %u",
                        name, p->rank, p->size, p->local_rank, p->local_size, p->node, p->nodes, p->port);
    return TN_OK;
}

static tn_status locate(struct tn_registry *r, struct tn_config *c, struct tn_world *w)
{
    const void *table = NULL;
    tn_status s = tn_config_text(c, "backend.bootstrap") ? TN_OK : check_broken(r);

    if (s == TN_OK)
        s = choose(r, c, "backend.bootstrap", TN_BOOTSTRAP_ID, &table);
    if (s < 0)
        return s;
    w->bootstrap = table;
    w->bootstrap_name = tn_plugin_owner(table)->card.note.name;
    ask_communicators(r);
    if ((s = w->bootstrap->locate(&w->place)) < 0)
        return s;
    return check_place(w->bootstrap_name, &w->place);
}

/* --- the communicator */

/* kinds: "cuda, cpu". */
static const char *lacks_device(void *kind, const struct tn_candidate *c, const struct tn_offer *o)
{
    const size_t n = strlen(kind);

    (void)c;
    for (const char *p = o->kinds; (p = strstr(p, kind)); p += n)
        if ((p == o->kinds || p[-1] == ' ') && (!p[n] || p[n] == ','))
            return NULL;
    return "does not take this device's memory";
}

/* Left open, on a device whose memory is not the host's: the best of those that take it. */
static tn_status find_near(struct tn_registry *r, const struct tn_config *c, const void **table)
{
    const char *kind = tn_config_text(c, "backend.device");
    const struct tn_device_api *device = NULL;
    const void *best = NULL;

    *table = NULL;
    if (!kind && tn_registry_best(r, "backend.device", TN_DEVICE_ID, NULL, NULL, &best) == TN_OK)
        device = best, kind = device->kind;
    if (kind && strcmp(kind, "cpu") &&
        tn_registry_best(r, "backend.comm", TN_COMM_ID, lacks_device, (void *)kind, table) == TN_OK)
        return TN_OK;
    tn_error_clear();
    return TN_DECLINED;
}

static tn_status find_comm(struct tn_registry *r, struct tn_config *c, struct tn_world *w)
{
    const void *table = NULL;
    tn_status s;

    /* one rank needs no transport, whatever its score is */
    if (w->size == 1 && !tn_config_text(c, "backend.comm") &&
        tn_registry_get(r, "backend.comm", "self", TN_COMM_ID, &table) == TN_OK)
        s = TN_OK;
    else if (tn_config_text(c, "backend.comm") || find_near(r, c, &table))
        s = choose(r, c, "backend.comm", TN_COMM_ID, &table);
    else
        s = TN_OK;
    if (s < 0)
        return s;
    w->comm_api = table;
    w->comm_name = tn_plugin_owner(table)->card.note.name;
    return TN_OK;
}

/* --- the mesh */

/* "1, 2, 3 or 6" */
static void list_divisors(int64_t n, char *out, size_t room)
{
    size_t k = 0;
    int64_t last = 1;

    *out = 0;
    for (int64_t d = 2; d <= n; d++)
        if (n % d == 0)
            last = d;
    for (int64_t d = 1; d <= n && k + 24 < room; d++)
        if (n % d == 0)
            k += (size_t)snprintf(out + k, room - k, "%s%lld",
                                  d == 1      ? ""
                                  : d == last ? " or "
                                              : ", ",
                                  (long long)d);
}

/* What the user asked of an axis, 1 if nothing. */
static int64_t asked(const struct tn_config *c, int axis)
{
    char key[32];

    snprintf(key, sizeof key, "parallel.%s", tn_axis_name[axis]);
    return tn_config_int(c, key) > 1 ? tn_config_int(c, key) : 1;
}

/* "dp 2 x tp 2", the axes above 1. Returns out. */
static const char *product_text(const struct tn_config *c, char *out, size_t room)
{
    size_t k = 0;

    *out = 0;
    for (int a = 0; a < TN_AXES; a++)
        if (a != 1 && asked(c, a) > 1 && k < room)
            k += (size_t)snprintf(out + k, room - k, "%s%s %lld", k ? " x " : "", tn_axis_name[a],
                                  (long long)asked(c, a));
    return out;
}

static tn_status fail_mesh(const struct tn_config *c, const struct tn_world *w, int64_t rest)
{
    int dp = tn_config_is_set(c, "parallel.dp");
    const char *key = dp                ? "parallel.dp"
                      : asked(c, 4) > 1 ? "parallel.tp"
                      : asked(c, 3) > 1 ? "parallel.cp"
                                        : "parallel.pp";
    char would[200];

    if (w->size == 1)
        return tn_config_fail(
            c, key,
            "%lld ranks are asked for (%s), and this process was started alone: start all of them by mpirun, "
            "srun or torchrun, or take this out",
            (long long)(rest * (dp ? tn_config_int(c, "parallel.dp") : 1)),
            product_text(c, would, sizeof would));
    list_divisors(w->size, would, sizeof would);
    if (!dp || w->size % rest)
        return tn_config_fail(
            c, key,
            "pp %lld x cp %lld x tp %lld = %lld does not divide the %u ranks that were started; "
            "the product must be %s",
            (long long)asked(c, 2), (long long)asked(c, 3), (long long)asked(c, 4), (long long)rest, w->size,
            would);
    return tn_config_fail(
        c, key,
        "with pp %lld x cp %lld x tp %lld the %u ranks that were started make dp = %lld; set "
        "that, or leave dp out",
        (long long)asked(c, 2), (long long)asked(c, 3), (long long)asked(c, 4), w->size,
        (long long)(w->size / rest));
}

/* What is cut out of dp as an axis of its own, called ep: the ranks over which experts are spread, or those that share
 * what zero shards. */
static tn_status inner_part(struct tn_config *c, int64_t *ep, const char **key)
{
    int within = tn_config_text(c, "parallel.shard_within") != NULL;

    *ep = asked(c, 1), *key = "parallel.ep";
    if (!within)
        return TN_OK;
    if (*ep > 1)
        return tn_config_fail(c, "parallel.shard_within", "the inner part of dp is taken by parallel.ep = %lld; use one of them",
                              (long long)*ep);
    if (!tn_config_int(c, "parallel.zero"))
        return tn_config_fail(c, "parallel.shard_within", "nothing is sharded: set parallel.zero to 1, 2 or 3");
    *ep = tn_config_int(c, "parallel.shard_within"), *key = "parallel.shard_within";
    return TN_OK;
}

/* dp is what the other axes leave of the world, ep is cut out of dp. */
static tn_status make_mesh(struct tn_config *c, struct tn_world *w)
{
    int64_t rest = 1, ep, dp;
    const char *key;
    tn_status s = inner_part(c, &ep, &key);
    char would[200];

    if (s)
        return s;
    for (int a = 2; a < TN_AXES; a++) {
        w->mesh.size[a] = asked(c, a);
        rest = rest > INT64_MAX / w->mesh.size[a] ? INT64_MAX : rest * w->mesh.size[a];
    }
    dp = tn_config_is_set(c, "parallel.dp") ? tn_config_int(c, "parallel.dp") : w->size / rest;
    if (w->size % rest || dp != w->size / rest)
        return fail_mesh(c, w, rest);
    if (dp % ep) {
        list_divisors(dp, would, sizeof would);
        return tn_config_fail(c, key, "it must divide dp = %lld, so it can be %s", (long long)dp,
                              would);
    }
    if (!tn_config_is_set(c, "parallel.dp"))
        tn_config_settle(c, "parallel.dp", "%lld", (long long)dp);
    w->mesh.size[0] = dp / ep;
    w->mesh.size[1] = ep;
    w->mesh = tn_mesh_at(&w->mesh, w->rank);
    return TN_OK;
}

/* --- all of it */
static tn_status world_new(struct tn_world **out)
{
    struct tn_world *w = calloc(1, sizeof *w);
    pthread_condattr_t clock;

    *out = w;
    if (!w || !(w->own = calloc(1, sizeof *w->own)))
        return tn_error(TN_ERR_MEMORY, "no memory for the world");
    w->place.struct_size = sizeof w->place;
    w->size = w->cpu_sharers = 1;
    w->mesh = tn_mesh_single();
    w->own->waits_for = -1;
    w->own->phase = "start";
    pthread_mutex_init(&w->own->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->own->changed, &clock);
    pthread_condattr_destroy(&clock);
    return TN_OK;
}

/* For the list that the check gives. */
static tn_status note(struct tn_config *c, tn_status s)
{
    if (s < 0)
        tn_config_problem(c, NULL, "%s", tn_error_text());
    return s;
}

static tn_status find(struct tn_registry *r, struct tn_config *c, const struct tn_place *place,
                      struct tn_world *w)
{
    tn_status s;

    w->timeout = tn_config_float(c, "backend.timeout");
    if (place) {
        w->place = *place;
        w->place.struct_size = sizeof w->place;
        s = check_place("of the caller", &w->place);
    } else
        s = locate(r, c, w);
    if (s < 0)
        return s;
    w->rank = w->place.rank;
    w->size = w->place.size;
    int wrong = note(c, find_comm(r, c, w)) < 0;
    if (note(c, make_mesh(c, w)) < 0 || wrong || place)
        return TN_OK;
    if (w->size > 1 && !tn_config_is_set(c, "backend.bootstrap"))
        tn_config_settle(c, "backend.bootstrap", "%s", w->bootstrap_name);
    if (w->size > 1 && !tn_config_is_set(c, "backend.comm"))
        tn_config_settle(c, "backend.comm", "%s", w->comm_name);
    return TN_OK;
}

tn_status tn_world_find(struct tn_registry *r, struct tn_config *c, const struct tn_place *place,
                        struct tn_world **out)
{
    struct tn_world *w;
    tn_status s = world_new(&w);

    *out = NULL;
    if (s == TN_OK)
        s = find(r, c, place, w);
    if (s < 0) {
        note(c, s);
        tn_world_close(w);
        return s;
    }
    *out = w;
    return TN_OK;
}
