/* plan.c - an operation as items on the streams between each two ranks.
 *
 * Both sides compute the same sequence of items from the arguments, so only the first carries a header. All
 * but one operation have one item in a direction: a block. A large all-reduce is cut into segments of n
 * slices; for segment k each rank gives every other its part of their slice (C k), adds what it gets for its
 * own slice, and gives the sum to all (R k). On a stream they run C0 C1 R0 C2 R1 … so that a sum never waits
 * for the way back of the one before, and what was just added is still in the cache when it leaves. A small
 * one is in one step: all give all, all add. */
#include <stdlib.h>
#include "streams.h"

uint64_t tn_dtype_bytes(uint32_t dtype)
{
    static const uint8_t bytes[] = {
        [TN_F32] = 4, [TN_BF16] = 2, [TN_F16] = 2, [TN_I32] = 4, [TN_F64] = 8, [TN_I64] = 8, [TN_U8] = 1,
    };

    return dtype < sizeof bytes ? bytes[dtype] : 0;
}

const char *tn_dtype_name(uint32_t dtype)
{
    static const char *const name[] = {
        [TN_F32] = "fp32", [TN_BF16] = "bf16", [TN_F16] = "fp16", [TN_I32] = "int32",
        [TN_F64] = "fp64", [TN_I64] = "int64", [TN_U8] = "uint8",
    };

    return dtype < sizeof name / sizeof *name && name[dtype] ? name[dtype] : "?";
}

const char *tn_transfer_name(uint32_t op)
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

static int has_blocks(uint32_t op)
{
    return op == TN_ALL_GATHER || op == TN_REDUCE_SCATTER || op == TN_ALL_TO_ALL;
}

/* Elements of all blocks; UINT64_MAX if no memory can hold them. */
static uint64_t sum(const uint64_t *counts, uint64_t count, uint32_t n)
{
    const uint64_t most = UINT64_C(1) << 48;
    uint64_t total = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t c = counts ? counts[i] : count;
        if (c > most || (total += c) > most)
            return UINT64_MAX;
    }
    return total;
}

static tn_status check_memory(const struct tn_comm *c, const struct tn_transfer *t)
{
    uint64_t all = sum(has_blocks(t->op) ? t->counts : NULL, t->count, has_blocks(t->op) ? c->n : 1);
    uint64_t in = t->op == TN_ALL_TO_ALL && t->counts_in ? sum(t->counts_in, 0, c->n) : all;
    int gives = t->op != TN_RECV && (t->op != TN_BROADCAST || t->peer == c->rank);
    int takes = t->op != TN_SEND && (t->op != TN_BROADCAST || t->peer != c->rank);
    uint64_t mine = t->counts ? t->counts[c->rank] : t->count;

    if (all == UINT64_MAX || in == UINT64_MAX)
        return tn_error(TN_ERR, TN_SELF ": %s of more elements than any memory holds",
                        tn_transfer_name(t->op));
    if (gives && !t->from && (t->op == TN_ALL_GATHER ? mine : all))
        return tn_error(TN_ERR, TN_SELF ": %s without a buffer to give", tn_transfer_name(t->op));
    if (takes && !t->to && (t->op == TN_REDUCE_SCATTER ? mine : in))
        return tn_error(TN_ERR, TN_SELF ": %s without a buffer for the result", tn_transfer_name(t->op));
    return TN_OK;
}

tn_status tn_op_check(const struct tn_comm *c, const struct tn_transfer *t)
{
    if (t->op < TN_ALL_REDUCE || t->op > TN_BARRIER)
        return tn_error(TN_ERR, TN_SELF ": there is no operation %u", t->op);
    if (t->op == TN_BARRIER)
        return TN_OK;
    if (!tn_dtype_bytes(t->dtype))
        return tn_error(TN_ERR, TN_SELF ": %s: there is no dtype %u", tn_transfer_name(t->op), t->dtype);
    if (is_reduction(t->op) && (t->reduce < TN_SUM || t->reduce > TN_MIN))
        return tn_error(TN_ERR, TN_SELF ": %s: there is no reduction %u", tn_transfer_name(t->op), t->reduce);
    if ((t->op == TN_BROADCAST || t->op == TN_SEND || t->op == TN_RECV) && t->peer >= c->n)
        return tn_error(TN_ERR, TN_SELF ": %s: rank %u in a group of %u", tn_transfer_name(t->op), t->peer,
                        c->n);
    if (t->op == TN_ALL_TO_ALL && t->counts &&
        t->counts[c->rank] != (t->counts_in ? t->counts_in[c->rank] : t->counts[c->rank]))
        return tn_error(TN_ERR_SHAPE,
                        TN_SELF ": all_to_all: rank %u gives itself %llu elements and expects %llu", c->rank,
                        (unsigned long long)t->counts[c->rank], (unsigned long long)t->counts_in[c->rank]);
    return check_memory(c, t);
}

