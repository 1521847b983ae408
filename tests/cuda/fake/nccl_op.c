/* nccl_op.c - what a group of calls does, as one operation on a stream.
 *
 * Operations of a communicator run in the order in which they were put; when one's turn has come it posts
 * what it gives (wire.c) and is ready when all that it needs was posted: of a collective by every rank, of a
 * receive the send, of a send the receive. Then both sides compare what they were called with. Sums begin at
 * another rank each time, and bf16 and fp16 are rounded after each addition, as rings do. */
#include "nccl_own.h"

const char *const tn_nccl_names[] = {"ncclSend",          "ncclRecv",      "ncclAllReduce", "ncclAllGather",
                                     "ncclReduceScatter", "ncclBroadcast", "ncclReduce"};

uint32_t tn_nccl_width(uint32_t dtype)
{
    static const uint8_t width[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

    return dtype < sizeof width ? width[dtype] : 0;
}

uint64_t tn_nccl_gives(const struct ncclComm *c, const struct tn_nccl_call *k)
{
    return k->op == RECV || (k->op == BROADCAST && k->peer != c->rank) ? 0
           : k->op == REDUCE_SCATTER                                   ? k->count * c->n
                                                                       : k->count;
}

uint64_t tn_nccl_gets(const struct ncclComm *c, const struct tn_nccl_call *k)
{
    return k->op == SEND || (k->op == REDUCE && k->peer != c->rank) ? 0
           : k->op == ALL_GATHER                                    ? k->count * c->n
                                                                    : k->count;
}

/* --- when its turn has come */
static void post(struct ncclComm *c, const struct tn_nccl_call *k)
{
    const struct tn_wire_head h = {k->op,      k->dtype, k->reduce,
                                   k->peer,    k->count, tn_nccl_gives(c, k) * tn_nccl_width(k->dtype),
                                   c->finished};

    tn_wire_post(c->wire, &h, k->from);
}

void tn_nccl_fails(struct ncclComm *c, ncclResult_t r)
{
    if (!c->error)
        c->error = r;
}

/* What another rank has called does not go with what this one did. */
static void disagree(struct ncclComm *c, const struct tn_nccl_call *k, uint32_t rank,
                     const struct tn_wire_head *h)
{
    if (c->error)
        return;
    snprintf(c->text, sizeof c->text,
             "operation %llu of a communicator: rank %u called %s with count %llu, type %u, reduction %u, "
             "peer or root %u; "
             "rank %u called %s with count %llu, type %u, reduction %u, peer or root %u",
             (unsigned long long)c->finished, c->rank, tn_nccl_names[k->op], (unsigned long long)k->count,
             k->dtype, k->reduce, k->peer, rank, tn_nccl_names[h->op], (unsigned long long)h->count, h->dtype,
             h->reduce, h->peer);
    tn_fake_blame("nccl: %s", c->text);
    tn_nccl_fails(c, ncclInvalidUsage);
}

/* Walks the calls of a group: for each, which of whose items belong to it. */
struct walk {
    uint32_t all, sent[TN_WIRE_RANKS], wanted[TN_WIRE_RANKS];
};

/* Of call k: has rank p posted it, and the same? */
static int matched(struct ncclComm *c, const struct tn_nccl_call *k, uint32_t p, int which, uint32_t i)
{
    const struct tn_wire_item *item = tn_wire_peek(c->wire, p, which, i);

    if (!item)
        return 0;
    if (item->head.count != k->count || item->head.dtype != k->dtype ||
        (k->op > RECV &&
         (item->head.op != k->op || item->head.reduce != k->reduce || item->head.peer != k->peer))) {
        disagree(c, k, p, &item->head);
        return 0;
    }
    return 1;
}

static int all_posted(struct ncclComm *c, const struct tn_nccl_group *g)
{
    const struct tn_nccl_call *k = (const struct tn_nccl_call *)(g + 1);
    struct walk w = {0};

    for (uint32_t i = 0; i < g->n; i++, k++) {
        if (k->op == SEND && !matched(c, k, k->peer, TN_WIRE_WANTED, w.wanted[k->peer]++))
            return 0;
        if (k->op == RECV && !matched(c, k, k->peer, TN_WIRE_SENT, w.sent[k->peer]++))
            return 0;
        for (uint32_t p = 0; p < c->n && k->op > RECV; p++)
            if (!matched(c, k, p, TN_WIRE_ALL, w.all))
                return 0;
        w.all += k->op > RECV;
    }
    return 1;
}

static uint64_t begin(const void *what)
{
    const struct tn_nccl_group *g = what;

    return g->comm->issued++;
}

static int ready(const void *what, uint64_t ticket)
{
    const struct tn_nccl_group *g = what;
    struct ncclComm *c = g->comm;
    int lost;

    if (c->aborted)
        return 1;
    if (c->error || ticket != c->finished)
        return 0;
    if (c->posted == ticket) {
        tn_fake_open(c->device, "nccl");
        for (uint32_t i = 0; i < g->n; i++)
            post(c, (const struct tn_nccl_call *)(g + 1) + i);
        c->posted++;
    }
    if (all_posted(c, g))
        return 1;
    if (!c->error && (lost = tn_wire_lost(c->wire)) >= 0) {
        snprintf(c->text, sizeof c->text, "remote process exited or there was a network error: rank %d",
                 lost);
        tn_nccl_fails(c, ncclRemoteError);
    }
    return 0;
}

/* --- the data */
static double get(uint32_t dtype, const void *base, uint64_t i)
{
    switch (dtype) {
    case ncclInt32: return ((const int32_t *)base)[i];
    case ncclInt64: return (double)((const int64_t *)base)[i];
    case ncclUint8: return ((const uint8_t *)base)[i];
    case ncclFloat64: return ((const double *)base)[i];
    case ncclFloat32: return ((const float *)base)[i];
    case ncclFloat16: return tn_fake_get(CUDA_R_16F, base, (int64_t)i);
    case ncclBfloat16: return tn_fake_get(CUDA_R_16BF, base, (int64_t)i);
    default: tn_fake_die("nccl: type %u is not for this fake", dtype);
    }
}

static void put(uint32_t dtype, void *base, uint64_t i, double v)
{
    switch (dtype) {
    case ncclUint8: ((uint8_t *)base)[i] = (uint8_t)v; break;
    case ncclFloat64: ((double *)base)[i] = v; break;
    case ncclFloat32: ((float *)base)[i] = (float)v; break;
    case ncclFloat16: tn_fake_put_number(CUDA_R_16F, base, (int64_t)i, v); break;
    default: tn_fake_put_number(CUDA_R_16BF, base, (int64_t)i, v);
    }
}

/* sum = sum and x, element by element, rounded. Integers wrap. */
static void fold(const struct tn_nccl_call *k, void *sum, const void *x)
{
    for (uint64_t i = 0; i < k->count; i++) {
        const double a = get(k->dtype, sum, i), b = get(k->dtype, x, i);

        if (k->dtype == ncclInt32 && k->reduce == ncclSum)
            ((uint32_t *)sum)[i] += ((const uint32_t *)x)[i];
        else if (k->dtype == ncclInt64 && k->reduce == ncclSum)
            ((uint64_t *)sum)[i] += ((const uint64_t *)x)[i];
        else if (k->reduce == ncclSum)
            put(k->dtype, sum, i, a + b);
        else if (k->reduce == ncclMax ? b > a : b < a)
            memcpy((char *)sum + i * tn_nccl_width(k->dtype), (const char *)x + i * tn_nccl_width(k->dtype),
                   tn_nccl_width(k->dtype));
    }
}

/* offset: of this rank's part in what each gives. */
static void reduce(struct ncclComm *c, const struct tn_nccl_call *k, uint32_t i, uint64_t offset)
{
    const uint64_t bytes = k->count * tn_nccl_width(k->dtype);
    char *part = malloc(bytes + 8), *sum = malloc(bytes + 8);

    if (!part || !sum)
        tn_fake_die("no memory for a reduction");
    for (uint32_t j = 0; j < c->n; j++) {
        const uint32_t p = (uint32_t)((c->collectives + j) % c->n);

        tn_wire_read(c->wire, p, tn_wire_peek(c->wire, p, TN_WIRE_ALL, i), offset, j ? part : sum, bytes);
        if (j)
            fold(k, sum, part);
    }
    memcpy(k->to, sum, bytes);
    free(part), free(sum);
}

static void transfer(struct ncclComm *c, const struct tn_nccl_call *k, struct walk *w)
{
    const uint64_t bytes = k->count * tn_nccl_width(k->dtype);

    switch (k->op) {
    case SEND: w->wanted[k->peer]++; return;
    case RECV:
        tn_wire_read(c->wire, k->peer, tn_wire_peek(c->wire, k->peer, TN_WIRE_SENT, w->sent[k->peer]), 0,
                     k->to, bytes);
        w->sent[k->peer]++;
        return;
    case ALL_GATHER:
        for (uint32_t p = 0; p < c->n; p++)
            tn_wire_read(c->wire, p, tn_wire_peek(c->wire, p, TN_WIRE_ALL, w->all), 0,
                         (char *)k->to + p * bytes, bytes);
        break;
    case BROADCAST:
        tn_wire_read(c->wire, k->peer, tn_wire_peek(c->wire, k->peer, TN_WIRE_ALL, w->all), 0, k->to, bytes);
        break;
    case REDUCE_SCATTER: reduce(c, k, w->all, c->rank * bytes); break;
    default:
        if (k->op == ALL_REDUCE || k->peer == c->rank)
            reduce(c, k, w->all, 0);
    }
    w->all++;
    c->collectives++;
}

static int run(const void *what, uint64_t ticket)
{
    const struct tn_nccl_group *g = what;
    struct ncclComm *c = g->comm;
    struct walk w = {0};

    (void)ticket;
    if (c->aborted)
        return cudaSuccess;
    for (uint32_t i = 0; i < g->n; i++)
        transfer(c, (const struct tn_nccl_call *)(g + 1) + i, &w);
    for (uint32_t p = 0; p < c->n; p++) {
        tn_wire_take(c->wire, p, TN_WIRE_ALL, w.all);
        tn_wire_take(c->wire, p, TN_WIRE_SENT, w.sent[p]);
        tn_wire_take(c->wire, p, TN_WIRE_WANTED, w.wanted[p]);
    }
    c->finished++;
    return cudaSuccess;
}

static const char *title(const void *what)
{
    const struct tn_nccl_group *g = what;

    return tn_nccl_names[((const struct tn_nccl_call *)(g + 1))->op];
}

const struct tn_fake_kind tn_nccl_kind = {
    .name = "nccl", .begin = begin, .ready = ready, .run = run, .title = title};
