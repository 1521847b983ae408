/* pmix - who am I, where are the others, as PMIx knows it under mpirun or srun --mpi=pmix.
 *
 * probe reads two variables, since it may run in a child that must not connect to anything. locate connects:
 * it begins PMIx's own thread, and is called when all probing is over. Rank 0's address is put without a
 * fence, which would wait for all and name nobody: a get of it waits for rank 0 alone, with a limit. */
#include <pmix.h>
#include <stdlib.h>
#include <tenon/bootstrap.h>
#include <time.h>

#define KEY "tenon.address"

static pmix_proc_t me;
static int connected;

static const char *text_of(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    const char *space = text_of("PMIX_NAMESPACE"), *rank = text_of("PMIX_RANK");

    *score = 0;
    if (!space && !rank)
        snprintf(why, why_size, "no PMIx server started this process (PMIX_NAMESPACE is not set)");
    else if (!space || !rank)
        return tn_error(TN_ERR_CONFIG, "pmix: %s is set and %s is not, though PMIx sets both",
                        space ? "PMIX_NAMESPACE" : "PMIX_RANK", space ? "PMIX_RANK" : "PMIX_NAMESPACE");
    else if (strspn(rank, "0123456789") != strlen(rank))
        return tn_error(TN_ERR_CONFIG, "pmix: PMIX_RANK is \"%.40s\", which is no number", rank);
    else {
        *score = 60;
        snprintf(why, why_size, "PMIx: name space %.40s", space);
    }
    return TN_OK;
}

/* --- numbers of the job and of this process */
static int read_number(pmix_rank_t rank, const char *key, uint32_t *out)
{
    pmix_value_t *v = NULL;
    pmix_proc_t who;

    PMIX_LOAD_PROCID(&who, me.nspace, rank);
    if (PMIx_Get(&who, key, NULL, 0, &v) != PMIX_SUCCESS || !v)
        return 0;
    switch (v->type) {
    case PMIX_UINT16: *out = v->data.uint16; break;
    case PMIX_UINT32: *out = v->data.uint32; break;
    case PMIX_INT: *out = (uint32_t)v->data.integer; break;
    case PMIX_PROC_RANK: *out = v->data.rank; break;
    default: rank = PMIX_RANK_INVALID;
    }
    PMIX_VALUE_RELEASE(v);
    return rank != PMIX_RANK_INVALID;
}

static tn_status join(void)
{
    pmix_status_t e;

    if (connected)
        return TN_OK;
    if ((e = PMIx_Init(&me, NULL, 0)) != PMIX_SUCCESS)
        return tn_error(TN_ERR_CONFIG, "pmix: the server that PMIX_NAMESPACE speaks of cannot be reached: %s",
                        PMIx_Error_string(e));
    connected = 1;
    return TN_OK;
}

static tn_status locate(struct tn_place *out)
{
    tn_status s;

    if (out->struct_size < sizeof *out)
        return tn_error(TN_ERR, "pmix: struct tn_place has %u bytes, %zu are needed", out->struct_size,
                        sizeof *out);
    memset((char *)out + sizeof out->struct_size, 0, sizeof *out - sizeof out->struct_size);
    if (!text_of("PMIX_NAMESPACE") || !text_of("PMIX_RANK"))
        return tn_error(TN_ERR_CONFIG,
                        "pmix: PMIX_NAMESPACE and PMIX_RANK are not set, so no PMIx server started this "
                        "process");
    if ((s = join()) < 0)
        return s;
    out->rank = me.rank;
    if (!read_number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, &out->size))
        return tn_error(TN_ERR_CONFIG, "pmix: the server does not say how many processes there are");
    /* what follows may be unknown, and is then counted by the host */
    if (!read_number(me.rank, PMIX_LOCAL_RANK, &out->local_rank) ||
        !read_number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, &out->local_size))
        out->local_rank = out->local_size = 0;
    if (!read_number(me.rank, PMIX_NODEID, &out->node) ||
        !read_number(PMIX_RANK_WILDCARD, PMIX_NUM_NODES, &out->nodes))
        out->node = out->nodes = 0;
    snprintf(out->job, sizeof out->job, "pmix-%.58s", me.nspace);
    return TN_OK;
}

/* --- the address of rank 0 */
static tn_status give(const char *address)
{
    pmix_value_t v;
    pmix_status_t e;
    char copy[256];

    snprintf(copy, sizeof copy, "%s", address);
    v.type = PMIX_STRING;
    v.data.string = copy;
    if ((e = PMIx_Put(PMIX_GLOBAL, KEY, &v)) != PMIX_SUCCESS || (e = PMIx_Commit()) != PMIX_SUCCESS)
        return tn_error(TN_ERR, "pmix: the address of rank 0 cannot be published: %s", PMIx_Error_string(e));
    return TN_OK;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A server may wait for the key, or say at once that it is not there: both are "not yet". */
static tn_status get(char *out, uint64_t out_size, double seconds)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    double until = now() + seconds;
    pmix_value_t *v = NULL;
    pmix_status_t e;
    pmix_proc_t who;
    pmix_info_t limit;

    PMIX_LOAD_PROCID(&who, me.nspace, 0);
    for (;;) {
        double left = until - now();
        int whole = left < 1 ? 1 : left < 1e9 ? (int)left : 1000000000;

        PMIX_INFO_LOAD(&limit, PMIX_TIMEOUT, &whole, PMIX_INT);
        e = PMIx_Get(&who, KEY, &limit, 1, &v);
        if ((e != PMIX_ERR_NOT_FOUND && e != PMIX_ERR_TIMEOUT) || left <= 0)
            break;
        nanosleep(&pause, NULL);
    }
    if (e == PMIX_ERR_NOT_FOUND || e == PMIX_ERR_TIMEOUT)
        return tn_error(TN_ERR_TIMEOUT, "pmix: rank 0 did not publish its address within %g s", seconds);
    if (e != PMIX_SUCCESS || !v || v->type != PMIX_STRING)
        return tn_error(TN_ERR, "pmix: the address of rank 0 cannot be had: %s", PMIx_Error_string(e));
    snprintf(out, out_size, "%s", v->data.string);
    PMIX_VALUE_RELEASE(v);
    return TN_OK;
}

static tn_status publish(const char *address, char *out, uint64_t out_size, double seconds)
{
    tn_status s = join();

    if (s < 0)
        return s;
    return me.rank ? get(out, out_size, seconds) : give(address);
}

static void leave(void)
{
    if (connected)
        PMIx_Finalize(NULL, 0);
    connected = 0;
}

static const struct tn_bootstrap pmix = {
    .struct_size = sizeof pmix,
    .probe = probe,
    .locate = locate,
    .publish = publish,
    .leave = leave,
};

TN_PLUGIN("pmix", "1.0", "rank and address from PMIx, under mpirun or srun --mpi=pmix", TN_BOOTSTRAP_ID,
          &pmix);
