/* streams.h - the parts of a communicator of streams and how they hang together.
 *
 * Plugins gloo and mpi are made of it, and differ in what carries streams between ranks that share no memory.
 *
 *     comm.c     the table: start, wait, abort, close
 *     drive.c    who drives, and who sleeps
 *     world.c    communicators made and ended
 *     meet.c     rendezvous: who is on this host, segments, addresses
 *     engine.c   moves what is pending: one pass over the streams, under one lock
 *     plan.c     an operation as items on streams
 *     header.c   what the sides of a stream compare
 *     reduce.c   sums in the order of ranks
 *     ring.c     shared memory between ranks of one host, and bells
 *     loan.c     large items read where they are, past the ring
 *     link.h     the same stream over a network: ../gloo, ../mpi
 *     blame.c    who is at fault, and telling the others
 *
 * Between two ranks of a communicator lies one stream of bytes in each direction: a ring in shared memory, or
 * frames over a link. Each operation is a fixed sequence of items on each stream, known on both sides from
 * its arguments; a header in front of the first item says what the sender believes, and the receiver compares
 * before it takes a byte. Every operation goes directly between each two ranks, so who waits, waits for the
 * one at fault.
 *
 * The engine runs in whatever thread drives it: the one in wait, if any, else the progress thread. What is
 * small was written by start and needs nobody until wait; only larger work wakes the thread. */
#ifndef TN_STREAMS_H
#define TN_STREAMS_H
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <tenon/bootstrap.h>
#include <tenon/comm.h>
#include "link.h"

#define TN_LINE 64u                  /* of memory; items are padded to it */
#define TN_STREAM_SMALL (32u << 10)  /* bytes: all-reduce in one step, start moves it itself */
#define TN_STREAM_STEP (64u << 10)   /* bytes moved before the other side is told */
#define TN_STREAM_SLICE (128u << 10) /* bytes of one rank's slice in a segment of a large all-reduce, */
#define TN_LOAN_SLICE (256u << 10)   /* of one that lends */
#define TN_STREAM_LEND (1u << 20) /* bytes of an operation (all-reduce) or item from which memory is lent */

/* --- shared memory. All of it is zero at first; words are atomic since other processes write them. */

struct tn_board {                                      /* of one process: first in the segment of its world */
    _Alignas(TN_LINE) _Atomic uint32_t bell, sleeping; /* data: who drives sleeps on it */
    _Alignas(TN_LINE) _Atomic uint32_t ask_bell;       /* everything else: the progress thread sleeps on it */
    _Atomic uint32_t asked, answered;                  /* counts of "are you there?" */
    _Atomic uint32_t waits_for;                        /* rank of the world that a wait here lacks, + 1 */
    _Alignas(TN_LINE) _Atomic uint32_t verdict;        /* 0 none, 1 being written, 2 is there */
    int32_t code;
    char text[440];
};

struct tn_ring_ends {
    _Alignas(TN_LINE) _Atomic uint64_t head; /* bytes ever written */
    _Alignas(TN_LINE) _Atomic uint64_t tail; /* bytes ever read */
    _Atomic uint64_t returned;               /* items lent to the reader, and read */
};

struct tn_segment { /* of one rank in one communicator; rings follow, one for each rank */
    struct tn_board board;
    _Alignas(TN_LINE) uint64_t nonce;
    _Atomic uint64_t begun;     /* collectives */
    struct tn_ring_ends ends[]; /* by writer */
};

/* --- streams */

struct tn_flow {           /* one direction of a stream */
    struct tn_op *op;      /* whose items move, NULL if none waits */
    uint32_t item, headed; /* headed: the header has passed */
    uint64_t at;           /* bytes of the item that have passed */
    uint32_t loan, lends;  /* of the item: not known yet, TN_LOAN, TN_NO_LOAN; may the operation lend */
    uint64_t address;      /* in the peer, of what is lent */
};

struct tn_stream {
    struct tn_comm *comm;
    struct tn_link_stream *link; /* else shared memory */
    uint32_t peer, world;        /* rank in the group, in the world */
    struct tn_segment *theirs;   /* NULL: a link, or nobody (the rank itself) */
    struct tn_ring_ends *in_ends, *out_ends;
    uint8_t *in, *out;                         /* each mapped twice in a row, so any piece is contiguous */
    uint64_t head, tail, seen_head, seen_tail; /* ours, and what was last seen of theirs */
    uint64_t told;                             /* head that the reader knows of */
    int64_t pid;                               /* of the peer, if it may read us or we it */
    uint32_t may_lend, may_borrow;             /* it can read our memory, we its */
    uint64_t lent, borrowed;                   /* items ever lent; bytes ever read */
    struct tn_flow give, take;
};

/* --- operations */

