/* connect.c - ranks of the world and ranks of MPI made to agree.
 *
 * The launcher of this program and the one of MPI may be two: torchrun's variables within mpirun, two mpiruns
 * that share a store. So each rank says in the store what MPI calls it, and all look before a byte is sent.
 * MPI is begun where all ranks of a host share memory too, so that a job that could not grow to two hosts is
 * found out at once. */
#include <stdlib.h>
#include "frames.h"
#include "streams/meet.h"

const char tn_link_kind[] = "MPI";

struct name { /* in the store */
    int32_t rank, size;
};

/* Below gloo: within a host it is the same shared memory without MPI's start. */
tn_status tn_link_probe(uint32_t *score, char *why, uint64_t why_size)
{
    const char *launcher = tn_mpi_launcher();

    *score = launcher ? 10 : 0;
    if (launcher)
        snprintf(why, why_size, "shared memory within a host, MPI between hosts; started by %s", launcher);
    else
        snprintf(why, why_size,
                 "neither mpirun nor srun --mpi=pmix started this process, so MPI knows of no others");
    return TN_OK;
}

tn_status tn_link_prepare(struct tn_meeting *m)
{
    if (tn_mpi_launcher())
        return TN_OK;
    return tn_error(TN_ERR_CONFIG,
                    "mpi: neither mpirun nor srun --mpi=pmix started rank %u, so MPI knows of no other "
                    "rank; start all by one of them, or choose backend.comm=gloo",
                    m->c->rank);
}

static tn_status check(const struct tn_meeting *m, const struct name *name)
{
    const uint32_t n = m->c->n;

    for (uint32_t p = 0; p < n; p++) {
        if (name[p].size != (int32_t)n || name[p].rank < 0 || name[p].rank >= name[p].size)
            return tn_error(TN_ERR_CONFIG,
                            "mpi: rank %u of %u is number %d of %d for MPI; all ranks must be "
                            "started by one mpirun or srun, and nothing else by it",
                            p, n, name[p].rank, name[p].size);
        for (uint32_t q = 0; q < p; q++)
            if (name[p].rank == name[q].rank)
                return tn_error(TN_ERR_CONFIG,
                                "mpi: ranks %u and %u are both number %d for MPI; all ranks must be "
                                "started by one mpirun or srun",
                                q, p, name[p].rank);
    }
    return TN_OK;
}

static tn_status exchange(struct tn_meeting *m, const struct tn_mpi *mpi, struct name *name)
{
    struct name *me = &name[m->c->rank];
    tn_status s;

    *me = (struct name){mpi->rank, mpi->size};
    s = tn_meeting_put(m, "mpi", me, sizeof *me);
    for (uint32_t p = 0; p < m->c->n && s >= 0; p++) {
        uint64_t bytes = sizeof *name;
        if (p != m->c->rank)
            s = tn_meeting_get(m, "mpi", p, &name[p], &bytes);
    }
    return s < 0 ? s : check(m, name);
}

static void say(const struct tn_meeting *m, const struct tn_mpi *mpi)
{
    char text[160];

    snprintf(text, sizeof text, "mpi: %s; rank %u of %u is its number %d of %d", mpi->version, m->c->rank,
             m->c->n, mpi->rank, mpi->size);
    tn_host->log(2, text);
}

static tn_status connect(struct tn_meeting *m, const struct tn_mpi *mpi)
{
    struct tn_comm *c = m->c;
    int32_t *rank = calloc(c->n, sizeof *rank);
    struct name *name = calloc(c->n, sizeof *name);
    tn_status s =
        rank && name ? exchange(m, mpi, name) : tn_error(TN_ERR_MEMORY, "mpi: no memory for %u ranks", c->n);
    uint32_t far = 0;

    for (uint32_t p = 0; s >= 0 && p < c->n; p++) {
        rank[p] = p == c->rank || m->near[p] ? -1 : name[p].rank;
        far += rank[p] >= 0;
    }
    if (s >= 0 && far)
        s = tn_frames_open(c->world, mpi, rank, &c->world->link);
    for (uint32_t p = 0; s >= 0 && p < c->n; p++)
        if (rank[p] >= 0)
            s = tn_link_stream_new(c->world->link, p, c->tag, &c->stream[p].link);
    free(rank);
    free(name);
    return s;
}

tn_status tn_link_connect(struct tn_meeting *m)
{
    const struct tn_mpi *mpi;
    tn_status s = tn_mpi_begin(m->until - tn_now(), &mpi);

    if (s < 0)
        return s;
    say(m, mpi);
    return connect(m, mpi);
}
