/* collective_own.h - one collective, as collective.c prepares it and transfer.c begins and ends it. */
#ifndef TN_RUN_COLLECTIVE_OWN_H
#define TN_RUN_COLLECTIVE_OWN_H
#include "run/boxes.h"
#include "run/collective.h"

struct tn_compare_ticket;
struct tn_exchange;

struct tn_collective_transfer {
    struct tn_transfer t;                        /* from and to are filled in at launch */
    uint32_t from, to;                           /* buffers, or TN_BOX_WORK */
    uint64_t from_offset, to_offset;             /* bytes in the workspace */
    uint64_t from_bytes, to_bytes;               /* that this rank gives and gets */
};

/* Where the device's memory is out of the communicator's reach: the host's copies of one transfer. */
struct tn_bounce {
    void *from, *to;                             /* of the stage; to may be from; NULL: nothing */
    void *device;                                /* where `to` goes in the end */
};

/* What is under way, one for each slot. */
struct tn_collective_request {
    struct tn_request *request;                  /* NULL: nothing is */
    uint64_t sequence;
    struct tn_compare_ticket *ticket;            /* in debug mode: what the senders say of it */
    struct tn_bounce *bounce;                    /* [n_transfer] */
};

struct tn_collective {
    struct tn_collectives *c;
    struct tn_arena *arena;
    const struct tn_node *node;
    int axis, channel;                           /* channel: the axis, or TN_AXES for its second group */
    uint32_t numbered;                           /* all ranks of the group take part: not in a move */
    struct tn_collective_request *request;       /* [slots] */
    uint32_t slots;
    int64_t ranks, coord;                        /* of the axis; this rank's place on it */
    struct tn_boxes *before, *after;
    struct tn_collective_transfer transfer[2 * TN_MAX_OUT];
    struct tn_transfer list[2 * TN_MAX_OUT];
    uint32_t n_transfer;
    uint32_t clear;                              /* bit i: output i becomes zeros */
    uint64_t clear_bytes[TN_MAX_OUT];
    uint64_t work;                               /* bytes */
    double wire;                                 /* bytes that the transfers send */
    uint64_t scratch;                            /* place of the copy kernels' own workspace in it */
    struct tn_exchange *exchange;                /* counts that are known when it begins; NULL: they are now */
    char words[160];
};

/* Sizes the requests. All transfers are known. */
void tn_transfer_prepare(struct tn_collective *k);

/* Of an exchange: its transfer; can its counts be read, once the device is known; how many elements go, at its start. */
tn_status tn_exchange_prepare(struct tn_collective *k);
tn_status tn_exchange_check(const struct tn_collective *k);
tn_status tn_exchange_count(struct tn_collective *k, const struct tn_launch *l);

/* Launches; state is the struct tn_collective. */
tn_status tn_transfer_start(void *state, const struct tn_launch *l);     /* copied into order, and begun */
tn_status tn_transfer_wait(void *state, const struct tn_launch *l);      /* ended, and copied out of order */
tn_status tn_transfer_wait_all(void *state, const struct tn_launch *l);  /* ended, what is under way of all slots */
#endif
