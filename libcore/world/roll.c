/* roll.c - the roll is called: who is here, on which host, at which address. See world.h.
 *
 * Everyone tells its name and address, rank 0 waits for all, says who is missing if somebody is, and hands
 * out the table. Addresses are those that packets really take: the own side of the connection to rank 0 or,
 * on rank 0's host, the side that leads to a rank of another host; TENON_IFACE names an interface instead. */
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/pool.h"
#include "base/status.h"
#include "world/world_own.h"

#define BEAT 10.0  /* seconds from one line about the missing to the next */
#define MARGIN 3.0 /* seconds that the others wait longer than rank 0, for its words */

const char *tn_world_iface(void)
{
    const char *name = getenv("TENON_IFACE");

    return name && *name ? name : NULL;
}

/* --- who I am */
static void read_line(const char *path, char *out, size_t room)
{
    FILE *f = fopen(path, "re");

    *out = 0;
    if (!f)
        return;
    if (!fgets(out, (int)room, f))
        *out = 0;
    fclose(f);
    out[strcspn(out, "\n")] = 0;
}

static uint64_t cpu_mask(void)
{
    cpu_set_t set;
    uint64_t hash = 14695981039346656037u;

    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (size_t i = 0; i < sizeof set; i++)
        hash = (hash ^ ((const unsigned char *)&set)[i]) * 1099511628211u;
    return hash;
}

static tn_status describe(struct tn_world *w, struct tn_world_peer *p)
{
    struct tn_net_iface iface;
    struct tn_net_address near;
    char boot[40];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    tn_status s;

    *p = (struct tn_world_peer){.cpu_mask = cpu_mask(),
                                .cpus = tn_cpus(),
                                .host_cpus = cpus > 0 ? (uint32_t)cpus : 1,
                                .node = w->place.node,
                                .nodes = w->place.nodes,
                                .local_rank = w->place.local_rank,
                                .local_size = w->place.local_size,
                                .pid = getpid()};
    if (gethostname(p->host, sizeof p->host - 1))
        snprintf(p->host, sizeof p->host, "?");
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    snprintf(p->host_id, sizeof p->host_id, "%.24s %.36s", p->host, boot);
    if (tn_world_iface()) {
        if ((s = tn_net_iface(tn_world_iface(), &iface)) < 0)
            return tn_error(s, "TENON_IFACE: %s", tn_error_text());
        snprintf(p->address, sizeof p->address, "%s", iface.address.text);
        memcpy(p->iface, iface.name, sizeof p->iface);
        return TN_OK;
    }
    if ((s = tn_store_near(w->own->client, &near)) < 0)
        return s;
    snprintf(p->address, sizeof p->address, "%s", near.text);
    tn_net_iface_name(&near, p->iface);
    return TN_OK;
}

/* --- all of them */
static void key_of(const char *what, uint32_t rank, char *out, size_t room)
{
    snprintf(out, room, "tenon/%s/%u", what, rank);
}

/* "ranks 1, 4 and 5" of those without the key; returns how many. */
static uint32_t missing(struct tn_world *w, const char *what, char *out, size_t room)
{
    uint32_t n = 0, shown = 0, list[8];
    char key[64];
    size_t k;

    for (uint32_t r = 0; r < w->size; r++) {
        key_of(what, r, key, sizeof key);
        if (tn_store_check(w->own->client, key) == TN_OK)
            continue;
        if (shown < 8)
            list[shown++] = r;
        n++;
    }
    k = (size_t)snprintf(out, room, n == 1 ? "rank" : "ranks");
    for (uint32_t i = 0; i < shown && k < room; i++)
        k += (size_t)snprintf(out + k, room - k, "%s%u", !i ? " " : i + 1 == n ? " and " : ", ", list[i]);
    if (n > shown && k < room)
        snprintf(out + k, room - k, " and %u more", n - shown);
    return n;
}

/* Rank 0: until all have come. */
static tn_status await(struct tn_world *w, double until)
{
    double began = tn_net_now(), beat = began + BEAT;
    char key[64], who[128], *data;
    uint64_t bytes;

    for (uint32_t r = 0; r < w->size;) {
        double now = tn_net_now(), next = beat < until ? beat : until;
        key_of("rank", r, key, sizeof key);
        tn_status s = tn_store_take(w->own->client, key, &data, &bytes, next > now ? next - now : 0);
        if (s == TN_OK && bytes == sizeof *w->own->peer) {
            memcpy(&w->own->peer[r++], data, bytes);
            free(data);
            continue;
        }
        free(data);
        if (s != TN_ERR_TIMEOUT)
            return s < 0 ? s : tn_error(TN_ERR, "rank %u is another version of this program", r);
        uint32_t n = missing(w, "rank", who, sizeof who);
        if (tn_net_now() >= until)
            return tn_error(TN_ERR_TIMEOUT, "%s of %u did not arrive within %g s; rank 0 listens on %s", who,
                            w->size, w->timeout, w->own->listens);
        if (n)
            tn_log(TN_LOG_INFO, "rendezvous: waiting for %s of %u for %.0f s", who, w->size,
                   tn_net_now() - began);
        beat = tn_net_now() + BEAT;
    }
    return TN_OK;
}

static tn_status hand_out(struct tn_world *w, tn_status s)
{
    size_t bytes = w->size * sizeof *w->own->peer;
    char why[600], *text;

    if (s == TN_OK)
        return tn_store_set(w->own->client, "tenon/all", w->own->peer, bytes);
    snprintf(why, sizeof why, "%s", tn_error_text());
    text = why;
    tn_store_set(w->own->client, "tenon/all", text, strlen(text));
    return tn_error(s, "%s", why);
}

