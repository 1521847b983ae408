/* faulty.c - a communicator for tests: it passes everything on to another one, whose file FAULTY_OF names,
 * and spoils what comes out on one rank.
 *
 * FAULTY=OP:DTYPE:RANK, all numbers of the ABI: results of this operation on this type are wrong in their
 * last element on this rank, by one unit of the last place. Nobody but who compares values can see it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenon/comm.h>

struct tn_comm {
    struct tn_comm *real;
    uint32_t rank, size, place; /* rank: of the world; place: in the group */
};

struct tn_request {
    struct tn_request *real;
    uint8_t *at; /* to be spoilt, or NULL */
};

static const struct tn_comm_api *api;

static tn_status need(void)
{
    const char *file = getenv("FAULTY_OF");
    void *so = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct tn_plugin *(*entry)(const struct tn_host *host) = NULL;

    if (api)
        return TN_OK;
    if (so)
        *(void **)&entry = dlsym(so, "tn_plugin_entry");
    if (!entry)
        return tn_error(TN_ERR, "faulty: FAULTY_OF is no plugin: %s", file ? dlerror() : "not set");
    api = entry(tn_host)->interfaces[0].table;
    return TN_OK;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "for tests");
    return TN_OK;
}

static tn_status wrap(tn_status s, struct tn_comm *real, uint32_t rank, uint32_t size, uint32_t place,
                      struct tn_comm **out)
{
    *out = s < 0 ? NULL : malloc(sizeof **out);
    if (*out)
        **out = (struct tn_comm){real, rank, size, place};
    return s;
}

static tn_status comm_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **out)
{
    struct tn_comm *real = NULL;
    tn_status s = need();

    if (s >= 0)
        s = api->open(rank, size, seconds, &real);
    return wrap(s, real, rank, size, rank, out);
}

static tn_status comm_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    struct tn_comm *real = NULL;
    tn_status s = api->group(world->real, ranks, n, &real);
    uint32_t place = 0;

    while (ranks[place] != world->rank)
        place++;
    return wrap(s, real, world->rank, n, place, out);
}

/* The last byte but those of the exponent; little-endian: the first byte of the last element. */
static uint8_t *last(const struct tn_comm *c, const struct tn_transfer *t)
{
    static const uint8_t bytes[] = {
        [TN_F32] = 4, [TN_BF16] = 2, [TN_F16] = 2, [TN_I32] = 4, [TN_F64] = 8, [TN_I64] = 8, [TN_U8] = 1};
    uint64_t n = 0;

    for (uint32_t r = 0; r < c->size; r++)
        n += t->counts ? t->counts[r] : t->count;
    if (t->op == TN_ALL_REDUCE || t->op == TN_REDUCE_SCATTER)
        n = t->counts ? t->counts[c->place] : t->count;
    return n ? (uint8_t *)t->to + (n - 1) * bytes[t->dtype] : NULL;
}

static tn_status comm_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                            struct tn_request **out)
{
    const char *what = getenv("FAULTY");
    unsigned op = 0, dtype = 0, rank = 0;
    struct tn_request *r = calloc(1, sizeof *r);
    tn_status s;

    if (what && sscanf(what, "%u:%u:%u", &op, &dtype, &rank) == 3 && rank == c->rank && t->op == op &&
        t->dtype == dtype)
        r->at = last(c, t);
    s = api->start(c->real, t, n, stream, &r->real);
    *out = r;
    return s;
}

static tn_status comm_wait(struct tn_request *r, double seconds)
{
    tn_status s = api->wait(r->real, seconds);

    if (s == TN_DECLINED)
        return s;
    if (s == TN_OK && r->at)
        *r->at ^= 1;
    free(r);
    return s;
}

static void comm_abort(struct tn_comm *c)
{
    api->abort(c->real);
}

static void comm_close(struct tn_comm *c)
{
    if (c)
        api->close(c->real);
    free(c);
}

static const char *const devices[] = {"cpu", NULL};
static const struct tn_comm_api faulty = {
    .struct_size = sizeof faulty,
    .devices = devices,
    .probe = probe,
    .open = comm_open,
    .group = comm_group,
    .start = comm_start,
    .wait = comm_wait,
    .abort = comm_abort,
    .close = comm_close,
};

TN_PLUGIN("faulty", "1.0", "another communicator, with wrong results, for tests", TN_COMM_ID, &faulty);
