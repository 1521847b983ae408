/* meet.c - ranks of a communicator find each other through the host's store.
 *
 * The first rank of the list asks NCCL for unique ids and publishes them; NCCL does the rest, and does not
 * say whom it waits for. So each rank says in the store that it has come, and with which GPU: who gives up
 * waiting reads there who is missing, or which two were given one GPU. */
#include <unistd.h>
#include "nccl.h"

struct who {
    char host[64], gpu[16];
};

static tn_status say_here(const struct tn_comm *c)
{
    const struct tn_world *w = c->world;
    struct who me = {0};
    char key[120];

    gethostname(me.host, sizeof me.host - 1);
    if (cudaDeviceGetPCIBusId(me.gpu, sizeof me.gpu, w->device))
        snprintf(me.gpu, sizeof me.gpu, "GPU %d", w->device);
    snprintf(key, sizeof key, "%s/who/%u", c->key, c->rank);
    return w->store->set(key, &me, sizeof me);
}

static int heard_of(const struct tn_comm *c, uint32_t rank, struct who *out)
{
    uint64_t bytes = sizeof *out;
    char key[120];

    snprintf(key, sizeof key, "%s/who/%u", c->key, rank);
    return c->world->store->get(key, out, &bytes, 0.01) == TN_OK && bytes == sizeof *out;
}

void tn_nccl_missing(const struct tn_comm *c, char *text, size_t size)
{
    struct who one, other;

    *text = 0;
    if (!c->world->store)
        return;
    for (uint32_t p = 0; p < c->n; p++)
        if (!heard_of(c, p, &one)) {
            snprintf(text, size, "; rank %u has not come", c->ranks[p]);
            return;
        }
    for (uint32_t p = 0; p < c->n && c->n <= 64; p++)
        for (uint32_t q = 0; q < p && heard_of(c, p, &one); q++)
            if (heard_of(c, q, &other) && !memcmp(&one, &other, sizeof one)) {
                snprintf(text, size, "; ranks %u and %u share %s of %.40s, and NCCL wants one for each",
                         c->ranks[q], c->ranks[p], one.gpu, one.host);
                return;
            }
}

static tn_status get_ids(const struct tn_comm *c, const char *key, double until, ncclUniqueId *id)
{
    const double begin = tn_nccl_now(), left = until - begin;
    uint64_t bytes = TN_LANES * sizeof *id;
    char group[120];
    tn_status s = c->world->store->get(key, id, &bytes, left > 0.01 ? left : 0.01);

    if (s != TN_ERR_TIMEOUT)
        return s; /* the store knows better, if a rank has failed */
    tn_comm_say(c, group, sizeof group);
    return tn_error(TN_ERR_TIMEOUT, "nccl: opening %s: rank %u did not come within %.3g s (%s)", group,
                    c->ranks[0], tn_nccl_now() - begin, key);
}

tn_status tn_nccl_meet(struct tn_comm *c, double until, ncclUniqueId *id)
{
    const struct tn_store *store = c->world->store;
    char key[120];
    ncclResult_t r = ncclSuccess;
    tn_status s;

    if (!store)
        return tn_error(TN_ERR_CONFIG,
                        "nccl: %u ranks need a store to find each other, and this program has none", c->n);
    if ((s = say_here(c)))
        return s;
    snprintf(key, sizeof key, "%s/ids", c->key);
    if (c->rank)
        return get_ids(c, key, until, id);
    for (int i = 0; i < TN_LANES && r == ncclSuccess; i++)
        r = ncclGetUniqueId(&id[i]);
    if (r != ncclSuccess)
        return tn_error(TN_ERR, "nccl: no unique id: %s: %.200s (NCCL_SOCKET_IFNAME names the interface)",
                        ncclGetErrorString(r), ncclGetLastError(NULL));
    return store->set(key, id, TN_LANES * sizeof *id);
}
