/* connect.c - the world's TCP connections: addresses exchanged, one pair for each rank that is not near.
 *
 * Gloo must not be given a name, and ends the process where it cannot resolve one; so addresses are numbers,
 * and loopback is refused between hosts before anything is connected. */
#include <stdlib.h>
#include "streams/meet.h"
#include "tcp.h"

const char tn_link_kind[] = "TCP";

tn_status tn_link_probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 20;
    snprintf(why, why_size, "shared memory within a host, TCP between hosts");
    return TN_OK;
}

/* The one that the host found when the ranks met is better than a guess: it leads to rank 0. */
tn_status tn_link_prepare(struct tn_meeting *m)
{
    struct tn_who *me = &m->who[m->c->rank];
    char key[40], known[sizeof me->address] = "";
    uint64_t bytes = sizeof known - 1;
    const char *name = getenv("TENON_IFACE");

    snprintf(key, sizeof key, "tenon/address/%u", m->c->rank);
    if ((!name || !*name) && m->store->get(key, known, &bytes, 0.01) == TN_OK && *known &&
        !tn_address_is_loopback(known) && tn_address_known(known, me->interface, sizeof me->interface)) {
        memcpy(me->address, known, sizeof known);
        return TN_OK;
    }
    return tn_address_find(me->address, sizeof me->address, me->interface, sizeof me->interface);
}

static void arrived(void *world)
{
    struct tn_world *w = world;

    tn_bell_wake(w->board);
}

static void lost(void *world, uint32_t peer)
{
    struct tn_world *w = world;

    atomic_store(&w->peer[peer].gone, 1);
    tn_bell_wake(w->board);
}

static tn_status check_address(const struct tn_meeting *m, uint32_t p)
{
    const struct tn_who *me = &m->who[m->c->rank], *w = &m->who[p];
    uint32_t loop = tn_address_is_loopback(me->address) ? m->c->rank : p;

    if (tn_who_same_host(me, w) ||
        (!tn_address_is_loopback(me->address) && !tn_address_is_loopback(w->address)))
        return TN_OK;
    return tn_error(
        TN_ERR_CONFIG,
        TN_SELF ": ranks %u (%s) and %u (%s) are on two hosts, but rank %u has only the loopback address %s; "
                "name its interface by TENON_IFACE",
        m->c->rank, me->host, p, w->host, loop, m->who[loop].address);
}

static tn_status connect_all(struct tn_meeting *m, uint8_t *all)
{
    struct tn_comm *c = m->c;
    struct tn_world *w = c->world;
    tn_status s = TN_OK;

    for (uint32_t p = 0; p < c->n && s >= 0; p++) {
        uint32_t bytes;
        if (p == c->rank || m->near[p])
            continue;
        s = tn_tcp_listen(w->link, p, all + p * (TN_TCP_ADDRESS + 4) + 4, &bytes);
        memcpy(all + p * (TN_TCP_ADDRESS + 4), &bytes, 4);
        if (s >= 0)
            s = tn_link_stream_new(w->link, p, c->tag, &c->stream[p].link);
    }
    if (s >= 0)
        s = tn_meeting_put(m, "pairs", all, c->n * (TN_TCP_ADDRESS + 4));
    for (uint32_t p = 0; p < c->n && s >= 0; p++) {
        uint64_t size = c->n * (TN_TCP_ADDRESS + 4);
        uint32_t bytes;
        if (p == c->rank || m->near[p])
            continue;
        s = tn_meeting_get(m, "pairs", p, all, &size);
        memcpy(&bytes, all + c->rank * (TN_TCP_ADDRESS + 4), 4);
        if (s >= 0)
            s = tn_tcp_connect(w->link, p, all + c->rank * (TN_TCP_ADDRESS + 4) + 4, bytes);
    }
    return s;
}

tn_status tn_link_connect(struct tn_meeting *m)
{
    struct tn_comm *c = m->c;
    struct tn_world *w = c->world;
    const struct tn_tcp_user user = {w, arrived, tn_world_control, lost};
    uint8_t *all;
    uint32_t far = 0;
    tn_status s = TN_OK;

    for (uint32_t p = 0; p < c->n && s >= 0; p++)
        if (p != c->rank && !m->near[p]) {
            far++;
            s = check_address(m, p);
        }
    if (!far || s < 0)
        return s;
    all = calloc(c->n, TN_TCP_ADDRESS + 4);
    if (!all)
        return tn_error(TN_ERR_MEMORY, TN_SELF ": no memory for addresses");
    s = tn_tcp_open(m->who[c->rank].address, c->rank, c->n, m->until - tn_now(), &user, &w->link);
    if (s >= 0)
        s = connect_all(m, all);
    free(all);
    return s;
}
