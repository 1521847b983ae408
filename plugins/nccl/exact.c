/* exact.c - reductions in the order of ranks, in fp32, rounded once: exchanged by NCCL, added by fold.cu.
 *
 * NCCL adds bf16 in bf16, in an order that is its own, and its largest of a NaN and a number is the number.
 * Where that would be another result than tenon/comm.h promises, each rank gets all parts of its slice, folds
 * them and gives the result to all: as many bytes on the wire as a ring has, in two steps. Little is given to
 * all at once, and folded by each. fp32 and fp64 sums are NCCL's own, since gradients between hosts are, and
 * there a direct exchange would cost more; TENON_NCCL_ORDER=ranks brings them here too. */
#include "nccl.h"

#define AT_ONCE (UINT64_C(256) << 10) /* bytes of all ranks */
#define LINE 256u                     /* slices begin at multiples of as many bytes */

int tn_nccl_is_exact(const struct tn_comm *c, const struct tn_transfer *t)
{
    const int low = t->dtype == TN_BF16 || t->dtype == TN_F16,
              full = t->dtype == TN_F32 || t->dtype == TN_F64;

    return (t->op == TN_ALL_REDUCE || t->op == TN_REDUCE_SCATTER) &&
           (low || (full && (t->reduce != TN_SUM || c->world->ordered)));
}

static int is_fine(ncclResult_t r)
{
    return r == ncclSuccess || r == ncclInProgress;
}

/* Ends a group of calls on lane 0, of which r came out. */
static tn_status end(struct tn_comm *c, ncclResult_t r)
{
    ncclResult_t e = ncclGroupEnd();

    if (!is_fine(r) || !is_fine(e))
        return tn_nccl_result(c, &c->lane[0], is_fine(r) ? e : r, "exchange its parts");
    return tn_nccl_settle(c, 1, tn_nccl_now() + c->world->seconds, "exchange its parts");
}

/* Bytes, since NCCL only carries them here. */
static tn_status gather(struct tn_comm *c, const void *from, void *to, uint64_t bytes)
{
    const struct tn_lane *l = &c->lane[0];
    ncclResult_t r = ncclGroupStart();

    if (is_fine(r))
        r = ncclAllGather(from, to, bytes, ncclUint8, l->comm, l->stream);
    return end(c, r);
}

static tn_status fold(struct tn_comm *c, const struct tn_transfer *t, const void *own, uint64_t stride,
                      uint64_t count, void *out)
{
    const struct tn_fold f = {c->scratch, own, out, stride, count, c->n, c->rank, t->dtype, t->reduce};

    return tn_nccl_cuda(c->world, (cudaError_t)tn_nccl_fold(&f, c->lane[0].stream), "adding the parts");
}

/* All to all, and each folds. */
static tn_status at_once(struct tn_comm *c, const struct tn_transfer *t, const uint8_t *from, uint8_t *to,
                         uint64_t count)
{
    tn_status s = gather(c, from, c->scratch, count * tn_nccl_width(t->dtype));

    return s ? s : fold(c, t, from, count, count, to);
}

/* count[p] elements go to each rank, out of from[p]; those for this rank are folded into to. */
static tn_status scatter(struct tn_comm *c, const struct tn_transfer *t, const uint8_t *const *from,
                         const uint64_t *count, uint64_t stride, uint8_t *to)
{
    const struct tn_lane *l = &c->lane[0];
    const uint64_t width = tn_nccl_width(t->dtype), mine = count[c->rank];
    ncclResult_t r = ncclGroupStart();
    tn_status s;

    for (uint32_t p = 0; p < c->n && is_fine(r); p++) {
        if (p == c->rank)
            continue;
        if (count[p])
            r = ncclSend(from[p], count[p] * width, ncclUint8, (int)p, l->comm, l->stream);
        if (mine && is_fine(r))
            r = ncclRecv(c->scratch + p * stride * width, mine * width, ncclUint8, (int)p, l->comm,
                         l->stream);
    }
    s = end(c, r);
    return s || !mine ? s : fold(c, t, from[c->rank], stride, mine, to);
}

/* count is a multiple of n. */
static tn_status in_slices(struct tn_comm *c, const struct tn_transfer *t, const uint8_t **from,
                           uint64_t *counts, const uint8_t *at, uint8_t *to, uint64_t count)
{
    const uint64_t slice = count / c->n, bytes = slice * tn_nccl_width(t->dtype);
    tn_status s;

    for (uint32_t p = 0; p < c->n; p++)
        from[p] = at + p * bytes, counts[p] = slice;
    s = scatter(c, t, from, counts, slice, to + c->rank * bytes);
    return s ? s : gather(c, to + c->rank * bytes, to, bytes);
}

/* Slices of whole lines as long as there are, then of what is left; less than n elements are never cut. */
static tn_status reduce_all(struct tn_comm *c, const struct tn_transfer *t, const uint8_t **from,
                            uint64_t *counts)
{
    const uint64_t width = tn_nccl_width(t->dtype), room = c->scratch_bytes / width,
                   lines = c->n * (LINE / width);
    const uint8_t *at = t->from;
    uint8_t *to = t->to;
    uint64_t left = t->count;
    tn_status s = TN_OK;

    while (left * width * c->n > AT_ONCE && left >= c->n && !s) {
        const uint64_t most = left < room ? left : room, piece = most - most % (most >= lines ? lines : c->n);

        s = in_slices(c, t, from, counts, at, to, piece);
        at += piece * width, to += piece * width, left -= piece;
    }
    return s || !left ? s : at_once(c, t, at, to, left);
}

static tn_status reduce_scatter(struct tn_comm *c, const struct tn_transfer *t, const uint8_t **from,
                                uint64_t *counts)
{
    const uint64_t width = tn_nccl_width(t->dtype), most = c->scratch_bytes / width / c->n;
    uint64_t longest = 0;
    tn_status s = TN_OK;

    for (uint32_t p = 0; p < c->n; p++) {
        const uint64_t count = t->counts ? t->counts[p] : t->count;

        longest = count > longest ? count : longest;
    }
    for (uint64_t at = 0; at < longest && !s; at += most) {
        const uint8_t *block = t->from;

        for (uint32_t p = 0; p < c->n; p++) {
            const uint64_t count = t->counts ? t->counts[p] : t->count, left = count > at ? count - at : 0;

            from[p] = block + at * width, counts[p] = left < most ? left : most;
            block += count * width;
        }
        s = scatter(c, t, from, counts, most, (uint8_t *)t->to + at * width);
    }
    return s;
}

tn_status tn_nccl_exact(struct tn_comm *c, const struct tn_transfer *t)
{
    return t->op == TN_ALL_REDUCE ? reduce_all(c, t, c->from, c->counts)
                                  : reduce_scatter(c, t, c->from, c->counts);
}