struct tn_op {
    struct tn_op *next, *prev;
    struct tn_request *request;
    struct tn_transfer t;         /* counts point below */
    uint64_t index;               /* of this communicator's collectives; 0: send, receive */
    uint64_t width, bytes, total; /* of an element; moved by this rank; elements of all ranks */
    uint64_t slice;               /* elements: all-reduce in segments of n slices; 0: in one step */
    uint64_t segment, reduced;    /* the item being reduced, its elements that are */
    uint64_t copied;              /* bytes of what this rank gives itself */
    uint32_t left, giving;        /* flows that have not passed; of them outgoing */
    uint32_t small, reserved0;
    uint64_t *give, *take;  /* offsets of blocks, n + 1 each */
    uint8_t *given, *taken; /* by rank: has the flow passed */
};

struct tn_request {
    struct tn_comm *comm;
    struct tn_request *next;
    struct tn_op *last; /* not done yet; for blame */
    double started;
    _Atomic uint32_t left;
};

struct tn_comm {
    struct tn_world *world;
    struct tn_comm *next; /* of the world */
    uint32_t rank, n;
    uint32_t *ranks;          /* of the world, by rank of the group */
    struct tn_stream *stream; /* by rank of the group */
    struct tn_segment *mine;
    uint8_t *scratch;   /* loan_step bytes for each rank, if one lends; else NULL */
    uint64_t loan_step; /* read at once of what is lent: all of them together fit into the cache */
    void **mapped;      /* what ring.c mapped, and how long */
    uint64_t *mapped_bytes;
    uint32_t n_mapped, reserved0;
    uint64_t ring, tag;               /* bytes of a ring; number of the group in headers and frames */
    struct tn_op *first, *last;       /* pending; engine's lock */
    struct tn_op *inbox, **inbox_end; /* started, not yet seen by the engine */
    struct tn_op *spare_op;
    struct tn_request *spare_request;
    uint64_t begun;
};

struct tn_peer {                                /* a process */
    struct tn_segment *segment;                 /* on this host, else NULL */
    int32_t pidfd;                              /* -1: unknown */
    uint32_t ticket;                            /* of the last question */
    _Atomic uint32_t gone, answered, waits_for; /* no segment: said by its last answer */
    _Atomic uint64_t begun;
};

struct tn_world {
    uint32_t rank, size;
    double seconds;
    uint64_t instance;      /* worlds of this process are numbered, in keys */
    uint64_t *tags, n_tags; /* of all groups that ever were */
    uint32_t users, reserved0;
    double spin,
        patience; /* seconds that a wait may look before it sleeps, that it does at present; the driver's */
    uint64_t sleeps;
    double looked;          /* when, for processes that have ended; the driver's */
    pthread_mutex_t engine; /* streams, pending operations, dead */
    pthread_mutex_t inbox;  /* inbox, spare lists, list of communicators */
    pthread_t thread;
    struct tn_comm *comms;
    struct tn_board *board;
    struct tn_peer *peer;
    struct tn_link *link;
    _Atomic uint32_t driven;             /* somebody drives: sleeps on the bell, moves what comes */
    _Atomic uint32_t turn, asleep;       /* the word that waits sleep on when another thread drives, how many do */
    _Atomic uint32_t waiting;            /* threads in wait, asleep or not */
    _Atomic uint32_t busy;               /* somebody has to drive */
    _Atomic uint32_t ticking, hasty;     /* the thread looks by itself; the last wait came at once */
    _Atomic uint32_t stop, dead, posted; /* posted: inboxes that are not empty may exist */
    int32_t code;
    char text[440];
};

/* comm.c */
extern const struct tn_comm_api tn_streams_comm;

/* plan.c */
struct tn_item {
    uint8_t *data;
    uint64_t bytes, ready; /* ready: how much may be given already */
    int32_t reduce;        /* taken by a sum of all ranks, not by a copy */
    int32_t large;         /* lent where that is possible */
};
uint64_t tn_dtype_bytes(uint32_t dtype);
const char *tn_dtype_name(uint32_t dtype);
const char *tn_transfer_name(uint32_t op);
tn_status tn_op_check(const struct tn_comm *c, const struct tn_transfer *t);
struct tn_op *tn_op_new(uint32_t n);
void tn_op_set(const struct tn_comm *c, const struct tn_transfer *t, struct tn_op *op);
uint32_t tn_op_gives(const struct tn_comm *c, const struct tn_op *op, uint32_t peer); /* items */
uint32_t tn_op_takes(const struct tn_comm *c, const struct tn_op *op, uint32_t peer);
void tn_op_give(const struct tn_comm *c, const struct tn_op *op, uint32_t peer, uint32_t item,
                struct tn_item *out);
void tn_op_take(const struct tn_comm *c, const struct tn_op *op, uint32_t peer, uint32_t item,
                struct tn_item *out);
/* What this rank adds to item number segment, and where the result goes; elements. */
uint64_t tn_op_own(const struct tn_comm *c, const struct tn_op *op, const uint8_t **from, uint8_t **to);
/* What this rank gives itself; bytes. */
uint64_t tn_op_copy(const struct tn_comm *c, const struct tn_op *op, const uint8_t **from, uint8_t **to);
void tn_op_say(const struct tn_op *op, char *out, size_t size);

