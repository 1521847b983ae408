/* check.c - what start refuses, since it would harm nobody but this rank; and names for what is said. */
#include "nccl.h"

uint64_t tn_nccl_width(uint32_t dtype)
{
    static const uint8_t bytes[] = {
        [TN_F32] = 4, [TN_BF16] = 2, [TN_F16] = 2, [TN_I32] = 4, [TN_F64] = 8, [TN_I64] = 8, [TN_U8] = 1,
    };

    return dtype < sizeof bytes ? bytes[dtype] : 0;
}

static const char *dtype_name(uint32_t dtype)
{
    static const char *const name[] = {
        [TN_F32] = "fp32", [TN_BF16] = "bf16", [TN_F16] = "fp16", [TN_I32] = "int32",
        [TN_F64] = "fp64", [TN_I64] = "int64", [TN_U8] = "uint8",
    };

    return dtype < sizeof name / sizeof *name && name[dtype] ? name[dtype] : "?";
}

static const char *op_name(uint32_t op)
{
    static const char *const name[] = {
        [TN_ALL_REDUCE] = "all_reduce",
        [TN_ALL_GATHER] = "all_gather",
        [TN_REDUCE_SCATTER] = "reduce_scatter",
        [TN_ALL_TO_ALL] = "all_to_all",
        [TN_BROADCAST] = "broadcast",
        [TN_SEND] = "send",
        [TN_RECV] = "recv",
        [TN_BARRIER] = "barrier",
    };

    return op < sizeof name / sizeof *name && name[op] ? name[op] : "?";
}

static int is_reduction(uint32_t op)
{
    return op == TN_ALL_REDUCE || op == TN_REDUCE_SCATTER;
}

static uint64_t sum(const uint64_t *counts, uint64_t count, uint32_t n)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < n; i++)
        total += counts ? counts[i] : count;
    return total;
}

void tn_transfer_sizes(const struct tn_comm *c, const struct tn_transfer *t, uint64_t *from, uint64_t *to)
{
    const uint64_t all = sum(t->counts, t->count, c->n), mine = t->counts ? t->counts[c->rank] : t->count;
    const int gives = t->peer == c->rank;

    switch (t->op) {
    case TN_ALL_GATHER: *from = mine, *to = all; break;
    case TN_REDUCE_SCATTER: *from = all, *to = mine; break;
    case TN_ALL_TO_ALL: *from = all, *to = t->counts_in ? sum(t->counts_in, 0, c->n) : all; break;
    case TN_BROADCAST: *from = gives ? t->count : 0, *to = !gives || t->to ? t->count : 0; break;
    case TN_SEND: *from = t->count, *to = 0; break;
    case TN_RECV: *from = 0, *to = t->count; break;
    case TN_BARRIER: *from = *to = 0; break;
    default: *from = *to = t->count;
    }
}

static tn_status check_memory(const struct tn_comm *c, const struct tn_transfer *t)
{
    uint64_t from, to;

    tn_transfer_sizes(c, t, &from, &to);
    if (from && !t->from)
        return tn_error(TN_ERR, "nccl: %s without a buffer to give", op_name(t->op));
    if (to && !t->to)
        return tn_error(TN_ERR, "nccl: %s without a buffer for the result", op_name(t->op));
    return TN_OK;
}

tn_status tn_transfer_check(const struct tn_comm *c, const struct tn_transfer *t)
{
    if (t->op < TN_ALL_REDUCE || t->op > TN_BARRIER)
        return tn_error(TN_ERR, "nccl: there is no operation %u", t->op);
    if (t->op == TN_BARRIER)
        return TN_OK;
    if (!tn_nccl_width(t->dtype))
        return tn_error(TN_ERR, "nccl: %s: there is no dtype %u", op_name(t->op), t->dtype);
    if (is_reduction(t->op) && (t->reduce < TN_SUM || t->reduce > TN_MIN))
        return tn_error(TN_ERR, "nccl: %s: there is no reduction %u", op_name(t->op), t->reduce);
    if ((t->op == TN_BROADCAST || t->op == TN_SEND || t->op == TN_RECV) && t->peer >= c->n)
        return tn_error(TN_ERR, "nccl: %s: rank %u in a group of %u", op_name(t->op), t->peer, c->n);
    if (t->op == TN_ALL_TO_ALL && t->counts && t->counts_in && t->counts[c->rank] != t->counts_in[c->rank])
        return tn_error(TN_ERR_SHAPE, "nccl: all_to_all: rank %u gives itself %llu elements and expects %llu",
                        c->rank, (unsigned long long)t->counts[c->rank],
                        (unsigned long long)t->counts_in[c->rank]);
    return check_memory(c, t);
}

/* --- names */

void tn_transfer_say(const struct tn_transfer *t, char *out, size_t size)
{
    static const char *const reduce[] = {[TN_SUM] = "sum", [TN_MAX] = "max", [TN_MIN] = "min"};
    char number[24] = "";

    if (!t->op) {
        snprintf(out, size, "nothing");
        return;
    }
    if (t->sequence)
        snprintf(number, sizeof number, " %llu", (unsigned long long)t->sequence);
    if (t->op == TN_BARRIER)
        snprintf(out, size, "barrier%s", number);
    else if (is_reduction(t->op))
        snprintf(out, size, "%s%s, %s of %llu elements of %s", op_name(t->op), number, reduce[t->reduce],
                 (unsigned long long)t->count, dtype_name(t->dtype));
    else if (t->op == TN_BROADCAST || t->op == TN_SEND || t->op == TN_RECV)
        snprintf(out, size, "%s%s of %llu elements of %s, peer %u", op_name(t->op), number,
                 (unsigned long long)t->count, dtype_name(t->dtype), t->peer);
    else
        snprintf(out, size, "%s%s of %llu elements of %s", op_name(t->op), number,
                 (unsigned long long)t->count, dtype_name(t->dtype));
}

/* "the group of ranks 0, 2, 4" or "the world of 4 ranks" */
void tn_comm_say(const struct tn_comm *c, char *out, size_t size)
{
    size_t at;

    if (!c->is_group) {
        snprintf(out, size, "the world of %u ranks", c->n);
        return;
    }
    snprintf(out, size, "the group of ranks");
    for (uint32_t i = 0; i < c->n && (at = strlen(out)) + 20 < size; i++)
        snprintf(out + at, size - at,
                 i + 1 < c->n && at + 40 >= size ? " %u, …"
                 : i                             ? ", %u"
                                                 : " %u",
                 c->ranks[i]);
}
