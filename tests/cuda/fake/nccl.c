/* nccl.c - libnccl.so.2 between processes of one machine, for plugin nccl.
 *
 * What a group of calls does on one communicator is one operation on its stream. Operations of a communicator
 * run in the order in which they were put; when one's turn has come it posts what it gives (wire.c) and is ready when all that it
 * needs was posted: of a collective by every rank, of a receive the send, of a send the receive. Then both sides compare
 * what they were called with. A communicator that does not block answers "in progress" for some questions, and
 * only then puts its operation on the stream: who records an event before has recorded it too early.
 *
 * Sums begin at another rank each time, and bf16 and fp16 are rounded after each addition, as rings do. */
#include <nccl.h>
#include "fake.h"
#include "number.h"
#include "wire.h"

enum { SEND, RECV, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE };
static const char *const names[] = {"ncclSend", "ncclRecv", "ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
                                    "ncclBroadcast", "ncclReduce"};

struct call {
    uint32_t op, dtype, reduce, peer;
    uint64_t count;
    const void *from;
    void *to;
};
struct group {                                   /* an operation; its calls follow */
    struct ncclComm *comm;
    uint32_t n, reserved0;
};
struct ncclComm {
    struct ncclComm *next;
    struct tn_wire *wire;
    uint32_t n, rank;
    int device, blocking, aborted, finalized, connected;
    uint32_t questions;                          /* until it has done what it was asked for */
    uint64_t issued, finished, posted, collectives;
    ncclResult_t error;
    char text[420];
    struct group *late;                          /* to be put on its stream */
    cudaStream_t late_stream;
};

static struct ncclComm *comms;
static _Thread_local struct {
    uint32_t depth, n;
    struct {
        struct ncclComm *comm;
        struct call call;
        cudaStream_t stream;
    } *item;
} group;