static tn_status receive(struct tn_world *w, double until)
{
    size_t want = w->size * sizeof *w->own->peer;
    double left = until + MARGIN - tn_net_now();
    char *data;
    uint64_t bytes;
    tn_status s = tn_store_take(w->own->client, "tenon/all", &data, &bytes, left);

    if (s < 0)
        return s;
    if (bytes == want)
        memcpy(w->own->peer, data, want);
    else
        s = tn_error(TN_ERR_TIMEOUT, "%.600s", data);
    free(data);
    return s;
}

/* --- after all are known */

/* As far as addresses go: hosts, or what the launcher takes for hosts. */
static int are_together(const struct tn_world_peer *a, const struct tn_world_peer *b)
{
    return !strcmp(a->host_id, b->host_id) && (a->nodes <= 1 || a->node == b->node);
}

/* On rank 0's host the connection to the store says nothing about the way to other hosts. */
static tn_status settle_address(struct tn_world *w, struct tn_world_peer *me)
{
    struct tn_net_iface iface;
    struct tn_net_address far;
    tn_status s;

    if (tn_world_iface() || !are_together(me, &w->own->peer[0]))
        return TN_OK;
    for (uint32_t r = 0; r < w->size; r++) {
        if (are_together(&w->own->peer[r], me))
            continue;
        if ((s = tn_net_parse(w->own->peer[r].address, 9, &far)) < 0 || (s = tn_net_route(&far, &iface)) < 0)
            return s;
        snprintf(me->address, sizeof me->address, "%s", iface.address.text);
        memcpy(me->iface, iface.name, sizeof me->iface);
        return TN_OK;
    }
    return TN_OK;
}

static void count_place(struct tn_world *w)
{
    const struct tn_world_peer *me = &w->own->peer[w->rank];
    uint32_t on_host = 0, before = 0, hosts = 0, host = 0;

    w->cpu_sharers = 0;
    for (uint32_t r = 0; r < w->size; r++) {
        const struct tn_world_peer *p = &w->own->peer[r];
        uint32_t first = 0;

        while (strcmp(w->own->peer[first].host_id, p->host_id))
            first++;
        hosts += first == r;
        if (first == r && !strcmp(p->host_id, me->host_id))
            host = hosts - 1;
        if (strcmp(p->host_id, me->host_id))
            continue;
        on_host++;
        before += r < w->rank;
        w->cpu_sharers += p->cpu_mask == me->cpu_mask;
    }
    if (!w->place.local_size) {
        w->place.local_size = on_host;
        w->place.local_rank = before;
    }
    if (!w->place.nodes) {
        w->place.nodes = hosts;
        w->place.node = host;
    }
}

static tn_status check_address(struct tn_world *w)
{
    const struct tn_world_peer *me = &w->own->peer[w->rank];
    struct tn_net_address a;
    tn_status s = tn_net_parse(me->address, 0, &a);

    if (s == TN_OK && w->place.nodes > 1 && tn_net_is_loopback(&a))
        return tn_error(TN_ERR_CONFIG,
                        "rank %u has the address %s (%s), which other hosts cannot reach, and the ranks are "
                        "on %u hosts: set TENON_IFACE to the interface between them",
                        w->rank, me->address, me->iface, w->place.nodes);
    return s;
}

void tn_world_say(const struct tn_world *w)
{
    int narrow = 0;

    if (w->rank)
        return;
    for (uint32_t r = 0; r < w->size; r++) {
        const struct tn_world_peer *p = &w->own->peer[r];
        tn_log(TN_LOG_INFO, "rank %u of %u: host %s, process %lld, address %s on %s, %u of %u CPUs", r,
               w->size, p->host, (long long)p->pid, p->address, p->iface, p->cpus, p->host_cpus);
        narrow += p->cpus == 1 && p->host_cpus > w->size;
    }
    if (narrow)
        tn_log(TN_LOG_WARNING,
               "%d ranks are bound to one CPU each, and their hosts have more: with mpirun, "
               "--bind-to none or --map-by :PE=N gives them more threads",
               narrow);
}

/* A second round, since rank 0's host learns its addresses from the first. */
tn_status tn_world_roll(struct tn_world *w, double until)
{
    struct tn_world_peer me;
    char key[64];
    uint64_t bytes;
    tn_status s = describe(w, &me);

    key_of("rank", w->rank, key, sizeof key);
    if (s == TN_OK)
        s = tn_store_set(w->own->client, key, &me, sizeof me);
    if (s == TN_OK)
        s = w->rank ? receive(w, until) : hand_out(w, await(w, until));
    if (s == TN_OK)
        s = settle_address(w, &w->own->peer[w->rank]);
    count_place(w);
    if (s == TN_OK)
        s = check_address(w);
    if (s < 0)
        return s;
    me = w->own->peer[w->rank];
    key_of("address", w->rank, key, sizeof key);
    if ((s = tn_store_set(w->own->client, key, me.address, strlen(me.address))) < 0)
        return s;
    for (uint32_t r = 0; r < w->size && s == TN_OK; r++) {
        struct tn_world_peer *p = &w->own->peer[r];
        if (!are_together(p, &w->own->peer[0]))
            continue; /* it came from where it is */
        key_of("address", r, key, sizeof key);
        bytes = sizeof p->address - 1;
        memset(p->address, 0, sizeof p->address);
        s = tn_store_get(w->own->client, key, p->address, &bytes, until + MARGIN - tn_net_now());
    }
    return s;
}

int tn_world_peer(const struct tn_world *w, uint32_t rank, struct tn_world_where *out)
{
    const struct tn_world_peer *p = w->own->peer ? &w->own->peer[rank] : NULL;

    if (p)
        *out = (struct tn_world_where){p->host, p->address, p->iface, p->pid, p->cpus, p->host_cpus};
    return p != NULL;
}
