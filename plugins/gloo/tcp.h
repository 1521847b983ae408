/* tcp.h - how Gloo's pairs are opened; what is done with them afterwards is link.h. For C and C++. */
#ifndef TN_GLOO_TCP_H
#define TN_GLOO_TCP_H
#include "streams/link.h"

#ifdef __cplusplus
extern "C" {
#endif
struct tn_tcp_user { /* called in the threads that wait for frames */
    void *arg;
    void (*arrived)(void *arg); /* bytes to read, room to write */
    void (*control)(void *arg, uint32_t peer, uint32_t kind, const void *data, uint32_t bytes);
    void (*lost)(void *arg, uint32_t peer);
};

#define TN_TCP_ADDRESS 256u /* bytes that an address takes at most */

tn_status tn_tcp_open(const char *address, uint32_t rank, uint32_t size, double seconds,
                      const struct tn_tcp_user *user, struct tn_link **out);
/* This rank's end of the pair with a peer, for the peer to connect to. */
tn_status tn_tcp_listen(struct tn_link *t, uint32_t peer, void *address, uint32_t *bytes);
tn_status tn_tcp_connect(struct tn_link *t, uint32_t peer, const void *address, uint32_t bytes);

/* net.c: the address to give to the others, and its interface; loopback if there is nothing else */
tn_status tn_address_find(char *address, size_t size, char *interface, size_t interface_size);
int tn_address_is_loopback(const char *address);
int tn_address_known(const char *address, char *interface, size_t size);
#ifdef __cplusplus
}
#endif
#endif
