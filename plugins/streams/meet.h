/* meet.h - the meeting of the ranks of one communicator, while it is opened. */
#ifndef TN_STREAMS_MEET_H
#define TN_STREAMS_MEET_H
#include "streams.h"

struct tn_who { /* in the store */
    int64_t pid;
    uint64_t nonce;
    int32_t fd, reserved0; /* -1: no shared memory */
    uint64_t nonce_at;     /* where the nonce lies in the process; 0: its memory is not lent */
    uint64_t pids;         /* of which space of processes pid is a number; 0: unknown */
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
/* In the store, by rank and what it is; get waits as long as there is time, and names the rank. */
tn_status tn_meeting_put(const struct tn_meeting *m, const char *what, const void *data, uint64_t bytes);
tn_status tn_meeting_get(const struct tn_meeting *m, const char *what, uint32_t rank, void *data,
                         uint64_t *bytes);
/* Everybody knows everybody. */
tn_status tn_meeting_meet(struct tn_meeting *m);
/* Both sides of each pair know whether they share memory. */
tn_status tn_meeting_agree(struct tn_meeting *m);
void tn_meeting_log(const struct tn_meeting *m);
int tn_who_same_host(const struct tn_who *a, const struct tn_who *b);
int tn_who_same_processes(const struct tn_who *a, const struct tn_who *b); /* pids mean the same */

/* --- of the link */
tn_status tn_link_probe(uint32_t *score, char *why, uint64_t why_size);
/* Fills in what others have to know of this rank, before they meet. */
tn_status tn_link_prepare(struct tn_meeting *m);
/* The world's connections to all that are not near. */
tn_status tn_link_connect(struct tn_meeting *m);
#endif
