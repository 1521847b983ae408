/* probe_sweep.c - how fast is it? See probe.h.
 *
 * Each operation is timed on every rank, from the moment when all are ready to its own end; of each repeat
 * the slowest rank counts, and of the repeats the median. Bytes are those of the whole: what is reduced, what
 * has been gathered, what is scattered, what one rank sends to all. The payload rate is bytes / time. The bus
 * bandwidth is what a ring's links would have to carry in that time, so that it can be held against the
 * links: 2 (n - 1) / n of the payload for all_reduce, (n - 1) / n for the other exchanges, all of it for the
 * rest. */
#include "base/arena.h"
#include "probe.h"
#include "train/measure.h"

static double share(uint32_t op, uint32_t n)
{
    double other = (double)(n - 1) / n;

    switch (op) {
    case TN_ALL_REDUCE: return 2 * other;
    case TN_ALL_GATHER:
    case TN_REDUCE_SCATTER:
    case TN_ALL_TO_ALL: return other;
    default: return n > 1;
    }
}

/* Elements for each rank where the whole is cut, else of all. */
static uint64_t count_of(uint32_t op, uint64_t elements, uint32_t n)
{
    uint64_t each = elements / n ? elements / n : 1;

    return op == TN_ALL_GATHER || op == TN_REDUCE_SCATTER || op == TN_ALL_TO_ALL ? each : elements;
}

static uint64_t whole_of(uint32_t op, uint64_t count, uint32_t n)
{
    return op == TN_ALL_GATHER || op == TN_REDUCE_SCATTER || op == TN_ALL_TO_ALL ? count * n : count;
}

static uint32_t transfers(const struct probe *p, const struct probe_group *g, uint32_t op, uint32_t dtype,
                          uint64_t count, struct tn_transfer t[2])
{
    t[0] = (struct tn_transfer){
        .op = op, .dtype = dtype, .reduce = TN_SUM, .from = p->from, .to = p->to, .count = count};
    if (op == TN_BROADCAST && g->me == 0)
        t[0].to = p->from;
    if (op != TN_SEND)
        return 1;
    t[1] = t[0];
    t[0].peer = (g->me + 1) % g->n;
    t[1].op = TN_RECV, t[1].peer = (g->me + g->n - 1) % g->n;
    return 2;
}

static tn_status time_one(struct probe *p, const struct probe_group *g, const struct tn_transfer *t,
                          uint32_t n, const char *name, double *seconds)
{
    const struct tn_transfer ready = {.op = TN_BARRIER};
    tn_status s = probe_do(p, g->comm, &ready, 1, "a barrier between measurements");
    double start = tn_measure_now();

    if (!s)
        s = probe_do(p, g->comm, t, n, name);
    *seconds = tn_measure_now() - start;
    return s;
}

static tn_status one_point(struct probe *p, const struct probe_group *g, const struct probe_op *op,
                           uint64_t bytes, const struct probe_dtype *dtype, uint32_t warmup, uint32_t repeat,
                           struct probe_point *out)
{
    double *seconds = tn_alloc_array(p->arena, repeat, sizeof *seconds), ignored;
    uint64_t count = count_of(op->op, bytes / dtype->bytes, g->n);
    struct tn_transfer t[2];
    uint32_t n = transfers(p, g, op->op, dtype->dtype, count, t);
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < warmup && !s; i++)
        s = time_one(p, g, t, n, op->name, &ignored);
    for (uint32_t i = 0; i < repeat && !s; i++)
        s = time_one(p, g, t, n, op->name, &seconds[i]);
    if (!s)
        s = probe_most(p, seconds, repeat);
    if (s)
        return s;
    *out = (struct probe_point){.op = op->name,
                                .bytes = whole_of(op->op, count, g->n) * dtype->bytes,
                                .seconds = tn_measure_median(seconds, repeat),
                                .least = seconds[0]};
    for (uint32_t i = 1; i < repeat; i++)
        out->least = seconds[i] < out->least ? seconds[i] : out->least;
    out->payload = (double)out->bytes / out->seconds;
    out->bus = out->payload * share(op->op, g->n);
    return TN_OK;
}

tn_status probe_sweep(struct probe *p, const struct probe_group *g, const uint64_t *bytes, uint32_t n_bytes,
                      const struct probe_dtype *dtype, uint32_t warmup, uint32_t repeat,
                      struct probe_point **out, uint32_t *n)
{
    tn_status s = TN_OK;

    *out = tn_alloc_array(p->arena, n_bytes * 8u, sizeof **out);
    *n = 0;
    for (int o = 0; probe_ops[o].name && !s; o++)
        for (uint32_t i = 0; i < n_bytes && !s && p->ops[o]; i++)
            s = one_point(p, g, &probe_ops[o], bytes[i], dtype, warmup, repeat, &(*out)[(*n)++]);
    return s;
}
