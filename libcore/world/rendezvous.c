/* rendezvous.c - how ranks find rank 0: see world.h.
 *
 * Rank 0 listens, starts the store and, where the launcher did not say an address, publishes all addresses of
 * its host through the bootstrap; the others try each of them at each port that may be meant, again and
 * again, until the store of their own run takes them in. Then everyone tells its name and address, rank 0
 * waits for all, says who is missing if somebody is, and hands out the table.
 *
 * Addresses are those that packets really take: the own side of the connection to rank 0 or, on rank 0's
 * host, the side that leads to a rank of another host; TENON_IFACE names an interface instead. Loopback is
 * for one host. */
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>
#include "base/status.h"
#include "world/world_own.h"

#define ADDRESSES 16u

static int is_published(const struct tn_world *w)
{
    return !w->place.port && w->bootstrap->publish;
}

/* Several hosts, as far as it is known before the ranks met. */
static int is_spread(const struct tn_world *w)
{
    return w->place.nodes != 1;
}

/* --- rank 0 */

/* "10.0.0.1 fd00::2 port 4711 run 0123456789abcdef" */
static tn_status write_address(const struct tn_world *w, uint32_t port, uint64_t nonce, char *out,
                               size_t room)
{
    struct tn_net_iface list[ADDRESSES], one;
    const char *wanted = tn_world_iface();
    size_t k = 0;
    uint32_t n = 0;
    char end[64];

    if (wanted) {
        tn_status s = tn_net_iface(wanted, &one);
        if (s < 0)
            return s;
        list[n++] = one;
    } else if (!is_spread(w)) {
        tn_net_parse("127.0.0.1", port, &list[n++].address);
    } else
        n = tn_net_ifaces(ADDRESSES, list);
    if (wanted && w->place.nodes > 1 && tn_net_is_loopback(&one.address))
        return tn_error(TN_ERR_CONFIG,
                        "TENON_IFACE=%s is the loopback of this host, and the ranks are on %u hosts", wanted,
                        w->place.nodes);
    snprintf(end, sizeof end, "port %u run %016llx", port, (unsigned long long)nonce);
    for (uint32_t i = 0; i < n; i++) {
        if (w->place.nodes > 1 && tn_net_is_loopback(&list[i].address))
            continue;
        if (k + strlen(list[i].address.text) + 2 + strlen(end) >= room)
            break;
        k += (size_t)snprintf(out + k, room - k, "%s ", list[i].address.text);
    }
    if (!k)
        return tn_error(TN_ERR_CONFIG, "this host has no address but loopback, and the ranks are on %u hosts",
                        w->place.nodes);
    snprintf(out + k, room - k, "%s", end);
    return TN_OK;
}

/* Where rank 0 listens. NULL: on every address. Only what all ranks can use is opened. */
static const char *listen_where(const struct tn_world *w, char *room, size_t bytes)
{
    struct tn_net_iface iface;
    struct tn_net_address a;

    if (tn_world_iface() && tn_net_iface(tn_world_iface(), &iface) == TN_OK && !w->place.port) {
        snprintf(room, bytes, "%s", iface.address.text);
        return room;
    }
    if (w->place.port && tn_net_parse(w->place.address, 0, &a) == TN_OK && tn_net_is_loopback(&a))
        return w->place.address;
    if (!is_spread(w) && (!w->place.port || !strcmp(w->place.address, "localhost")))
        return "127.0.0.1";
    return NULL;
}

static uint32_t ports_of(const struct tn_world *w)
{
    uint32_t n = w->place.ports ? w->place.ports : 1;

    return w->place.port + n > 65536 ? 65536 - w->place.port : n;
}

static tn_status serve(struct tn_world *w, struct tn_store_job *job, uint32_t *bound)
{
    char room[TN_NET_TEXT];
    const char *where = listen_where(w, room, sizeof room);
    tn_status s = TN_ERR;
    int fd = -1;

    for (uint32_t i = 0; i < ports_of(w) && s < 0; i++)
        s = tn_net_listen(where, w->place.port ? w->place.port + i : 0, bound, &fd);
    if (s < 0 && ports_of(w) > 1)
        return tn_error(s, "none of the ports %u to %u is free: %s", w->place.port,
                        w->place.port + ports_of(w) - 1, tn_error_text());
    if (s < 0)
        return s;
    return tn_store_serve(fd, job, &w->own->server);
}

/* --- the others */

struct target {
    struct tn_net_address address[ADDRESSES];
    uint32_t n, ports;
    uint64_t nonce;
};

static tn_status read_published(const char *text, struct target *t)
{
    const char *port = strstr(text, "port "), *run = strstr(text, " run ");
    char copy[256], *save = NULL;

    *t = (struct target){.ports = 1};
    if (!port || !run || strlen(text) >= sizeof copy)
        return tn_error(TN_ERR, "the bootstrap gave \"%.200s\", which is no address of rank 0", text);
    t->nonce = strtoull(run + 5, NULL, 16);
    snprintf(copy, sizeof copy, "%.*s", (int)(port - text), text);
    for (char *one = strtok_r(copy, " ", &save); one && t->n < ADDRESSES; one = strtok_r(NULL, " ", &save)) {
        tn_status s = tn_net_parse(one, (uint32_t)strtoul(port + 5, NULL, 10), &t->address[t->n++]);
        if (s < 0)
            return s;
    }
    return TN_OK;
}

