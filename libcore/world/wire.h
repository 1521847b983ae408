/* wire.h - what passes between a client of the store and its server. Native byte order; order tells a
 * stranger. */
#ifndef TN_WORLD_WIRE_H
#define TN_WORLD_WIRE_H
#include "world/store.h"

#define TN_WIRE_MAGIC "TENON-S1" /* both sides say it first, without waiting for the other */
#define TN_WIRE_ORDER 0x01020304u

struct tn_wire_hello { /* client */
    char magic[8];
    uint32_t order, rank;
    struct tn_store_job job;
};

#define TN_WIRE_WELCOME 1u
#define TN_WIRE_OTHER 2u   /* another run's store: go on looking */
#define TN_WIRE_REFUSED 3u /* this run's, and you have no place in it; text says why */
struct tn_wire_welcome {   /* server; its magic went before */
    uint32_t answer, reserved0;
    char text[120];
};

/* Then frames: a head, key_bytes of key (with its 0), bytes of value. */
#define TN_WIRE_SET 1u
#define TN_WIRE_GET 2u /* arg: milliseconds to wait */
#define TN_WIRE_CHECK 3u
#define TN_WIRE_ADD 4u     /* value: int64_t */
#define TN_WIRE_REPORT 5u  /* value: struct tn_report, the answer to a notice */
#define TN_WIRE_ACCUSE 6u  /* value: struct tn_report */
#define TN_WIRE_GOODBYE 7u /* value: text */
#define TN_WIRE_ANSWER 16u /* of the server: arg is a tn_status, id that of the request */
#define TN_WIRE_NOTICE 17u
#define TN_WIRE_VERDICT 18u /* value: array of struct tn_report */
#define TN_WIRE_BYE 19u
struct tn_wire_head {
    uint32_t type, key_bytes;
    uint32_t bytes;
    int32_t arg;
    uint64_t id;
};
#endif
