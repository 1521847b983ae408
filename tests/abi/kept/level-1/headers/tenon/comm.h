/* comm.h - moving data between ranks.
 *
 * A communicator is a list of ranks: the world, or a group of it. Operations are started, each start returns at once
 * with a request, and a wait ends it. What is started on one communicator is begun in that order, so the order must
 * be the same on all of its ranks; between communicators there is no order. Operations of one list begin together,
 * which is what makes pipelines free of deadlock when sends wait for their receiver. Counts, not bytes; any count,
 * 0 included; uneven parts are the rule. Reductions add in the order of ranks, so the bits are the same on
 * every rank and in every run; bf16 and fp16 are added as fp32 and rounded once. One that is made for networks that add
 * by themselves may add fp32 and fp64 in an order of its own, the same bits on every rank, if it says so to its user.
 *
 * Every wait has a limit. What is wrong in a call alone (no such operation, dtype, peer) is refused by start and
 * harms nobody. Any other failure - a rank that is gone or silent, ranks that do not agree - ends the world
 * and all its groups, on every rank that is left: whatever waits is woken, every later call fails at once, and the
 * sentence names the rank at fault, the operation and its sequence. */
#ifndef TENON_COMM_H
#define TENON_COMM_H
#include <tenon/abi.h>
struct tn_comm;
struct tn_request;

/* n: ranks of the communicator; blocks lie in the order of ranks, without gaps. Where counts is NULL, count stands
 * for each of its n entries; where counts_in is NULL, counts does. */
#define TN_ALL_REDUCE 1u                         /* count elements, the same on all; from may be to */
#define TN_ALL_GATHER 2u                         /* counts: what each rank gives, the same on all; to has their sum */
#define TN_REDUCE_SCATTER 3u                     /* counts: what each rank gets, the same on all; from has their sum */
#define TN_ALL_TO_ALL 4u                         /* counts: sent to each; counts_in: received from each */
#define TN_BROADCAST 5u                          /* peer: who gives from, all others get to; the giver's to may be NULL or from */
#define TN_SEND 6u                               /* from, to peer; the n-th send to a rank meets its n-th receive */
#define TN_RECV 7u                               /* to, from peer */
#define TN_BARRIER 8u                            /* done when all have started it; nothing else is read */
#define TN_SUM 1u                                /* integers wrap */
#define TN_MAX 2u                                /* NaN if one is */
#define TN_MIN 3u

struct tn_transfer {                             /* array element: frozen */
    uint32_t op, dtype, reduce, peer;            /* peer: within the group */
    const void *from;                            /* what this rank gives; not read where it gives nothing */
    void *to;                                    /* room for what it gets; it does not overlap from, but as said above */
    uint64_t count;                              /* elements, where all ranks have the same */
    const uint64_t *counts, *counts_in;          /* per rank of the group */
    uint64_t sequence;                           /* of this group; the same on all ranks; 0: not numbered */
};

#define TN_COMM_ID "tenon.comm/1"
struct tn_comm_api {
    uint32_t struct_size;
    uint32_t reserved0;
    /* Kinds of device whose memory it takes; ends with NULL. "cpu" is the host's memory, which every communicator
     * takes. Others need a stream in start, and wait_on; the host stages through its own memory what is left. */
    const char *const *devices;
    /* Can it be had here? No side effects, any thread, before everything. score 0: no, and why says it. */
    tn_status (*probe)(uint32_t *score, char *why, uint64_t why_size);
    /* The world, called by all ranks, in the main thread, after the device was opened there. Returns within the seconds, which stay the limit of
     * group and close. The caller owns the result and closes it after all its groups; NULL after an error. */
    tn_status (*open)(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world);
    /* Called by exactly the ranks of the list (ranks of the world, each once), all with the same list; groups that
     * share ranks are made in the same order by them. A rank's number in the group is its place in the list. The
     * list is borrowed for the call. Any one thread. */
    tn_status (*group)(struct tn_comm *world, const uint32_t *ranks, uint32_t n, struct tn_comm **out);
    /* All of them as one. stream NULL: from and to are memory of the host, ready. Else they are memory of the
     * device, and all begins when what is on its stream (tn_device_api.native) now is done; the call does not wait
     * for that. Any thread, one at a time for a communicator. Borrows the list and its counts for the call, from and to until wait has taken the request or abort has
     * returned. *out: to be given to wait; NULL after an error, when nothing was begun. */
    tn_status (*start)(struct tn_comm *c, const struct tn_transfer *t, uint32_t n, void *stream, struct tn_request **out);
    /* TN_OK done, TN_DECLINED not yet (seconds 0 polls), TN_ERR_TIMEOUT; takes the request unless not yet. Any
     * thread, one for each request; requests may be waited for in any order. */
    tn_status (*wait)(struct tn_request *r, double seconds);
    void (*abort)(struct tn_comm *c);            /* any thread, any time before close; twice is once */
    /* Called by all ranks unless the world has failed or was aborted; every request was waited for. NULL: nothing. */
    void (*close)(struct tn_comm *c);
    /* Both, if it takes memory of a device, else NULL. */
    /* In place of wait, for what was started with a stream: what is put on the stream from now on begins when the
     * transfer is done; the caller does not wait. Takes the request in any case. Start and this may be recorded
     * (tn_device_capture): then they only put work on streams, joined to the one that is recorded. */
    tn_status (*wait_on)(struct tn_request *r, void *stream);
    /* Is the world well, groups included? After every wait for the device: what was on its streams counts only then.
     * TN_OK, or the error that ended it, recorded as start would. Does not wait. Any thread. */
    tn_status (*check)(struct tn_comm *world);
};
#endif
