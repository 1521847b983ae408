/* store.h - what ranks tell each other before and beside their communicator, and who is alive.
 *
 * Rank 0 has the one server, a thread; every rank, 0 too, has one client: one connection and one thread that
 * reads it. Keys are written once or again by anybody, and waited for with a limit. The connections are the
 * monitor:
 *
 *   - a connection that ends without a goodbye, a rank that says that it failed, or one that leaves before
 * the others begins a trial. The server tells all, each client's thread answers at once what its rank is
 * doing (it answers while the rank computes, and not while the process is stopped), and when all have
 * answered, at the latest after TN_STORE_TRIAL seconds, everybody gets the same verdict. It comes once.
 *   - after the verdict every wait and every new request fails.
 *
 * A server takes in only ranks of its own run (job, and nonce where the address was published): a foreign
 * service at the same port, or the store of another run, is recognised by the handshake. Sizes are limited
 * and half a message delays nobody; what breaks the rules is disconnected. */
#ifndef TN_WORLD_STORE_H
#define TN_WORLD_STORE_H
#include "world/net.h"

#define TN_STORE_KEY 256u           /* bytes of a key at most, with its 0 */
#define TN_STORE_VALUE (16u << 20)  /* bytes of a value at most */
#define TN_STORE_TOTAL (512u << 20) /* bytes of all values */
#define TN_STORE_TRIAL 0.5          /* seconds in which ranks must answer */
#define TN_STORE_SHAKE 2.0          /* seconds that a handshake may take */

struct tn_store_job {
    uint32_t size, reserved0; /* ranks */
    uint64_t nonce;           /* 0: the launcher gave the address, so there is none */
    char job[64];
};

/* What a rank was doing at the time of a failure, in its own words. Crosses the wire. */
#define TN_RANK_ALIVE 0u
#define TN_RANK_DEAD 1u   /* its connection ended without a goodbye */
#define TN_RANK_SILENT 2u /* connected, but did not answer */
#define TN_RANK_LEFT 3u   /* said goodbye, while others needed it */
#define TN_NOBODY UINT32_MAX
struct tn_report {
    uint32_t rank, state;
    uint32_t failed;                /* 1: it began the trial, or would have */
    uint32_t peer;                  /* whom it waited for, TN_NOBODY: it does not say */
    uint64_t sequence;              /* of the collective */
    char phase[24], collective[72]; /* collective "": in none */
    char text[256];                 /* its own trouble, "": none but waiting */
};

#define TN_VERDICT_MOST 64u /* reports: those at fault first, then those that failed, then the slowest */

/* --- the server */
struct tn_store_server;
/* Takes the listening socket, in any case. Returns owned, its thread running. */
tn_status tn_store_serve(int listener, const struct tn_store_job *job, struct tn_store_server **out);
/* Takes; ends when all connections are gone, after `seconds` in any case. NULL is fine. */
void tn_store_end(struct tn_store_server *s, double seconds);

/* --- a client. Any thread may call, several at once. */
struct tn_store_client;
struct tn_store_events { /* called by the client's thread; quick, but for over */
    void *arg;
    void (*describe)(void *arg, struct tn_report *out); /* all but rank and state */
    void (*verdict)(void *arg, const struct tn_report *list,
                    uint32_t n); /* before anything that waits is woken */
    void (*over)(void *arg);     /* after that, and may take its time; may be NULL */
    void (*tick)(void *arg);     /* about once a second; may be NULL */
    double patience;             /* seconds for an answer that waits for no other rank; 0: 60 */
};
/* TN_DECLINED: what answers there is not the store of this run, the reason is recorded. Returns owned. */
tn_status tn_store_connect(const struct tn_net_address *to, const struct tn_store_job *job, uint32_t rank,
                           const struct tn_store_events *events, double until, struct tn_store_client **out);
tn_status tn_store_set(struct tn_store_client *c, const char *key, const void *data, uint64_t bytes);
/* Waits until the key is there. *bytes: room in, size out; a value that does not fit is an error,
 * TN_ERR_SHAPE. */
tn_status tn_store_get(struct tn_store_client *c, const char *key, void *data, uint64_t *bytes,
                       double seconds);
/* The same of any size; *data owned by the caller (free), with a 0 behind it. */
tn_status tn_store_take(struct tn_store_client *c, const char *key, char **data, uint64_t *bytes,
                        double seconds);
/* Adds to a counter, which begins at 0; *out is the sum. */
tn_status tn_store_add(struct tn_store_client *c, const char *key, int64_t amount, int64_t *out);
/* Is the key there? TN_OK or TN_DECLINED. */
tn_status tn_store_check(struct tn_store_client *c, const char *key);
/* Begins a trial, with this report; returns at once. */
tn_status tn_store_accuse(struct tn_store_client *c, const struct tn_report *report);
/* Waits until all ranks have said it too. text: the trouble that the rank leaves with, or "". */
tn_status tn_store_goodbye(struct tn_store_client *c, const char *text, double seconds);
tn_status tn_store_near(const struct tn_store_client *c, struct tn_net_address *out); /* own side */
void tn_store_disconnect(struct tn_store_client *c); /* takes; NULL is fine. Not from its thread */
#endif
