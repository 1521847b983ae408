/* server.h - the parts of the store's server: the thread (server.c), connections (server_peer.c), keys and
 * waits (server_keys.c), who is at fault (server_trial.c). All of it runs on the server's one thread. */
#ifndef TN_WORLD_SERVER_H
#define TN_WORLD_SERVER_H
#include <pthread.h>
#include "world/wire.h"

#define SERVER_STRANGERS 256u     /* connections that have not shaken hands */
#define SERVER_WAITS 256u         /* of one rank */
#define SERVER_BEHIND (64u << 20) /* bytes that a rank may leave unread */
#define SERVER_BUCKETS 4096u

struct entry { /* a key */
    struct entry *next;
    uint32_t bytes, key_bytes;
    char *value; /* owned */
    char key[];
};

struct waiting { /* a get whose key is not there yet */
    struct waiting *next;
    struct peer *peer;
    uint64_t id;
    double until;
    char key[TN_STORE_KEY];
};

struct peer { /* a connection */
    int fd;
    uint32_t rank;  /* TN_NOBODY before the handshake */
    double until;   /* of the handshake */
    char *in, *out; /* owned */
    size_t in_used, in_room, out_at, out_used, out_room;
    uint32_t waits;
    int gone; /* to be taken away in this round */
    int leaving, answered;
    struct tn_report report; /* what it said, if answered */
    char farewell[sizeof((struct tn_report *)0)->text];
};

struct tn_store_server {
    pthread_t thread;
    int listener, wake[2];
    struct tn_store_job job;
    struct peer **peer; /* all connections */
    uint32_t n_peer, room_peer, strangers;
    uint32_t joined, leaving; /* ranks that shook hands, ever; that said goodbye */
    struct peer **of_rank;    /* NULL: not here, or gone */
    uint8_t *was_here;        /* by rank */
    struct entry *bucket[SERVER_BUCKETS];
    struct waiting *waiting;
    size_t stored; /* bytes of values */
    /* the trial */
    int on_trial, decided;
    double trial_until;
    struct tn_report *dead;    /* by rank; state ALIVE: is not */
    struct tn_report *verdict; /* n_verdict of them */
    uint32_t n_verdict;
    /* the end */
    pthread_mutex_t lock;
    int stop;
    double stop_until;
};

/* server_peer.c */
void server_greet(struct tn_store_server *s, struct peer *p);
void server_take_in(struct tn_store_server *s, struct peer *p);
void server_flush(struct tn_store_server *s, struct peer *p);
void server_drop(struct tn_store_server *s, struct peer *p, const char *how);
void server_send(struct tn_store_server *s, struct peer *p, const struct tn_wire_head *h, const void *value);
/* server_keys.c */
void server_request(struct tn_store_server *s, struct peer *p, const struct tn_wire_head *h, const char *key,
                    const char *value);
void server_forget(struct tn_store_server *s, struct peer *p); /* its waits */
double server_late(struct tn_store_server *s, double now);     /* answers waits that are over; next time */
void server_keys_free(struct tn_store_server *s);
/* server_trial.c */
void server_lost(struct tn_store_server *s, struct peer *p, const char *how);
void server_reported(struct tn_store_server *s, struct peer *p, const struct tn_report *r, int accuses);
void server_goodbye(struct tn_store_server *s, struct peer *p, const char *text, size_t bytes);
double server_trial(struct tn_store_server *s, double now);  /* decides when it is time; next time */
void server_tell(struct tn_store_server *s, struct peer *p); /* a verdict that fell before it came */
#endif
