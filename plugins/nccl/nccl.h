/* nccl.h - the parts of the communicator nccl and how they hang together.
 *
 *     plugin.c   the table; is there a GPU
 *     world.c    communicators made and ended
 *     meet.c     the store: unique ids, who is missing
 *     start.c    start, wait, wait_on: streams and events around the operations
 *     check.c    what start refuses; names
 *     enqueue.c  an operation as calls of NCCL
 *     exact.c    sums in the order of ranks: fold.cu
 *     host.c     transfers of host memory, through page-locked memory
 *     keeper.c   a thread that asks for asynchronous errors; failure, abort
 *
 * A communicator has two lanes, each a communicator of NCCL's and a stream. What NCCL is given on one lane
 * runs in that order, and a send ends when it is received: with one lane, ranks of a ring that each start a
 * send and then a receive would wait for each other. So a send goes on the lane of the sender's parity, as
 * its receive does; all else is on lane 0. NCCL's communicators do not block: calls return at once, and are
 * asked for until they are done, the limit has passed or the world has failed. So nothing here waits for a
 * rank without a limit. */
#ifndef TN_NCCL_H
#define TN_NCCL_H
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <tenon/bootstrap.h>
#include <tenon/comm.h>

#define TN_LANES 2
#define TN_SCRATCH                                                                                           \
    16 /* MiB of device memory of a communicator, unless TENON_NCCL_SCRATCH says another number */

struct tn_lane {
    ncclComm_t comm; /* NULL: one rank, or it was aborted */
    cudaStream_t stream;
};

struct tn_pinned { /* page-locked memory, kept for the next transfer */
    struct tn_pinned *next;
    uint8_t *at;
    uint64_t bytes;
};

struct tn_back { /* what is copied to the caller when all is done */
    void *to;
    const void *from;
    uint64_t bytes;
};

struct tn_request {
    struct tn_comm *comm;
    struct tn_request *next;    /* among the spare ones */
    struct tn_request *older;   /* of the communicator: all that were ever made */
    cudaEvent_t done[TN_LANES]; /* recorded for those in lanes */
    _Atomic uint32_t lanes;     /* bits */
    _Atomic uint32_t open;      /* sends to itself whose receive was not started, and the reverse */
    struct tn_pinned *host;     /* NULL: device memory */
    struct tn_transfer *staged; /* the list, with addresses in host */
    struct tn_back *back;
    uint32_t n_back, room; /* of staged and back */
};

struct tn_half { /* of a transfer from this rank to itself */
    struct tn_half *next;
    struct tn_request *request;
    struct tn_transfer what;
    cudaEvent_t ready; /* its memory is */
};

struct tn_comm {
    struct tn_world *world;
    struct tn_comm *next;
    uint32_t rank, n;
    uint32_t *ranks;         /* of the world */
    uint32_t is_group, made; /* made: all ranks have been heard of */
    char key[80];            /* of this communicator in the store */
    pthread_mutex_t lock;    /* lanes' comm, last; held while NCCL is called */
    struct tn_lane lane[TN_LANES];
    cudaEvent_t ready;
    uint8_t *scratch;       /* of the device; NULL: one rank */
    uint64_t scratch_bytes; /* at least 8 n² */
    const uint8_t **from;   /* [n], exact.c's */
    uint64_t *counts;
    struct tn_half *half;        /* oldest first; sends only, or receives only */
    struct tn_transfer last;     /* begun, for what is said of a failure */
    uint32_t on_host, reserved0; /* what is being started is page-locked memory, and ready */
    pthread_mutex_t spares;
    struct tn_request *spare, *newest;
};

struct tn_world {
    uint32_t rank, size;
    int device;
    double seconds;
    uint64_t instance;
    uint32_t ordered, n_tags; /* ordered: every sum of floats is exact */
    uint64_t *tags;           /* hashes of the groups that ever were */
    uint64_t scratch;         /* bytes */
    const struct tn_store *store;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    pthread_t keeper;
    struct tn_comm *comms;
    struct tn_pinned *pinned;
    uint32_t left; /* a communicator did not end, so its memory is not given back */
    uint32_t kept, stop, busy,
        aborted; /* kept: the thread runs; busy: goes through comms; aborted: ended NCCL's work */
    _Atomic uint32_t dead;
    int32_t code;
    char text[440];
};

