/* nccl_comm.c - communicators: made, asked for, ended. */
#include "nccl_own.h"

static struct ncclComm *comms;

ncclResult_t tn_nccl_wrong(struct ncclComm *c, ncclResult_t r, const char *what)
{
    tn_fake_blame("nccl: %s", what);
    if (c)
        snprintf(c->text, sizeof c->text, "%s", what);
    return r;
}

struct ncclComm *tn_nccl_find(ncclComm_t comm)
{
    struct ncclComm *c = comms;

    while (c && c != comm)
        c = c->next;
    return c;
}

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
            tn_nccl_fails(c, ncclInvalidUsage);
            return c->error;
        }
        if (!here)
            return ncclInProgress;
        c->connected = 1;
    }
    if (c->late) {
        if (c->questions && --c->questions)
            return ncclInProgress;
        tn_nccl_put(c);
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
    if ((c = tn_nccl_find(comm)))
        *state = state_of(c);
    tn_fake_unlock();
    return c ? ncclSuccess
             : tn_nccl_wrong(NULL, ncclInvalidArgument,
                             "ncclCommGetAsyncError: no such communicator, or no more");
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
    if (n < 1 || rank < 0 || rank >= n || strncmp(id.internal, "tenon-fake-", 11) ||
        strchr(id.internal, '/') || (config && config->magic != 0xcafebeef))
        return tn_nccl_wrong(NULL, ncclInvalidArgument, "ncclCommInitRankConfig: ranks, id or configuration");
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
    if ((c = tn_nccl_find(comm)) && !c->finalized)
        c->finalized = 1, tn_wire_leave(c->wire, 0);
    tn_fake_unlock();
    if (!c)
        return tn_nccl_wrong(NULL, ncclInvalidArgument, "ncclCommFinalize: no such communicator, or no more");
    return c->blocking ? settle(c) : ncclInProgress;
}

/* Gone from the list; its operations, if any are left, end without doing anything. */
static ncclResult_t end(ncclComm_t comm, int aborted, const char *call)
{
    struct ncclComm *c, **at = &comms;

    tn_fake_lock();
    if ((c = tn_nccl_find(comm))) {
        while (*at != c)
            at = &(*at)->next;
        *at = c->next;
        if (!aborted && c->issued != c->finished)
            tn_fake_blame("nccl: %s of a communicator that has work to do", call);
        tn_wire_leave(c->wire, aborted);
        tn_wire_close(c->wire);
        c->aborted = 1; /* kept for operations that name it */
        free(c->late);
        c->late = NULL;
        tn_fake_library_object(-1);
    }
    tn_fake_unlock();
    return c ? ncclSuccess
             : tn_nccl_wrong(NULL, ncclInvalidArgument,
                             "a communicator is ended that there is not, or no more");
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
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a "
                                       "network error",
                                       "NCCL operation in progress"};

    return r < sizeof text / sizeof *text ? text[r] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    struct ncclComm *c;

    tn_fake_lock();
    c = tn_nccl_find(comm);
    tn_fake_unlock();
    return c ? c->text : "";
}