static uint32_t width_of(uint32_t dtype)
{
    static const uint8_t width[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

    return dtype < sizeof width ? width[dtype] : 0;
}

static ncclResult_t wrong(struct ncclComm *c, ncclResult_t r, const char *what)
{
    tn_fake_blame("nccl: %s", what);
    if (c)
        snprintf(c->text, sizeof c->text, "%s", what);
    return r;
}

/* --- what a call gives and gets, in elements */
static uint64_t gives(const struct ncclComm *c, const struct call *k)
{
    return k->op == RECV || (k->op == BROADCAST && k->peer != c->rank) ? 0
           : k->op == REDUCE_SCATTER                                   ? k->count * c->n
                                                                       : k->count;
}

static uint64_t gets(const struct ncclComm *c, const struct call *k)
{
    return k->op == SEND || (k->op == REDUCE && k->peer != c->rank) ? 0
           : k->op == ALL_GATHER                                    ? k->count * c->n
                                                                    : k->count;
}

/* --- when its turn has come */
static void post(struct ncclComm *c, const struct call *k)
{
    const struct tn_wire_head h = {k->op, k->dtype, k->reduce, k->peer, k->count, gives(c, k) * width_of(k->dtype),
                                   c->finished};

    tn_wire_post(c->wire, &h, k->from);
}

static void fails(struct ncclComm *c, ncclResult_t r)
{
    if (!c->error)
        c->error = r;
}

/* What another rank has called does not go with what this one did. */
static void disagree(struct ncclComm *c, const struct call *k, uint32_t rank, const struct tn_wire_head *h)
{
    if (c->error)
        return;
    snprintf(c->text, sizeof c->text,
             "operation %llu of a communicator: rank %u called %s with count %llu, type %u, reduction %u, peer or root %u; "
             "rank %u called %s with count %llu, type %u, reduction %u, peer or root %u",
             (unsigned long long)c->finished, c->rank, names[k->op], (unsigned long long)k->count, k->dtype, k->reduce,
             k->peer, rank, names[h->op], (unsigned long long)h->count, h->dtype, h->reduce, h->peer);
    tn_fake_blame("nccl: %s", c->text);
    fails(c, ncclInvalidUsage);
}

/* Walks the calls of a group: for each, which of whose items belong to it. */
struct walk {
    uint32_t all, sent[TN_WIRE_RANKS], wanted[TN_WIRE_RANKS];
};

/* Of call k: has rank p posted it, and the same? */
static int matched(struct ncclComm *c, const struct call *k, uint32_t p, int which, uint32_t i)
{
    const struct tn_wire_item *item = tn_wire_peek(c->wire, p, which, i);

    if (!item)
        return 0;
    if (item->head.count != k->count || item->head.dtype != k->dtype ||
        (k->op > RECV && (item->head.op != k->op || item->head.reduce != k->reduce || item->head.peer != k->peer))) {
        disagree(c, k, p, &item->head);
        return 0;
    }
    return 1;
}

static int all_posted(struct ncclComm *c, const struct group *g)
{
    const struct call *k = (const struct call *)(g + 1);
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
    const struct group *g = what;

    return g->comm->issued++;
}

static int ready(const void *what, uint64_t ticket)
{
    const struct group *g = what;
    struct ncclComm *c = g->comm;
    int lost;

    if (c->aborted)
        return 1;
    if (c->error || ticket != c->finished)
        return 0;
    if (c->posted == ticket) {
        tn_fake_open(c->device, "nccl");
        for (uint32_t i = 0; i < g->n; i++)
            post(c, (const struct call *)(g + 1) + i);
        c->posted++;
    }
    if (all_posted(c, g))
        return 1;
    if (!c->error && (lost = tn_wire_lost(c->wire)) >= 0) {
        snprintf(c->text, sizeof c->text, "remote process exited or there was a network error: rank %d", lost);
        fails(c, ncclRemoteError);
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
static void fold(const struct call *k, void *sum, const void *x)
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
            memcpy((char *)sum + i * width_of(k->dtype), (const char *)x + i * width_of(k->dtype), width_of(k->dtype));
    }
}

/* offset: of this rank's part in what each gives. */
static void reduce(struct ncclComm *c, const struct call *k, uint32_t i, uint64_t offset)
{
    const uint64_t bytes = k->count * width_of(k->dtype);
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

static void transfer(struct ncclComm *c, const struct call *k, struct walk *w)
{
    const uint64_t bytes = k->count * width_of(k->dtype);

    switch (k->op) {
    case SEND: w->wanted[k->peer]++; return;
    case RECV:
        tn_wire_read(c->wire, k->peer, tn_wire_peek(c->wire, k->peer, TN_WIRE_SENT, w->sent[k->peer]), 0, k->to, bytes);
        w->sent[k->peer]++;
        return;
    case ALL_GATHER:
        for (uint32_t p = 0; p < c->n; p++)
            tn_wire_read(c->wire, p, tn_wire_peek(c->wire, p, TN_WIRE_ALL, w->all), 0, (char *)k->to + p * bytes, bytes);
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
    const struct group *g = what;
    struct ncclComm *c = g->comm;
    struct walk w = {0};

    (void)ticket;
    if (c->aborted)
        return cudaSuccess;
    for (uint32_t i = 0; i < g->n; i++)
        transfer(c, (const struct call *)(g + 1) + i, &w);
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
    const struct group *g = what;

    return names[((const struct call *)(g + 1))->op];
}

static const struct tn_fake_kind kind = {.name = "nccl", .begin = begin, .ready = ready, .run = run, .title = title};

/* --- calls and groups */
static ncclResult_t put_on_stream(struct ncclComm *c)
{
    struct group *g = c->late;
    const size_t bytes = sizeof *g + g->n * sizeof(struct call);
    int device;
    cudaError_t e;

    c->late = NULL;
    cudaGetDevice(&device);
    cudaSetDevice(c->device);
    e = tn_fake_put(c->late_stream, &kind, g, bytes);
    cudaSetDevice(device);
    free(g);
    if (e) {
        snprintf(c->text, sizeof c->text, "a launch failed: %s", cudaGetErrorString(e));
        fails(c, ncclUnhandledCudaError);
    }
    return e ? ncclUnhandledCudaError : ncclSuccess;
}

/* All calls of the finished group on this communicator, as one operation. */
static ncclResult_t issue(struct ncclComm *c)
{
    struct group *g = calloc(1, sizeof *g + group.n * sizeof(struct call));

    if (!g)
        tn_fake_die("no memory for a group");
    g->comm = c;
    c->late = g;
    for (uint32_t i = 0; i < group.n; i++)
        if (group.item[i].comm == c) {
            if (g->n && group.item[i].stream != c->late_stream)
                tn_fake_die("nccl: a communicator on two streams in a group is not for this fake");
            c->late_stream = group.item[i].stream;
            ((struct call *)(g + 1))[g->n++] = group.item[i].call;
        }
    c->questions = c->blocking ? 0 : tn_fake_draw(4);
    return c->questions ? ncclInProgress : put_on_stream(c);
}

static int first_of_its_comm(uint32_t i)
{
    for (uint32_t j = 0; j < i; j++)
        if (group.item[j].comm == group.item[i].comm)
            return 0;
    return 1;
}

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t r = ncclSuccess, one;

    if (!group.depth)
        return wrong(NULL, ncclInvalidUsage, "ncclGroupEnd: not in a group");
    if (--group.depth)
        return ncclSuccess;
    tn_fake_lock();
    for (uint32_t i = 0; i < group.n; i++)
        if (first_of_its_comm(i) && (one = issue(group.item[i].comm)) && (r == ncclSuccess || r == ncclInProgress))
            r = one;
    group.n = 0;
    tn_fake_unlock();
    return r;
}

static struct ncclComm *find(ncclComm_t comm)
{
    struct ncclComm *c = comms;

    while (c && c != comm)
        c = c->next;
    return c;
}

static const char *check_memory(const struct ncclComm *c, const void *p, uint64_t bytes)
{
    return !bytes || tn_fake_is_pinned(p, bytes) ? NULL : tn_fake_range(c->device, p, bytes);
}

/* Do they share memory, but in the way that is allowed in place? */
static int overlap(const struct ncclComm *c, const struct call *k)
{
    const uint64_t width = width_of(k->dtype), from = gives(c, k) * width, to = gets(c, k) * width;
    const char *a = k->from, *b = k->to;

    if (!from || !to || a >= b + to || b >= a + from)
        return 0;
    return k->op == ALL_GATHER       ? a != b + c->rank * from
           : k->op == REDUCE_SCATTER ? b != a + c->rank * to
                                     : a != b;
}

static ncclResult_t check(struct ncclComm *c, const struct call *k)
{
    char text[400];
    const char *why;

    if (!c)
        return wrong(NULL, ncclInvalidArgument, "no such communicator, or no more");
    if (c->late || !c->connected)
        return wrong(c, ncclInvalidUsage, "a call while the communicator is busy with the one before");
    if (c->finalized || c->aborted || c->error)
        return wrong(c, ncclInvalidUsage, "a call on a communicator that has ended or failed");
    if (!width_of(k->dtype) || k->peer >= c->n || k->reduce > ncclMin || k->reduce == ncclProd)
        return wrong(c, ncclInvalidArgument, "a type, reduction or rank that there is not");
    if ((why = check_memory(c, k->from, gives(c, k) * width_of(k->dtype))) ||
        (why = check_memory(c, k->to, gets(c, k) * width_of(k->dtype)))) {
        snprintf(text, sizeof text, "%s: %s", names[k->op], why);
        return wrong(c, ncclInvalidArgument, text);
    }
    return overlap(c, k) ? wrong(c, ncclInvalidArgument, "memory that is given and got overlaps") : ncclSuccess;
}

static ncclResult_t add(ncclComm_t comm, struct call k, cudaStream_t stream)
{
    struct ncclComm *c;
    ncclResult_t r;

    tn_fake_lock();
    tn_fake_count()->collectives++;
    if (k.op == ALL_REDUCE && tn_fake_planted("counts"))
        k.count--;
    c = find(comm);
    r = check(c, &k);
    tn_fake_unlock();
    if (r || !k.count)
        return r;
    group.item = realloc(group.item, (group.n + 1) * sizeof *group.item);
    if (!group.item)
        tn_fake_die("no memory for a group");
    group.item[group.n].comm = c, group.item[group.n].call = k, group.item[group.n].stream = stream;
    group.n++;
    if (group.depth)
        return ncclSuccess;
    group.depth = 1;
    return ncclGroupEnd();
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream)
{
    return add(c, (struct call){ALL_REDUCE, dtype, op, 0, count, from, to}, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t dtype, ncclComm_t c,
                           cudaStream_t stream)
{
    return add(c, (struct call){ALL_GATHER, dtype, 0, 0, count, from, to}, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream)
{
    return add(c, (struct call){REDUCE_SCATTER, dtype, op, 0, count, from, to}, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t dtype, int root, ncclComm_t c,
                           cudaStream_t stream)
{
    return add(c, (struct call){BROADCAST, dtype, 0, (uint32_t)root, count, from, to}, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t dtype, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t stream)
{
    return add(c, (struct call){REDUCE, dtype, op, (uint32_t)root, count, from, to}, stream);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t dtype, int peer, ncclComm_t c, cudaStream_t stream)
{
    return add(c, (struct call){SEND, dtype, 0, (uint32_t)peer, count, from, NULL}, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t dtype, int peer, ncclComm_t c, cudaStream_t stream)
{
    return add(c, (struct call){RECV, dtype, 0, (uint32_t)peer, count, NULL, to}, stream);
}

/* --- communicators */
ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t random = 0;
    FILE *f = fopen("/dev/urandom", "r");

    memset(id, 0, sizeof *id);
    if (!f || fread(&random, sizeof random, 1, f) != 1)
        tn_fake_die("nccl: no random number");
    fclose(f);
    snprintf(id->internal, sizeof id->internal, "tenon-fake-%016llx", (unsigned long long)random);
    return ncclSuccess;
}

/* Where it stands; the lock is held. */
static ncclResult_t state_of(struct ncclComm *c)
{
    const char *why;
    int here;

    if (c->error)
        return c->error;
    if (!c->connected) {
        here = tn_wire_here(c->wire, &why);
        if (here < 0) {
            snprintf(c->text, sizeof c->text, "%s", why);
            tn_fake_blame("nccl: %s", why);
            fails(c, ncclInvalidUsage);
            return c->error;
        }
        if (!here)
            return ncclInProgress;
        c->connected = 1;
    }
    if (c->late) {
        if (c->questions && --c->questions)
            return ncclInProgress;
        put_on_stream(c);
        return c->error ? c->error : ncclSuccess;
    }
    if (c->finalized)
        return c->issued == c->finished && tn_wire_all_left(c->wire) ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    struct ncclComm *c;

    tn_fake_lock();
    if ((c = find(comm)))
        *state = state_of(c);
    tn_fake_unlock();
    return c ? ncclSuccess : wrong(NULL, ncclInvalidArgument, "ncclCommGetAsyncError: no such communicator, or no more");
}

/* Until it is done, for those that block. */
static ncclResult_t settle(ncclComm_t c)
{
    ncclResult_t state = ncclInProgress;

    while (!ncclCommGetAsyncError(c, &state) && state == ncclInProgress)
        tn_fake_progress();
    return state;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    struct ncclComm *c;

    *out = NULL;
    if (n < 1 || rank < 0 || rank >= n || strncmp(id.internal, "tenon-fake-", 11) || strchr(id.internal, '/') ||
        (config && config->magic != 0xcafebeef))
        return wrong(NULL, ncclInvalidArgument, "ncclCommInitRankConfig: ranks, id or configuration");
    if (!(c = calloc(1, sizeof *c)))
        tn_fake_die("no memory for a communicator");
    cudaGetDevice(&c->device);
    tn_fake_lock();
    c->n = (uint32_t)n, c->rank = (uint32_t)rank, c->blocking = !config || config->blocking != 0;
    c->wire = tn_wire_open(id.internal, c->n, c->rank, c->device);
    c->next = comms, comms = c;
    tn_fake_library_object(1);
    tn_fake_unlock();
    *out = c;
    return c->blocking ? settle(c) : ncclInProgress;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int n, ncclUniqueId id, int rank)
{
    return ncclCommInitRankConfig(out, n, id, rank, NULL);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    struct ncclComm *c;

    tn_fake_lock();
    if ((c = find(comm)) && !c->finalized)
        c->finalized = 1, tn_wire_leave(c->wire, 0);
    tn_fake_unlock();
    if (!c)
        return wrong(NULL, ncclInvalidArgument, "ncclCommFinalize: no such communicator, or no more");
    return c->blocking ? settle(c) : ncclInProgress;
}

/* Gone from the list; its operations, if any are left, end without doing anything. */
static ncclResult_t end(ncclComm_t comm, int aborted, const char *call)
{
    struct ncclComm *c, **at = &comms;

    tn_fake_lock();
    if ((c = find(comm))) {
        while (*at != c)
            at = &(*at)->next;
        *at = c->next;
        if (!aborted && c->issued != c->finished)
            tn_fake_blame("nccl: %s of a communicator that has work to do", call);
        tn_wire_leave(c->wire, aborted);
        tn_wire_close(c->wire);
        c->aborted = 1;                          /* kept for operations that name it */
        free(c->late);
        c->late = NULL;
        tn_fake_library_object(-1);
    }
    tn_fake_unlock();
    return c ? ncclSuccess : wrong(NULL, ncclInvalidArgument, "a communicator is ended that there is not, or no more");
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return end(comm, 0, "ncclCommDestroy");
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return end(comm, 1, "ncclCommAbort");
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *n)
{
    *n = (int)c->n;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank)
{
    *rank = (int)c->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t c, int *device)
{
    *device = c->device;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r)
{
    static const char *const text[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                       "invalid argument", "invalid usage", "remote process exited or there was a "
                                       "network error", "NCCL operation in progress"};

    return r < sizeof text / sizeof *text ? text[r] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    struct ncclComm *c;

    tn_fake_lock();
    c = find(comm);
    tn_fake_unlock();
    return c ? c->text : "";
}
