/* bootstrap.h - who am I, where are the others. A launcher's view, nothing more: the host has the one store. */
#ifndef TENON_BOOTSTRAP_H
#define TENON_BOOTSTRAP_H
#include <tenon/abi.h>

struct tn_place {                                /* the host sets struct_size */
    uint32_t struct_size;
    /* This process among all, among those of its host, and its host among the hosts; each from 0. */
    uint32_t rank, size, local_rank, local_size, node, nodes;
    uint32_t port;                               /* 0: unknown; then publish is used */
    char address[256];                           /* of rank 0; numeric or a name; "" unknown */
    char job[64];                                /* differs between runs and restarts: the store takes in no other */
    uint32_t ports;                              /* from port on, that may be meant: somebody else may own some; 0 is 1 */
    uint32_t reserved0;
};
/* nodes or local_size 0: the launcher does not say; the host counts them when the ranks have met. */

#define TN_BOOTSTRAP_ID "tenon.bootstrap/1"
struct tn_bootstrap {
    uint32_t struct_size;
    uint32_t reserved0;
    /* Is this process started by that launcher? Reads, changes nothing; any thread, before everything. score 0: no, and
     * why says it. Variables that are there and make no sense are TN_ERR_CONFIG. */
    tn_status (*probe)(uint32_t *score, char *why, uint64_t why_size);
    /* Fills all but struct_size; 0 and "" are "the launcher does not say". TN_ERR_CONFIG names the variable that is
     * missing or makes no sense. Main thread, once. */
    tn_status (*locate)(struct tn_place *out);
    /* Used where locate gives no port. Rank 0 gives its address (once), out is not used; the others get it into
     * out, in at most `seconds`, and may ask again where it turns out to be of an older run. NULL where the
     * launcher's variables suffice. */
    tn_status (*publish)(const char *address, char *out, uint64_t out_size, double seconds);
    void (*leave)(void);                         /* at the end, after an error too; main thread; may be NULL */
};

/* The store of the run, for plugins: host->interface(TN_STORE_ID), once all ranks have met; NULL in a world of one.
 * Any thread. Keys of up to 255 characters; those that begin with "tenon/" belong to the host, and may be read:
 * "tenon/address/R" is the numeric address of rank R, as text without an end. Every wait has a limit, and ends
 * early when a rank fails. */
#define TN_STORE_ID "tenon.store/1"
struct tn_store {
    uint32_t struct_size;
    uint32_t reserved0;
    /* Whoever waits for the key gets it. Copied; set again it is replaced. */
    tn_status (*set)(const char *key, const void *data, uint64_t bytes);
    /* Waits for the key. *bytes: room in, size out. TN_ERR_TIMEOUT, and TN_ERR_SHAPE where there is too little room. */
    tn_status (*get)(const char *key, void *data, uint64_t *bytes, double seconds);
};
#endif