/* --- world.c */
tn_status tn_nccl_use(const struct tn_world *w); /* its device becomes the thread's */
double tn_nccl_now(void);
void tn_nccl_nap(double waited); /* a short one, the longer the more was waited */
tn_status tn_nccl_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **out);
tn_status tn_nccl_group(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out);
void tn_nccl_close(struct tn_comm *c);

/* --- meet.c */
/* Ids for both lanes, the same on all ranks of c. until: when to give up. */
tn_status tn_nccl_meet(struct tn_comm *c, double until, ncclUniqueId *id);
/* What the store knows of a communicator that cannot be made: "; rank 3 has not come", or which two share a
 * GPU; or nothing. */
void tn_nccl_missing(const struct tn_comm *c, char *text, size_t size);

/* --- keeper.c */
tn_status tn_nccl_keep(struct tn_world *w); /* starts the thread */
void tn_nccl_unkeep(struct tn_world *w);    /* ends it */
void tn_nccl_aborted(struct tn_world *w); /* the world is dead: until NCCL's work has ended, or long enough */
/* The first failure ends the world: NCCL's work is aborted. Returns code, or the one before. */
__attribute__((format(printf, 3, 4))) tn_status tn_nccl_fail(struct tn_world *w, tn_status code,
                                                             const char *fmt, ...);
tn_status tn_nccl_failed(struct tn_world *w); /* the failure once more, for this thread */
tn_status tn_nccl_cuda(struct tn_world *w, cudaError_t e, const char *what); /* fails it, unless e is none */
/* NCCL's answer on a lane: an error fails the world. */
tn_status tn_nccl_result(struct tn_comm *c, const struct tn_lane *l, ncclResult_t r, const char *what);
/* Waits until NCCL has done what it was asked to on the lanes (bits); later fails the world. c's lock is
 * held. */
tn_status tn_nccl_settle(struct tn_comm *c, uint32_t lanes, double until, const char *what);
void tn_nccl_abort(struct tn_comm *c);
tn_status tn_nccl_check(struct tn_comm *world);

/* --- start.c */
tn_status tn_nccl_start(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream,
                        struct tn_request **out);
tn_status tn_nccl_wait(struct tn_request *r, double seconds);
tn_status tn_nccl_wait_on(struct tn_request *r, void *stream);
void tn_nccl_requests_free(struct tn_comm *c);
/* Until what is on the lanes' streams is done; TN_ERR_TIMEOUT, TN_ERR: nothing is recorded. */
tn_status tn_nccl_drain(const struct tn_comm *c, double until);
void tn_nccl_halves_free(struct tn_comm *c);

/* --- check.c */
uint64_t tn_nccl_width(uint32_t dtype);
tn_status tn_transfer_check(const struct tn_comm *c, const struct tn_transfer *t);
/* "all_reduce 12, sum of 64 elements of fp32" */
void tn_transfer_say(const struct tn_transfer *t, char *out, size_t size);
void tn_comm_say(const struct tn_comm *c, char *out, size_t size);
/* Elements at from and to on this rank. */
void tn_transfer_sizes(const struct tn_comm *c, const struct tn_transfer *t, uint64_t *from, uint64_t *to);

/* --- enqueue.c */
/* Bits of the lanes that the list uses on this rank. */
uint32_t tn_nccl_lanes(const struct tn_comm *c, const struct tn_transfer *t, uint32_t n);
/* All but transfers to itself, on the lanes' streams. c's lock is held. */
tn_status tn_nccl_enqueue(struct tn_comm *c, const struct tn_transfer *t, uint32_t n);

/* What a rank gives itself. A stream would make the caller wait for a copy within the host's memory. */
cudaError_t tn_nccl_copy(struct tn_comm *c, void *to, const void *from, uint64_t bytes);

/* --- exact.c */
int tn_nccl_is_exact(const struct tn_comm *c, const struct tn_transfer *t);
tn_status tn_nccl_exact(struct tn_comm *c, const struct tn_transfer *t);

/* --- host.c */
tn_status tn_nccl_stage(struct tn_request *r, const struct tn_transfer *t, uint32_t n);
void tn_nccl_unstage(struct tn_request *r, int copy);
void tn_nccl_pinned_free(struct tn_world *w);

/* --- fold.cu */
struct tn_fold {
    const void *parts, *own; /* of rank p at parts + p · stride; own: of rank me instead */
    void *out;
    uint64_t stride, count; /* elements */
    uint32_t n, me, dtype, reduce;
};
/* out = part 0 + part 1 + …, or the largest, the smallest. 0, or cudaError_t. */
int tn_nccl_fold(const struct tn_fold *f, void *stream);
#endif
