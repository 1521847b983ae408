/* nccl_own.h - what the files of the fake NCCL share: nccl.c the calls, nccl_op.c the operation that they
 * become, nccl_comm.c communicators. */
#ifndef TN_FAKE_NCCL_OWN_H
#define TN_FAKE_NCCL_OWN_H
#include <nccl.h>
#include "fake.h"
#include "number.h"
#include "wire.h"

enum { SEND, RECV, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE };

struct tn_nccl_call {
    uint32_t op, dtype, reduce, peer;
    uint64_t count;
    const void *from;
    void *to;
};
struct tn_nccl_group { /* an operation; its calls follow */
    struct ncclComm *comm;
    uint32_t n, reserved0;
};
struct ncclComm {
    struct ncclComm *next;
    struct tn_wire *wire;
    uint32_t n, rank;
    int device, blocking, aborted, finalized, connected;
    uint32_t questions; /* until it has done what it was asked for */
    uint64_t issued, finished, posted, collectives;
    ncclResult_t error;
    char text[420];
    struct tn_nccl_group *late; /* to be put on its stream */
    cudaStream_t late_stream;
};

/* --- nccl_op.c */
extern const char *const tn_nccl_names[];
extern const struct tn_fake_kind tn_nccl_kind;
uint32_t tn_nccl_width(uint32_t dtype);
/* What a call gives and gets on this rank, in elements. */
uint64_t tn_nccl_gives(const struct ncclComm *c, const struct tn_nccl_call *k);
uint64_t tn_nccl_gets(const struct ncclComm *c, const struct tn_nccl_call *k);
void tn_nccl_fails(struct ncclComm *c, ncclResult_t r);

/* --- nccl.c: what was held back goes on its stream */
ncclResult_t tn_nccl_put(struct ncclComm *c);

/* --- nccl_comm.c. The lock is held. NULL: there is none. */
struct ncclComm *tn_nccl_find(ncclComm_t comm);
ncclResult_t tn_nccl_wrong(struct ncclComm *c, ncclResult_t r, const char *what);
#endif
