/* comm.c - the communicator of threads, right without BROKEN; with -DBROKEN=n one mistake that tenon plugins check finds.
 *
 *    1  the largest is taken for the sum             4  takes a call that is wrong
 *    2  the bits of a sum are not those of rank 0    5  a group's ranks are in the world's order
 *    3  waits four times as long as it may           6  elements behind the thousandth are lost */
#include <tenon/comm.h>

#ifndef BROKEN
#define BROKEN 0
#endif
#define IS(n) (BROKEN == (n))
#undef TN_PLUGIN
#define TN_PLUGIN(NAME, VERSION, ABOUT, ID, TABLE) struct nothing { int x; }
#include "plugins/local/result.c"
#include "plugins/local/plugin.c"
#undef TN_PLUGIN
#define TN_PLUGIN(NAME, VERSION, ABOUT, ID, TABLE) TN_PLUGIN_(NAME, VERSION, ABOUT, ID, NULL, NULL, {ID, TABLE})

static tn_status broken_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out)
{
    uint32_t sorted[32], k = 0;

    for (uint32_t r = 0; IS(5) && r < 32 && n <= 32; r++)
        for (uint32_t i = 0; i < n; i++)
            if (ranks[i] == r && k < 32)
                sorted[k++] = r;
    return comm_group(world, k == n ? sorted : ranks, n, out);
}

static tn_status broken_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream, struct tn_request **out)
{
    struct tn_transfer changed = n ? *t : (struct tn_transfer){0};
    const int one = n == 1 && t->op == TN_ALL_REDUCE;

    if (IS(1) && one && t->reduce == TN_MAX)
        changed.reduce = TN_SUM;
    if (IS(4) && n == 1 && t->op > TN_BARRIER)
        changed.op = TN_BARRIER;
    if (IS(6) && one && t->count > 1000)
        changed.count = 1000;
    return comm_start(c, n == 1 ? &changed : t, n, stream, out);
}

static tn_status broken_wait(struct tn_request *r, double seconds)
{
    const struct tn_transfer t = r->n ? r->t[0] : (struct tn_transfer){0};
    const uint32_t rank = r->comm->rank;
    const tn_status s = comm_wait(r, IS(3) ? 4 * seconds : seconds);

    if (IS(2) && s == TN_OK && rank && t.op == TN_ALL_REDUCE && t.dtype == TN_F32 && t.count > 64)
        ((uint32_t *)t.to)[7] ^= 1;
    return s;
}

static const struct tn_comm_api api = {
    .struct_size = sizeof api,
    .devices = devices,
    .probe = probe,
    .open = comm_open,
    .group = broken_group,
    .start = broken_start,
    .wait = broken_wait,
    .abort = comm_abort,
    .close = comm_close,
};

TN_PLUGIN("toycomm", "1.0", "threads of one process as ranks", TN_COMM_ID, &api);
