/* world_own.h - what the files of world/ share: see world.h. */
#ifndef TN_WORLD_OWN_H
#define TN_WORLD_OWN_H
#include <pthread.h>
#include "world/store.h"
#include "world/world.h"

/* What a rank says of itself when it arrives; crosses the wire. */
struct tn_world_peer {
    char host[64];
    char host_id[64]; /* differs between hosts and containers of different names */
    char address[TN_NET_TEXT], iface[IF_NAMESIZE];
    uint64_t cpu_mask;        /* hash of the CPUs that it may use */
    uint32_t cpus, host_cpus; /* that it may use; that there are */
    uint32_t node, local_rank, local_size, nodes;
    int64_t pid;
};

struct tn_world_own {
    struct tn_store_server *server; /* on rank 0 */
    struct tn_store_client *client;
    struct tn_world_peer *peer; /* by rank; after join */
    uint32_t exchanges;         /* texts that went to rank 0 or came from it, see settle.c */
    char listens[TN_NET_TEXT + 32]; /* rank 0: where its store is */
    char *trouble;              /* what this rank came with to the others */
    int agreed;                 /* all ranks know the error that the run ends with, and rank 0 says it */
    pthread_mutex_t lock;       /* all below */
    pthread_cond_t changed;
    const char *phase, *collective;
    char collective_text[72];
    uint64_t sequence;
    int64_t waits_for;
    int heartbeat;
    double phase_since, next_beat;
    int judged, abandoned;
    int aborting;       /* somebody is among the communicators, they must not be closed */
    int told;           /* the sentence was given to somebody who prints it */
    int released;       /* close got through: the process may go on */
    double failed_at;   /* 0: has not */
    char verdict[1024]; /* the sentence */
};

/* rendezvous.c */
tn_status tn_world_meet(struct tn_world *w);
/* roll.c */
tn_status tn_world_roll(struct tn_world *w,
                        double until);       /* fills own->peer and what the launcher left open */
void tn_world_say(const struct tn_world *w); /* rank 0: a line for each rank */
const char *tn_world_iface(void);            /* TENON_IFACE, NULL if it is not set */
/* settle.c */
/* An error that all ranks have, in the same words. */
tn_status tn_world_agreed(struct tn_world *w, tn_status code, const char *words);
/* watch.c */
extern const struct tn_store_events tn_world_events;
/* provide.c */
tn_status tn_world_provide(struct tn_store_client *c); /* the store, for plugins */
void tn_world_withdraw(void);
#endif
