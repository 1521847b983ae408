/* host.c - the list behind host->interface: see host.h.
 *
 * A slot is written before the count shows it, so readers on other threads need no lock. */
#include "plugin/host.h"

#include <stdatomic.h>

#define MAX_ABILITIES 32u

static struct tn_interface ability[MAX_ABILITIES];
static _Atomic uint32_t abilities;

const void *tn_host_interface(const char *id)
{
    uint32_t n = atomic_load(&abilities);

    for (uint32_t i = 0; id && i < n; i++)
        if (!strcmp(ability[i].id, id))
            return ability[i].table;
    return NULL;
}

tn_status tn_host_provide(const char *id, const void *table)
{
    uint32_t n = atomic_load(&abilities);

    if (tn_host_interface(id))
        return tn_error(TN_ERR, "the host's ability %s is already registered", id);
    if (n == MAX_ABILITIES)
        return tn_error(TN_ERR, "no room for the host's ability %s: there are %u already", id, n);
    ability[n] = (struct tn_interface){id, table};
    atomic_store(&abilities, n + 1);
    return TN_OK;
}
