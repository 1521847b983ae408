/* wire.h - how the fake NCCL's processes reach each other; see wire.c. */
#ifndef TN_FAKE_WIRE_H
#define TN_FAKE_WIRE_H
#include <stdint.h>
#include <stddef.h>

#define TN_WIRE_RANKS 32

struct tn_wire_head { /* of what a rank has posted; its bytes follow */
    uint32_t op, dtype, reduce, peer;
    uint64_t count, bytes;
    uint64_t place; /* among the operations of this communicator on that rank */
};
struct tn_wire_item {
    struct tn_wire_head head;
    uint64_t at; /* of its bytes in that rank's file */
};
struct tn_wire;

/* Begins to meet n ranks under this name. device: the GPU, which no two may share. */
struct tn_wire *tn_wire_open(const char *name, uint32_t n, uint32_t rank, int device);
/* 1: all are here; 0: not yet; -1: what is wrong is in *why (the wire's). */
int tn_wire_here(struct tn_wire *w, const char **why);
void tn_wire_close(struct tn_wire *w);
/* This rank ends: as all do, or in anger. */
void tn_wire_leave(struct tn_wire *w, int aborted);
int tn_wire_all_left(const struct tn_wire *w);
/* A rank that aborted, or whose process is gone though it had not left: -1 if there is none. */
int tn_wire_lost(const struct tn_wire *w);

void tn_wire_post(struct tn_wire *w, const struct tn_wire_head *h, const void *bytes);
/* Which of a rank's items: collectives, sends to this rank, receives from this rank. */
enum { TN_WIRE_ALL, TN_WIRE_SENT, TN_WIRE_WANTED };
/* Number i of those that were not taken; NULL: not posted yet. Valid until the next take. */
const struct tn_wire_item *tn_wire_peek(struct tn_wire *w, uint32_t rank, int which, uint32_t i);
void tn_wire_read(const struct tn_wire *w, uint32_t rank, const struct tn_wire_item *item, uint64_t offset,
                  void *to, uint64_t bytes);
void tn_wire_take(struct tn_wire *w, uint32_t rank, int which, uint32_t n);
#endif
