/* frames.h - frames between ranks, over MPI; streams are made of them in stream.c. */
#ifndef TN_MPI_FRAMES_H
#define TN_MPI_FRAMES_H
#include <pthread.h>
#include "library.h"
#include "streams/streams.h"

#define TN_FRAME_PAYLOAD (256u << 10)
#define TN_FRAME_WINDOW 4u /* frames of a stream that may be unread */
#define TN_FRAME_SPARE 4u  /* posted beyond them, for credits and control */
#define TN_FRAME_DATA 0x100u
#define TN_FRAME_CREDIT 0x101u

struct tn_frame_head { /* one line, so that what follows is aligned */
    uint32_t bytes, kind;
    uint64_t tag, read; /* frames of the stream that the sender has read */
    uint64_t zero[5];
};
_Static_assert(sizeof(struct tn_frame_head) == TN_LINE, "the head is one line");

struct tn_frame {
    struct tn_frame *next;
    struct tn_frame_head *head;
    MPI_Request request;
    uint32_t sent, reserved0; /* sent: the request is of a send that may not have ended */
};

struct tn_frames { /* first in, first out */
    struct tn_frame *first, **end;
};

struct tn_link_peer {
    struct tn_link *link;
    uint32_t world;                 /* rank of the world; of MPI: */
    int32_t rank;                   /* -1: near */
    struct tn_frames posted, heard; /* heard: messages, to be given on without the lock */
    struct tn_link_stream *streams;
    uint32_t lost, reserved0;
};

struct tn_link {
    pthread_mutex_t lock; /* of all below, and of MPI */
    struct tn_world *world;
    const struct tn_mpi *mpi;
    int32_t tag; /* of this world's frames */
    uint32_t stopping;
    struct tn_link_peer *peer; /* by rank of the world */
    MPI_Request *first;        /* by rank: of the first frame posted */
    int32_t *done;             /* room for MPI */
    struct tn_frame *leaving;  /* sent and nobody's */
};

struct tn_link_stream {
    struct tn_link_peer *peer;
    struct tn_link_stream *next;
    uint64_t tag;
    struct tn_frame *out[TN_FRAME_WINDOW], *credit[4]; /* credits: by turns */
    uint64_t sent, filled;                             /* frames; bytes in the next one */
    uint64_t theirs;                                   /* frames of ours that they have read */
    struct tn_frames in;                               /* arrived */
    uint64_t read, told, at;                           /* frames read, as they know; bytes of the first one */
    uint64_t turns;
};

struct tn_frame *tn_frame_new(uint64_t payload); /* NULL: no memory */
void tn_frame_free(struct tn_frame *f);          /* not while MPI has it; NULL is fine */
void tn_frames_init(struct tn_frames *l);
void tn_frames_put(struct tn_frames *l, struct tn_frame *f);
struct tn_frame *tn_frames_take(struct tn_frames *l); /* NULL: empty */

tn_status tn_frames_open(struct tn_world *w, const struct tn_mpi *mpi, const int32_t *rank,
                         struct tn_link **out);
/* Lock held by who calls these. */
void tn_frames_lose(struct tn_link_peer *p);
void tn_frames_post(struct tn_link_peer *p, struct tn_frame *f);
void tn_frames_send(struct tn_link_peer *p, struct tn_frame *f);
int tn_frames_have_left(struct tn_link_peer *p, struct tn_frame *f);
/* Freed when it has left. */
void tn_frames_abandon(struct tn_link *l, struct tn_frame *f);
#endif
