/* stub.c - a communicator for tests of launching: a sum of doubles over all ranks, through the host's store.
 *
 * Slow, and whole: it needs nothing but the store, so the tests of launch.sh need no other plugin, and a rank
 * that waits in it waits like in any other. */
#include <stdlib.h>
#include <tenon/bootstrap.h>
#include <tenon/comm.h>

struct tn_comm {
    const struct tn_store *store;
    uint32_t rank, n;
    uint32_t ranks[64]; /* of the world */
    uint64_t group;     /* in keys */
};

struct tn_request {
    struct tn_comm *c;
    struct tn_transfer t;
};

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 2;
    snprintf(why, why_size, "for tests");
    return TN_OK;
}

static tn_status comm_new(uint32_t rank, uint32_t n, uint64_t group, struct tn_comm **out)
{
    struct tn_comm *c = calloc(1, sizeof *c);

    *out = c;
    if (!c || n > 64)
        return tn_error(TN_ERR_MEMORY, "stub: no room for %u ranks", n);
    c->store = tn_host->interface(TN_STORE_ID);
    c->rank = rank;
    c->n = n;
    c->group = group;
    for (uint32_t r = 0; r < n; r++)
        c->ranks[r] = r;
    return n == 1 || c->store ? TN_OK : tn_error(TN_ERR, "stub: the host has no store");
}

/* Every rank has an address that the others can read; nobody may write the host's keys. */
static tn_status comm_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **out)
{
    tn_status s = comm_new(rank, size, 0, out);
    char key[64], address[64];
    uint64_t bytes;

    for (uint32_t r = 0; r < size && s == TN_OK && size > 1; r++) {
        bytes = sizeof address;
        snprintf(key, sizeof key, "tenon/address/%u", r);
        if ((s = (*out)->store->get(key, address, &bytes, seconds)) == TN_OK && !bytes)
            s = tn_error(TN_ERR, "stub: rank %u has no address", r);
        if (s == TN_OK && (*out)->store->set(key, "", 0) >= 0)
            s = tn_error(TN_ERR, "stub: a key of the host was written");
    }
    return s;
}

static tn_status comm_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    uint32_t rank = 0;
    tn_status s;

    while (ranks[rank] != world->rank)
        rank++;
    s = comm_new(rank, n, 1 + ranks[0] * 64 + (n > 1 ? ranks[1] - ranks[0] : 0), out);
    for (uint32_t r = 0; r < n && s == TN_OK; r++)
        (*out)->ranks[r] = ranks[r];
    return s;
}

static void key_of(const struct tn_comm *c, const struct tn_transfer *t, uint32_t rank, char out[64])
{
    snprintf(out, 64, "stub/%llu/%llu/%u", (unsigned long long)c->group, (unsigned long long)t->sequence,
             rank);
}

static tn_status comm_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                            struct tn_request **out)
{
    struct tn_request *r = malloc(sizeof *r);
    char key[64];

    (void)stream;
    *out = r;
    if (!r || n != 1 || t->op != TN_ALL_REDUCE || t->dtype != TN_F64 || t->count != 1)
        return tn_error(TN_ERR, "stub: only a sum of one double");
    *r = (struct tn_request){c, *t};
    key_of(c, t, c->rank, key);
    return c->store->set(key, t->from, sizeof(double));
}

static tn_status comm_wait(struct tn_request *r, double seconds)
{
    double sum = 0, x;
    tn_status s = TN_OK;
    char key[64];

    for (uint32_t i = 0; i < r->c->n && s == TN_OK; i++) {
        uint64_t bytes = sizeof x;
        key_of(r->c, &r->t, i, key);
        s = r->c->store->get(key, &x, &bytes, seconds);
        sum += s == TN_OK ? x : 0;
    }
    *(double *)r->t.to = sum;
    free(r);
    return s;
}

static void comm_abort(struct tn_comm *c) /* the store wakes those that wait */
{
    (void)c;
}

static void comm_close(struct tn_comm *c)
{
    free(c);
}

static const char *const devices[] = {"cpu", NULL};
static const struct tn_comm_api stub = {
    .struct_size = sizeof stub,
    .devices = devices,
    .probe = probe,
    .open = comm_open,
    .group = comm_group,
    .start = comm_start,
    .wait = comm_wait,
    .abort = comm_abort,
    .close = comm_close,
};

TN_PLUGIN("stub", "1.0", "sums through the store, for tests", TN_COMM_ID, &stub);