struct tn_op *tn_op_new(uint32_t n)
{
    struct tn_op *op = calloc(1, sizeof *op + 2 * (n + 1) * sizeof(uint64_t) + 2 * n);

    if (!op)
        return NULL;
    op->give = (uint64_t *)(op + 1);
    op->take = op->give + n + 1;
    op->given = (uint8_t *)(op->take + n + 1);
    op->taken = op->given + n;
    return op;
}

static void offsets(const uint64_t *counts, uint64_t count, uint32_t n, uint64_t *out)
{
    out[0] = 0;
    for (uint32_t i = 0; i < n; i++)
        out[i + 1] = out[i] + (counts ? counts[i] : count);
}

/* From checked arguments. Nothing of the list is borrowed after it. */
void tn_op_set(const struct tn_comm *c, const struct tn_transfer *t, struct tn_op *op)
{
    *op = (struct tn_op){
        .t = *t,
        .width = t->op == TN_BARRIER ? 1 : tn_dtype_bytes(t->dtype),
        .give = op->give,
        .take = op->take,
        .given = op->given,
        .taken = op->taken,
    };
    if (t->op == TN_BARRIER)
        op->t.count = 0, op->t.dtype = TN_U8;
    memset(op->given, 0, c->n);
    memset(op->taken, 0, c->n);
    if (has_blocks(t->op)) {
        offsets(t->counts, t->count, c->n, op->give);
        offsets(t->counts_in && t->op == TN_ALL_TO_ALL ? t->counts_in : t->counts, t->count, c->n, op->take);
        op->total = t->op == TN_ALL_TO_ALL ? 0 : op->give[c->n];
        op->bytes = (op->give[c->n] + op->take[c->n]) * op->width;
    } else {
        op->total = op->t.count;
        op->bytes = op->t.count * op->width * (t->op == TN_SEND || t->op == TN_RECV ? 1 : c->n);
    }
    op->t.counts = op->t.counts_in = NULL;
    op->small = op->bytes <= TN_STREAM_SMALL * 2;
    if (t->op == TN_ALL_REDUCE && c->n > 1 && op->bytes > TN_STREAM_SMALL * 2)
        op->slice = (op->total * op->width < TN_STREAM_LEND ? TN_STREAM_SLICE : TN_LOAN_SLICE) / op->width;
}

/* --- the large all-reduce: where slice s of segment k lies. Elements. */
static uint64_t segments(const struct tn_comm *c, const struct tn_op *op)
{
    uint64_t whole = op->slice * c->n;

    return (op->total + whole - 1) / whole;
}

static uint64_t slice_at(const struct tn_comm *c, const struct tn_op *op, uint64_t k, uint32_t s)
{
    uint64_t whole = op->slice * c->n, at = k * whole, rest = op->total - at;

    return at + (rest < whole ? rest : whole) * s / c->n;
}

/* Item i of 2m: C0 C1 R0 C2 R1 … C(m-1) R(m-2) R(m-1). Returns k; *sum: is it R. */
static uint64_t place(uint64_t i, uint64_t m, int *is_sum)
{
    *is_sum = i == 2 * m - 1 || (i && i % 2 == 0);
    return i == 2 * m - 1 ? m - 1 : *is_sum ? i / 2 - 1 : (i + 1) / 2;
}

static uint32_t items(const struct tn_comm *c, const struct tn_op *op)
{
    return op->slice ? (uint32_t)(2 * segments(c, op)) : 1;
}

uint32_t tn_op_gives(const struct tn_comm *c, const struct tn_op *op, uint32_t peer)
{
    if (op->t.op == TN_SEND)
        return op->t.peer == peer;
    if (op->t.op == TN_RECV || peer == c->rank || (op->t.op == TN_BROADCAST && op->t.peer != c->rank))
        return 0;
    return items(c, op);
}

uint32_t tn_op_takes(const struct tn_comm *c, const struct tn_op *op, uint32_t peer)
{
    if (op->t.op == TN_RECV)
        return op->t.peer == peer;
    if (op->t.op == TN_SEND || peer == c->rank || (op->t.op == TN_BROADCAST && op->t.peer != peer))
        return 0;
    return items(c, op);
}

static void block(const struct tn_op *op, const void *base, uint64_t from, uint64_t to, struct tn_item *out)
{
    *out = (struct tn_item){.data = base ? (uint8_t *)base + from * op->width : NULL,
                            .bytes = (to - from) * op->width};
    out->ready = out->bytes;
    out->large = out->bytes >= TN_STREAM_LEND;
}