/* Loopback leads to ourselves: no use where rank 0 is on another host. */
static tn_status check_loopback(const struct tn_world *w, const struct target *t)
{
    if (w->place.nodes <= 1 || w->place.node == 0)
        return TN_OK;
    for (uint32_t i = 0; i < t->n; i++)
        if (!tn_net_is_loopback(&t->address[i]))
            return TN_OK;
    return tn_error(TN_ERR_CONFIG,
                    "the address of rank 0 is %s%s%s%s, which is this host itself, and the ranks are on "
                    "%u hosts: give the address by which the others reach rank 0's host",
                    w->place.address, *w->place.address ? " (" : "", t->address[0].text,
                    *w->place.address ? ")" : "", w->place.nodes);
}

static tn_status find_target(struct tn_world *w, const char *own, double until, struct target *t)
{
    char text[256] = "";
    tn_status s;

    if (!is_published(w)) {
        *t = (struct target){.ports = ports_of(w)};
        s = tn_net_resolve(w->place.address, w->place.port, ADDRESSES, t->address, &t->n);
    } else {
        double left = until - tn_net_now();
        s = w->bootstrap->publish(own, text, sizeof text, left > 0.1 ? left : 0.1);
        text[sizeof text - 1] = 0;
        if (s == TN_OK)
            s = read_published(text, t);
    }
    return s < 0 ? s : check_loopback(w, t);
}

/* Each address at each port, once. */
static tn_status try_all(struct tn_world *w, struct tn_store_job *job, const struct target *t, double until)
{
    struct tn_store_events events = tn_world_events;
    tn_status s = TN_DECLINED;

    events.arg = w;
    events.patience = w->timeout;
    job->nonce = t->nonce;
    for (uint32_t p = 0; p < t->ports; p++)
        for (uint32_t i = 0; i < t->n; i++) {
            struct tn_net_address a;
            if ((s = tn_net_parse(t->address[i].text, t->address[i].port + p, &a)) < 0)
                return s;
            s = tn_store_connect(&a, job, w->rank, &events, until, &w->own->client);
            if (s <= TN_OK || tn_net_now() >= until)
                return s;
        }
    return s;
}

static tn_status connect_all(struct tn_world *w, struct tn_store_job *job, double until)
{
    double pause = 0.02;
    struct target t;
    tn_status s;

    for (;;) {
        if ((s = find_target(w, NULL, until, &t)) == TN_OK)
            s = try_all(w, job, &t, until);
        else if (s == TN_ERR_TIMEOUT)
            break;
        if (s <= TN_OK)
            return s;
        if (tn_net_now() + pause >= until)
            break;
        usleep((useconds_t)(pause * 1e6));
        pause = pause < 0.3 ? pause * 1.5 : 0.3;
    }
    char last[400];
    snprintf(last, sizeof last, "%s", tn_error_text());
    return tn_error(TN_ERR_TIMEOUT, "rank 0 of %u did not arrive within %g s; last tried: %s", w->size,
                    w->timeout, last);
}

static tn_status open_store(struct tn_world *w, double until)
{
    struct tn_store_job job = {.size = w->size};
    char address[256] = "", out[256];
    struct target self = {.n = 1, .ports = 1};
    char room[TN_NET_TEXT];
    const char *where;
    uint32_t port;
    tn_status s;

    memcpy(job.job, w->place.job, sizeof job.job);
    if (!w->place.port && !w->bootstrap->publish)
        return tn_error(TN_ERR, "bootstrap %s says neither where rank 0 is nor can it tell the others",
                        w->bootstrap_name);
    if (w->rank)
        return connect_all(w, &job, until);
    if (is_published(w) && getrandom(&job.nonce, sizeof job.nonce, 0) != sizeof job.nonce)
        job.nonce = (uint64_t)getpid() << 32 ^ (uint64_t)(tn_net_now() * 1e6);
    if ((s = serve(w, &job, &port)) < 0)
        return s;
    where = listen_where(w, room, sizeof room);
    snprintf(w->own->listens, sizeof w->own->listens, "%s port %u", where ? where : "all its addresses",
             port);
    if (is_published(w)) {
        if ((s = write_address(w, port, job.nonce, address, sizeof address)) < 0 ||
            (s = w->bootstrap->publish(address, out, sizeof out, w->timeout)) < 0)
            return s;
    }
    self.nonce = job.nonce;
    if ((s = tn_net_parse(where ? where : "127.0.0.1", port, &self.address[0])) < 0)
        return s;
    s = try_all(w, &job, &self, until);
    return s == TN_DECLINED ? tn_error(TN_ERR, "rank 0 cannot reach its own store: %s", tn_error_text()) : s;
}

tn_status tn_world_meet(struct tn_world *w)
{
    double until = tn_net_now() + w->timeout;
    tn_status s;

    w->own->peer = calloc(w->size, sizeof *w->own->peer);
    if (!w->own->peer)
        return tn_error(TN_ERR_MEMORY, "no memory for a table of %u ranks", w->size);
    s = open_store(w, until);
    return s < 0 ? s : tn_world_roll(w, until);
}
