/* world.h - all ranks of a run: finding them, agreeing with them, and failing together.
 *
 *     tn_world_find      which launcher, which rank, which mesh, which communicator; touches nothing
 *     tn_world_join      meets the others in the store of rank 0; all compare plugins and configuration
 *     tn_world_open      the communicator, and its groups along the axes of the mesh
 *     tn_world_close     together, or, after a failure, at once
 *
 * A world of one rank has no store and no thread. Between join and close a thread watches over the others.
 * When one of them dies, fails or does not answer, the communicators are aborted, so that whatever waits
 * comes back with an error, whoever gets it asks tn_world_fail for the sentence that names the rank, prints
 * it and ends the process; a process that is still there a second later is ended by the thread, with the same
 * sentence. Nothing is saved after a failure.
 *
 * A process that ends without close counts as dead, so an error on one rank ends all. To end with an error on
 * purpose, call tn_world_abandon first: then the others say why, at once; or, where all come by, settle. Who
 * closes with an error recorded waits for the others to close too, ten seconds or backend.timeout at the
 * most, and then they are told. */
#ifndef TN_WORLD_WORLD_H
#define TN_WORLD_WORLD_H
#include <tenon/bootstrap.h>
#include <tenon/comm.h>
#include "base/config.h"
#include "mesh/mesh.h"
#include "plugin/registry.h"

struct tn_world_own;

struct tn_world {
    uint32_t rank, size;
    struct tn_place place;                /* local rank, node: of the launcher, or counted */
    struct tn_mesh mesh;                  /* seen by this rank */
    double timeout;                       /* backend.timeout: limit of one wait, seconds */
    const struct tn_bootstrap *bootstrap; /* NULL: the place was given */
    const char *bootstrap_name, *comm_name;
    const struct tn_comm_api *comm_api;
    struct tn_comm *comm;           /* of all ranks, after open */
    struct tn_comm *group[TN_AXES]; /* along each axis; NULL where its size is 1 */
    struct tn_comm *back; /* a second one along pp: messages of the backward have an order of their own */
    uint32_t cpu_sharers; /* ranks that run on the same CPUs as this one, it included */
    uint32_t reserved0;
    struct tn_world_own *own;
};

/* Settles parallel.dp, backend.bootstrap and backend.comm where they were left open. What is wrong is added
 * to the problems of the configuration; an error only where it is not known which rank this is, since all
 * others can be told. place: take this one instead of a launcher's, for plans and for threads that are ranks;
 * such a world has no store, and join has nothing to do. Main thread, before threads start. Returns owned. */
tn_status tn_world_find(struct tn_registry *r, struct tn_config *c, const struct tn_place *place,
                        struct tn_world **out);
/* The configuration is complete, or this rank has a trouble, own, which all learn then. Every rank comes back
 * with the same result, within backend.timeout. */
tn_status tn_world_join(struct tn_world *w, const struct tn_config *c, tn_status own);
/* In place of join: the others are met, and nothing is agreed on, since the point is to see how they differ. */
tn_status tn_world_greet(struct tn_world *w);
tn_status tn_world_open(struct tn_world *w);
void tn_world_close(struct tn_world *w); /* takes; collective, unless something failed. NULL is fine */

/* --- agreement: all ranks call with the same `what`; names must not contain tabs or newlines. A name that is
 * missing on a rank counts as "nothing". The error names ranks, names and values, on every rank. */
struct tn_fact {
    const char *name, *value;
};
tn_status tn_world_agree(struct tn_world *w, const char *what, const struct tn_fact *fact, uint32_t n);

/* Each comes with what it has: TN_OK on all, or the same error on all, whose sentence names the ranks and
 * their troubles. Rank 0 says it, on the others it is hushed (base/status.h). So a run that cannot begin says
 * why once. Without a store, and with NULL, the result is own. */
tn_status tn_world_settle(struct tn_world *w, tn_status own);
/* What was settled last is no reason to end. */
void tn_world_go_on(struct tn_world *w);
/* A text of each rank to rank 0, *out by rank there and of no use elsewhere; from rank 0 to all. In the arena.
 * what: what it is, for those who hear that it failed. Only spread knows a world without a store. */
struct tn_arena;
tn_status tn_world_collect(struct tn_world *w, const char *what, const char *text, struct tn_arena *a,
                           const char ***out);
tn_status tn_world_spread(struct tn_world *w, const char *what, const char *text, struct tn_arena *a,
                          const char **out);

/* --- what this rank is doing, for the others when something fails. Cheap. Any thread. */
/* name: borrowed for ever ("load", "step"). heartbeat: rank 0 says every so often that it goes on. */
void tn_world_phase(struct tn_world *w, const char *name, int heartbeat);
/* Before a wait: collective is borrowed until the next call; NULL: in none. peer: rank of the world, or -1.
 */
void tn_world_waits(struct tn_world *w, const char *collective, uint64_t sequence, int64_t peer);

/* --- failing */
/* A wait of this rank failed: learns from the others who is at fault, in less than a second, records the
 * sentence and returns TN_ERR. Where nothing watches over the world the error that is recorded stays. phase
 * NULL: the current one. Any thread. */
tn_status tn_world_fail(struct tn_world *w, const char *phase, const char *collective, uint64_t sequence,
                        int64_t peer);
/* This rank ends with a trouble of its own; the others are told the text at once. close will not wait.
 * Nothing where all know already. */
void tn_world_abandon(struct tn_world *w, const char *text);
int tn_world_has_failed(struct tn_world *w); /* start no save any more; NULL: no */
tn_status
tn_world_failed(struct tn_world *w); /* TN_ERR, and the sentence is recorded again, if there is one */

/* Did a launcher start this process? A bootstrap that knows of none scores 1. Asks in children, and changes
 * nothing. */
int tn_world_launched(struct tn_registry *r);

/* Where a rank is, after join; of this rank alone in a world of one. Texts are borrowed from the world. */
struct tn_world_where {
    const char *host, *address, *iface;
    int64_t pid;
    uint32_t cpus, host_cpus; /* that it may use; that there are */
};
int tn_world_peer(const struct tn_world *w, uint32_t rank, struct tn_world_where *out); /* 0: not known */

/* Of all ranks, after join: "rank 1 (host n2, process 4711)". Returns out. */
const char *tn_world_name(const struct tn_world *w, uint32_t rank, char *out, size_t bytes);
#endif