static void slice(const struct tn_comm *c, const struct tn_op *op, const void *base, uint64_t k, uint32_t s,
                  struct tn_item *out)
{
    block(op, base, slice_at(c, op, k, s), slice_at(c, op, k, s + 1), out);
    out->large = out->bytes && op->total * op->width >= TN_STREAM_LEND;
}

void tn_op_give(const struct tn_comm *c, const struct tn_op *op, uint32_t peer, uint32_t item,
                struct tn_item *out)
{
    if (op->slice) {
        int is_sum;
        uint64_t k = place(item, segments(c, op), &is_sum);
        slice(c, op, is_sum ? op->t.to : op->t.from, k, is_sum ? c->rank : peer, out);
        if (is_sum && k >= op->segment)
            out->ready = k == op->segment ? op->reduced * op->width : 0;
    } else if (op->t.op == TN_ALL_GATHER) {
        block(op, op->t.from, 0, op->give[c->rank + 1] - op->give[c->rank], out);
    } else if (op->t.op == TN_REDUCE_SCATTER || op->t.op == TN_ALL_TO_ALL) {
        block(op, op->t.from, op->give[peer], op->give[peer + 1], out);
    } else {
        block(op, op->t.from, 0, op->t.count, out);
    }
}

void tn_op_take(const struct tn_comm *c, const struct tn_op *op, uint32_t peer, uint32_t item,
                struct tn_item *out)
{
    if (op->slice) {
        int is_sum;
        uint64_t k = place(item, segments(c, op), &is_sum);
        slice(c, op, op->t.to, k, is_sum ? peer : c->rank, out);
        out->reduce = !is_sum;
    } else if (op->t.op == TN_ALL_GATHER || op->t.op == TN_ALL_TO_ALL) {
        block(op, op->t.to, op->take[peer], op->take[peer + 1], out);
    } else if (op->t.op == TN_REDUCE_SCATTER) {
        block(op, op->t.to, 0, op->take[c->rank + 1] - op->take[c->rank], out);
        out->reduce = 1;
    } else {
        block(op, op->t.to, 0, op->t.count, out);
        out->reduce = op->t.op == TN_ALL_REDUCE;
    }
}

uint64_t tn_op_own(const struct tn_comm *c, const struct tn_op *op, const uint8_t **from, uint8_t **to)
{
    struct tn_item give, take;

    if (op->slice) {
        slice(c, op, op->t.from, op->segment, c->rank, &give);
        slice(c, op, op->t.to, op->segment, c->rank, &take);
    } else if (op->t.op == TN_REDUCE_SCATTER) {
        block(op, op->t.from, op->give[c->rank], op->give[c->rank + 1], &give);
        block(op, op->t.to, 0, op->give[c->rank + 1] - op->give[c->rank], &take);
    } else {
        block(op, op->t.from, 0, op->t.count, &give);
        block(op, op->t.to, 0, op->t.count, &take);
    }
    *from = give.data;
    *to = take.data;
    return give.bytes / op->width;
}

uint64_t tn_op_copy(const struct tn_comm *c, const struct tn_op *op, const uint8_t **from, uint8_t **to)
{
    struct tn_item give = {0}, take = {0};

    if (op->t.op == TN_ALL_GATHER || op->t.op == TN_ALL_TO_ALL) {
        tn_op_give(c, op, c->rank, 0, &give);
        tn_op_take(c, op, c->rank, 0, &take);
    } else if (is_reduction(op->t.op) && c->n == 1) {
        block(op, op->t.from, 0, op->total, &give);
        block(op, op->t.to, 0, op->total, &take);
    } else if (op->t.op == TN_BROADCAST && op->t.peer == c->rank && op->t.to) {
        block(op, op->t.from, 0, op->t.count, &give);
        block(op, op->t.to, 0, op->t.count, &take);
    }
    *from = give.data;
    *to = take.data;
    return give.data == take.data ? 0 : give.bytes;
}

/* "all_reduce 17 (fp32, 65 elements)" */
void tn_op_say(const struct tn_op *op, char *out, size_t size)
{
    char number[32] = "";

    if (op->t.sequence)
        snprintf(number, sizeof number, " %llu", (unsigned long long)op->t.sequence);
    if (op->t.op == TN_BARRIER)
        snprintf(out, size, "barrier%s", number);
    else
        snprintf(out, size, "%s%s (%s, %llu elements)", tn_transfer_name(op->t.op), number,
                 tn_dtype_name(op->t.dtype),
                 (unsigned long long)(op->total ? op->total : op->bytes / op->width / 2));
}
