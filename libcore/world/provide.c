/* provide.c - the store of the run as an ability of the host (TN_STORE_ID): see tenon/bootstrap.h.
 *
 * The table has no context, since a process has one run; the client behind it comes with join and goes with
 * close. */
#include "plugin/host.h"
#include "world/world_own.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct tn_store_client *client;

static tn_status set(const char *key, const void *data, uint64_t bytes)
{
    tn_status s;

    if (!strncmp(key, "tenon/", 6))
        return tn_error(TN_ERR, "keys that begin with tenon/ belong to the host: \"%.60s\"", key);
    pthread_rwlock_rdlock(&lock);
    s = client ? tn_store_set(client, key, data, bytes) : tn_error(TN_ERR, "the store is closed");
    pthread_rwlock_unlock(&lock);
    return s;
}

static tn_status get(const char *key, void *data, uint64_t *bytes, double seconds)
{
    tn_status s;

    pthread_rwlock_rdlock(&lock);
    s = client ? tn_store_get(client, key, data, bytes, seconds) : tn_error(TN_ERR, "the store is closed");
    pthread_rwlock_unlock(&lock);
    return s;
}

static const struct tn_store table = {.struct_size = sizeof table, .set = set, .get = get};

static void put(struct tn_store_client *c)
{
    pthread_rwlock_wrlock(&lock);
    client = c;
    pthread_rwlock_unlock(&lock);
}

tn_status tn_world_provide(struct tn_store_client *c)
{
    put(c);
    return tn_host_interface(TN_STORE_ID) ? TN_OK : tn_host_provide(TN_STORE_ID, &table);
}

void tn_world_withdraw(void)
{
    put(NULL);
}
