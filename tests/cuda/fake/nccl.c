/* nccl.c - libnccl.so.2 between processes of one machine, for plugin nccl: the calls, alone and in groups.
 *
 * What a group of calls does on one communicator is one operation on its stream. A communicator that does not
 * block answers "in progress" for some questions, and only then puts its operation on the stream: who records
 * an event before has recorded it too early. */
#include "nccl_own.h"

static _Thread_local struct {
    uint32_t depth, n;
    struct {
        struct ncclComm *comm;
        struct tn_nccl_call call;
        cudaStream_t stream;
    } * item;
} group;

/* --- calls and groups */
ncclResult_t tn_nccl_put(struct ncclComm *c)
{
    struct tn_nccl_group *g = c->late;
    const size_t bytes = sizeof *g + g->n * sizeof(struct tn_nccl_call);
    int device;
    cudaError_t e;

    c->late = NULL;
    cudaGetDevice(&device);
    cudaSetDevice(c->device);
    e = tn_fake_put(c->late_stream, &tn_nccl_kind, g, bytes);
    cudaSetDevice(device);
    free(g);
    if (e) {
        snprintf(c->text, sizeof c->text, "a launch failed: %s", cudaGetErrorString(e));
        tn_nccl_fails(c, ncclUnhandledCudaError);
    }
    return e ? ncclUnhandledCudaError : ncclSuccess;
}

/* All calls of the finished group on this communicator, as one operation. */
static ncclResult_t issue(struct ncclComm *c)
{
    struct tn_nccl_group *g = calloc(1, sizeof *g + group.n * sizeof(struct tn_nccl_call));

    if (!g)
        tn_fake_die("no memory for a group");
    g->comm = c;
    c->late = g;
    for (uint32_t i = 0; i < group.n; i++)
        if (group.item[i].comm == c) {
            if (g->n && group.item[i].stream != c->late_stream)
                tn_fake_die("nccl: a communicator on two streams in a group is not for this fake");
            c->late_stream = group.item[i].stream;
            ((struct tn_nccl_call *)(g + 1))[g->n++] = group.item[i].call;
        }
    c->questions = c->blocking ? 0 : tn_fake_draw(4);
    return c->questions ? ncclInProgress : tn_nccl_put(c);
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
        return tn_nccl_wrong(NULL, ncclInvalidUsage, "ncclGroupEnd: not in a group");
    if (--group.depth)
        return ncclSuccess;
    tn_fake_lock();
    for (uint32_t i = 0; i < group.n; i++)
        if (first_of_its_comm(i) && (one = issue(group.item[i].comm)) &&
            (r == ncclSuccess || r == ncclInProgress))
            r = one;
    group.n = 0;
    tn_fake_unlock();
    return r;
}

static const char *check_memory(const struct ncclComm *c, const void *p, uint64_t bytes)
{
    return !bytes || tn_fake_is_pinned(p, bytes) ? NULL : tn_fake_range(c->device, p, bytes);
}

/* Do they share memory, but in the way that is allowed in place? */
static int overlap(const struct ncclComm *c, const struct tn_nccl_call *k)
{
    const uint64_t width = tn_nccl_width(k->dtype), from = tn_nccl_gives(c, k) * width,
                   to = tn_nccl_gets(c, k) * width;
    const char *a = k->from, *b = k->to;

    if (!from || !to || a >= b + to || b >= a + from)
        return 0;
    return k->op == ALL_GATHER       ? a != b + c->rank * from
           : k->op == REDUCE_SCATTER ? b != a + c->rank * to
                                     : a != b;
}

static ncclResult_t check(struct ncclComm *c, const struct tn_nccl_call *k)
{
    char text[400];
    const char *why;

    if (!c)
        return tn_nccl_wrong(NULL, ncclInvalidArgument, "no such communicator, or no more");
    if (c->late || !c->connected)
        return tn_nccl_wrong(c, ncclInvalidUsage,
                             "a call while the communicator is busy with the one before");
    if (c->finalized || c->aborted || c->error)
        return tn_nccl_wrong(c, ncclInvalidUsage, "a call on a communicator that has ended or failed");
    if (!tn_nccl_width(k->dtype) || k->peer >= c->n || k->reduce > ncclMin || k->reduce == ncclProd)
        return tn_nccl_wrong(c, ncclInvalidArgument, "a type, reduction or rank that there is not");
    if ((why = check_memory(c, k->from, tn_nccl_gives(c, k) * tn_nccl_width(k->dtype))) ||
        (why = check_memory(c, k->to, tn_nccl_gets(c, k) * tn_nccl_width(k->dtype)))) {
        snprintf(text, sizeof text, "%s: %s", tn_nccl_names[k->op], why);
        return tn_nccl_wrong(c, ncclInvalidArgument, text);
    }
    return overlap(c, k) ? tn_nccl_wrong(c, ncclInvalidArgument, "memory that is given and got overlaps")
                         : ncclSuccess;
}

static ncclResult_t add(ncclComm_t comm, struct tn_nccl_call k, cudaStream_t stream)
{
    struct ncclComm *c;
    ncclResult_t r;

    tn_fake_lock();
    tn_fake_count()->collectives++;
    if (k.op == ALL_REDUCE && tn_fake_planted("counts"))
        k.count--;
    c = tn_nccl_find(comm);
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

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream)
{
    return add(c, (struct tn_nccl_call){ALL_REDUCE, dtype, op, 0, count, from, to}, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t dtype, ncclComm_t c,
                           cudaStream_t stream)
{
    return add(c, (struct tn_nccl_call){ALL_GATHER, dtype, 0, 0, count, from, to}, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream)
{
    return add(c, (struct tn_nccl_call){REDUCE_SCATTER, dtype, op, 0, count, from, to}, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t c, cudaStream_t stream)
{
    return add(c, (struct tn_nccl_call){BROADCAST, dtype, 0, (uint32_t)root, count, from, to}, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                        int root, ncclComm_t c, cudaStream_t stream)
{
    return add(c, (struct tn_nccl_call){REDUCE, dtype, op, (uint32_t)root, count, from, to}, stream);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t dtype, int peer, ncclComm_t c,
                      cudaStream_t stream)
{
    return add(c, (struct tn_nccl_call){SEND, dtype, 0, (uint32_t)peer, count, from, NULL}, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t dtype, int peer, ncclComm_t c,
                      cudaStream_t stream)
{
    return add(c, (struct tn_nccl_call){RECV, dtype, 0, (uint32_t)peer, count, NULL, to}, stream);
}