/* reduce.c: out = part[0] + part[1] + … in this order. out may be any of the parts. */
void tn_reduce(uint32_t dtype, uint32_t reduce, const void *const *part, uint32_t n, uint64_t count,
               void *out);

/* engine.c */
int tn_engine_pass(struct tn_world *w); /* lock held; did anything move */
void tn_engine_free(struct tn_comm *c);

/* ring.c */
void tn_bell_ring(_Atomic uint32_t *bell);
void tn_bell_wake(struct tn_board *b); /* who drives there, if asleep */
void tn_bell_wait(_Atomic uint32_t *bell, uint32_t seen, double seconds);
uint64_t tn_ring_bytes(uint32_t n);
tn_status tn_segment_new(struct tn_comm *c, int *fd);
tn_status tn_segment_join(struct tn_comm *c, uint32_t peer, int64_t pid, int fd, uint64_t nonce);
void tn_segment_free(struct tn_comm *c);
uint8_t *tn_stream_room(struct tn_stream *s, uint64_t *bytes);
void tn_stream_wrote(struct tn_stream *s, uint64_t bytes);
void tn_stream_tell(struct tn_stream *s);
uint8_t *tn_stream_read(struct tn_stream *s, uint64_t *bytes);
void tn_stream_took(struct tn_stream *s, uint64_t bytes);

/* world.c */
tn_status tn_world_open(uint32_t rank, uint32_t size, double seconds, struct tn_comm **out);
tn_status tn_world_group(struct tn_world *w, const uint32_t *ranks, uint32_t n, struct tn_comm **out);
void tn_world_close(struct tn_world *w, struct tn_comm *last);
void tn_comm_free(struct tn_comm *c);

/* blame.c */
double tn_now(void);
tn_status tn_world_fail(struct tn_world *w, tn_status code, const char *text); /* engine's lock held */
tn_status tn_world_failed(struct tn_world *w); /* the recorded failure, once more for this thread */
int tn_world_notice(struct tn_world *w);       /* a verdict of another rank; engine's lock held; is it dead */
void tn_world_look(struct tn_world *w);        /* whose process has ended */
void tn_world_answer(struct tn_world *w);
void tn_world_ask(struct tn_world *w, struct tn_comm *c);
void tn_world_control(void *world, uint32_t peer, uint32_t kind, const void *data, uint32_t bytes);
uint32_t tn_request_lacks(const struct tn_request *r); /* a rank of the world, + 1 */
tn_status tn_request_late(struct tn_request *r, double seconds);
void tn_world_gone(struct tn_world *w); /* fails it if a rank that is gone is still needed */
void tn_comm_say(const struct tn_comm *c, char *out, size_t size);

/* drive.c */
/* A write to a closed connection must not kill a caller that has not ignored SIGPIPE. */
struct tn_pipe_guard {
    sigset_t before;
    int on;
};
void tn_pipe_guard_begin(const struct tn_world *w, struct tn_pipe_guard *g);
void tn_pipe_guard_end(struct tn_pipe_guard *g);
void *tn_world_thread(void *world);
/* Until the request is done, the world is dead or the time has come. *mine: is this thread the driver; if so
 * after the last call tn_drive_end has to follow. */
void tn_drive_until(struct tn_request *r, double until, int *mine);
void tn_drive_end(struct tn_world *w);
void tn_drive_wake(struct tn_world *w);  /* the progress thread, if there is work for it */
void tn_drive_start(struct tn_world *w); /* the same after start */

/* loan.c. Of an item: */
#define TN_LOAN 1u
#define TN_NO_LOAN 2u
uint64_t tn_loan_step(uint32_t n);
int tn_loans_wanted(void);
void tn_loans_permit(void);
int tn_loans_possible(int64_t pid, uint64_t address, uint64_t nonce); /* the nonce lies there */
int tn_loan_give(struct tn_stream *s, const struct tn_item *item);
int tn_loan_take(struct tn_stream *s, const struct tn_item *item);
int tn_loan_read(struct tn_stream *s, uint64_t at, void *to, uint64_t bytes);
void tn_loan_return(struct tn_stream *s);
int tn_loans_out(const struct tn_stream *s); /* has anything that was lent not come back */

/* header.c: what a rank believes of an operation, in front of its first item */
struct tn_header {
    uint32_t magic, op, dtype, reduce;
    uint32_t root, reserved0;
    uint64_t sequence, count, total; /* elements of this block, of the operation */
    uint64_t zero[2];
};
_Static_assert(sizeof(struct tn_header) == TN_LINE, "the header is one line");
struct tn_header tn_header_of(const struct tn_op *op, uint64_t bytes);
int tn_header_agree(const struct tn_header *a, const struct tn_header *b);
/* They do not: the end of the world. Engine's lock held. */
void tn_header_differ(struct tn_stream *s, const struct tn_header *theirs, const struct tn_header *ours);
#endif
