/* client.h - the two halves of a rank's side of the store: the thread (client.c), requests (client_ask.c). */
#ifndef TN_WORLD_CLIENT_H
#define TN_WORLD_CLIENT_H
#include <pthread.h>
#include "world/wire.h"

struct request {
    struct request *next;
    uint64_t id;
    int done;
    tn_status status;
    char *value; /* owned, with a 0 behind it */
    uint64_t bytes;
};

struct tn_store_client {
    int fd;
    uint32_t rank;
    pthread_t thread;
    struct tn_store_events events;
    pthread_mutex_t sending; /* a message is sent as one */
    pthread_mutex_t lock;    /* all below */
    pthread_cond_t changed;
    struct request *first;
    uint64_t next_id;
    int bye, stop;
    int judged; /* a verdict came, or the server is gone */
    char why[200];
};

/* A whole message, or an end of the connection. Any thread. */
tn_status client_send(struct tn_store_client *c, const struct tn_wire_head *h, const char *key,
                      const void *value);
#endif
