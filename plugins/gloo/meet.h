/* meet.h - the meeting of the ranks of one communicator, while it is opened. */
#ifndef TN_GLOO_MEET_H
#define TN_GLOO_MEET_H
#include "gloo.h"

struct tn_who { /* in the store */
    int64_t pid;
    uint64_t nonce;
    int32_t fd, reserved0; /* -1: no shared memory */
    char host[64], boot[64], address[64], interface[32];
};

struct tn_meeting { /* of the ranks of one communicator */
    struct tn_comm *c;
    const struct tn_store *store;
    struct tn_who *who;
    double until;
    uint32_t *near; /* by rank: talk through shared memory */
    char prefix[64];
    int fd;
};

tn_status tn_meeting_new(struct tn_comm *c, double seconds, struct tn_meeting *m);
void tn_meeting_end(struct tn_meeting *m);
/* Makes this rank's segment and says who it is, to itself. */
tn_status tn_meeting_introduce(struct tn_meeting *m);
/* The address that others reach this rank by. */
tn_status tn_meeting_address(struct tn_meeting *m);
/* Everybody knows everybody. */
tn_status tn_meeting_meet(struct tn_meeting *m);
/* Both sides of each pair know whether they share memory. */
tn_status tn_meeting_agree(struct tn_meeting *m);
/* The world's connections to all that are not near. */
tn_status tn_meeting_tcp(struct tn_meeting *m);
void tn_meeting_log(const struct tn_meeting *m);
int tn_who_same_host(const struct tn_who *a, const struct tn_who *b);
#endif
