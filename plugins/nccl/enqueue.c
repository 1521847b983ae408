/* enqueue.c - an operation as calls of NCCL.
 *
 * NCCL knows even parts only. Uneven ones are a broadcast or a reduction for each rank, in one group of
 * calls, so one launch. A count of zero is no call, on no rank, since all know all counts. */
#include "nccl.h"

static ncclDataType_t type_of(uint32_t dtype)
{
    static const ncclDataType_t type[] = {
        [TN_F32] = ncclFloat32, [TN_BF16] = ncclBfloat16, [TN_F16] = ncclFloat16, [TN_I32] = ncclInt32,
        [TN_F64] = ncclFloat64, [TN_I64] = ncclInt64,     [TN_U8] = ncclUint8,
    };

    return type[dtype];
}

static ncclRedOp_t reduce_of(uint32_t reduce)
{
    return reduce == TN_MAX ? ncclMax : reduce == TN_MIN ? ncclMin : ncclSum;
}

static uint64_t count_of(const struct tn_transfer *t, uint32_t p)
{
    return t->counts ? t->counts[p] : t->count;
}

static uint64_t count_in_of(const struct tn_transfer *t, uint32_t p)
{
    return t->counts_in ? t->counts_in[p] : count_of(t, p);
}

static int is_even(const struct tn_comm *c, const struct tn_transfer *t)
{
    for (uint32_t p = 1; t->counts && p < c->n; p++)
        if (t->counts[p] != t->counts[0])
            return 0;
    return 1;
}

/* A send goes on the lane of its sender. */
static uint32_t lane_of(const struct tn_comm *c, const struct tn_transfer *t)
{
    return t->op == TN_SEND ? c->rank % TN_LANES : t->op == TN_RECV ? t->peer % TN_LANES : 0;
}

static int is_own(const struct tn_comm *c, const struct tn_transfer *t)
{
    return (t->op == TN_SEND || t->op == TN_RECV) && t->peer == c->rank;
}

uint32_t tn_nccl_lanes(const struct tn_comm *c, const struct tn_transfer *t, uint32_t n)
{
    uint32_t lanes = 0;

    for (uint32_t i = 0; i < n; i++)
        if (!is_own(c, &t[i]))
            lanes |= 1u << lane_of(c, &t[i]);
    return lanes;
}

cudaError_t tn_nccl_copy(struct tn_comm *c, void *to, const void *from, uint64_t bytes)
{
    if (!c->on_host)
        return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->lane[0].stream);
    memcpy(to, from, bytes);
    return cudaSuccess;
}

/* --- the calls. Each returns NCCL's answer; those that cannot be had are not made. */

static ncclResult_t gather(struct tn_comm *c, const struct tn_transfer *t)
{
    const struct tn_lane *l = &c->lane[0];
    const uint64_t width = tn_nccl_width(t->dtype);
    uint8_t *to = t->to;
    ncclResult_t r = ncclSuccess;

    if (is_even(c, t))
        return count_of(t, 0)
                   ? ncclAllGather(t->from, t->to, count_of(t, 0), type_of(t->dtype), l->comm, l->stream)
                   : ncclSuccess;
    for (uint32_t p = 0; p < c->n && (r == ncclSuccess || r == ncclInProgress);
         to += count_of(t, p++) * width)
        if (count_of(t, p))
            r = ncclBroadcast(p == c->rank ? t->from : to, to, count_of(t, p), type_of(t->dtype), (int)p,
                              l->comm, l->stream);
    return r;
}

static ncclResult_t scatter(struct tn_comm *c, const struct tn_transfer *t)
{
    const struct tn_lane *l = &c->lane[0];
    const uint64_t width = tn_nccl_width(t->dtype);
    const uint8_t *from = t->from;
    ncclResult_t r = ncclSuccess;

    if (is_even(c, t))
        return count_of(t, 0) ? ncclReduceScatter(t->from, t->to, count_of(t, 0), type_of(t->dtype),
                                                  reduce_of(t->reduce), l->comm, l->stream)
                              : ncclSuccess;
    for (uint32_t p = 0; p < c->n && (r == ncclSuccess || r == ncclInProgress);
         from += count_of(t, p++) * width)
        if (count_of(t, p))
            r = ncclReduce(from, p == c->rank ? t->to : NULL, count_of(t, p), type_of(t->dtype),
                           reduce_of(t->reduce), (int)p, l->comm, l->stream);
    return r;
}

static ncclResult_t exchange(struct tn_comm *c, const struct tn_transfer *t)
{
    const struct tn_lane *l = &c->lane[0];
    const uint64_t width = tn_nccl_width(t->dtype);
    const uint8_t *from = t->from;
    uint8_t *to = t->to;
    ncclResult_t r = ncclSuccess;

    for (uint32_t p = 0; p < c->n && (r == ncclSuccess || r == ncclInProgress); p++) {
        const uint64_t out = count_of(t, p), in = count_in_of(t, p);

        if (p == c->rank && out) {
            if (tn_nccl_copy(c, to, from, out * width))
                return ncclUnhandledCudaError;
        } else if (p != c->rank) {
            if (out)
                r = ncclSend(from, out, type_of(t->dtype), (int)p, l->comm, l->stream);
            if (in && (r == ncclSuccess || r == ncclInProgress))
                r = ncclRecv(to, in, type_of(t->dtype), (int)p, l->comm, l->stream);
        }
        from += out * width, to += in * width;
    }
    return r;
}

static ncclResult_t call(struct tn_comm *c, const struct tn_transfer *t)
{
    const struct tn_lane *l = &c->lane[lane_of(c, t)];

    switch (t->op) {
    case TN_ALL_REDUCE:
        return t->count ? ncclAllReduce(t->from, t->to, t->count, type_of(t->dtype), reduce_of(t->reduce),
                                        l->comm, l->stream)
                        : ncclSuccess;
    case TN_ALL_GATHER: return gather(c, t);
    case TN_REDUCE_SCATTER: return scatter(c, t);
    case TN_ALL_TO_ALL: return exchange(c, t);
    case TN_BROADCAST:
        if (!t->count)
            return ncclSuccess;
        return t->peer == c->rank ? ncclBroadcast(t->from, t->to ? t->to : (void *)t->from, t->count,
                                                  type_of(t->dtype), (int)t->peer, l->comm, l->stream)
                                  : ncclBroadcast(t->to, t->to, t->count, type_of(t->dtype), (int)t->peer,
                                                  l->comm, l->stream);
    case TN_SEND:
        return t->count ? ncclSend(t->from, t->count, type_of(t->dtype), (int)t->peer, l->comm, l->stream)
                        : ncclSuccess;
    case TN_RECV:
        return t->count ? ncclRecv(t->to, t->count, type_of(t->dtype), (int)t->peer, l->comm, l->stream)
                        : ncclSuccess;
    default:
        return ncclAllReduce(c->scratch, c->scratch, 1, ncclUint8, ncclMax, l->comm,
                             l->stream); /* a barrier */
    }
}

/* --- one rank: what is given is what is got */
static tn_status alone(struct tn_comm *c, const struct tn_transfer *t)
{
    uint64_t from, to;

    tn_transfer_sizes(c, t, &from, &to);
    if (!to || t->to == t->from)
        return TN_OK;
    return tn_nccl_cuda(c->world, tn_nccl_copy(c, t->to, t->from, to * tn_nccl_width(t->dtype)),
                        "cudaMemcpyAsync");
}

/* What NCCL does by itself, as one group of calls. */
static tn_status native(struct tn_comm *c, const struct tn_transfer *t, uint32_t n)
{
    const uint32_t lanes = tn_nccl_lanes(c, t, n);
    ncclResult_t r = ncclGroupStart(), e;
    const struct tn_transfer *at = t;

    for (uint32_t i = 0; i < n && (r == ncclSuccess || r == ncclInProgress); i++)
        if (!is_own(c, &t[i]) && !tn_nccl_is_exact(c, &t[i]))
            r = call(c, at = &t[i]);
    e = ncclGroupEnd();
    if (r == ncclSuccess || r == ncclInProgress)
        r = e;
    if (r != ncclSuccess && r != ncclInProgress)
        return tn_nccl_result(c, &c->lane[lane_of(c, at)], r, "begin it");
    return tn_nccl_settle(c, lanes, tn_nccl_now() + c->world->seconds, "begin it");
}

tn_status tn_nccl_enqueue(struct tn_comm *c, const struct tn_transfer *t, uint32_t n)
{
    uint32_t others = 0;
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < n && c->n == 1 && !s; i++)
        if (!is_own(c, &t[i]))
            s = alone(c, &t[i]);
    if (c->n == 1)
        return s;
    for (uint32_t i = 0; i < n; i++)
        others += !is_own(c, &t[i]) && !tn_nccl_is_exact(c, &t[i]);
    if (others)
        s = native(c, t, n);
    for (uint32_t i = 0; i < n && !s; i++)
        if (tn_nccl_is_exact(c, &t[i]))
            s = tn_nccl_exact(c, &t[i]);
    return s;
}
