/* net.h - TCP with a deadline on every wait, and which address is whose.
 *
 * Deadlines are points in time on tn_net_now's clock, so that a loop of waits shares one. Every function
 * comes back by its deadline; only tn_net_resolve may take as long as the system's resolver does. Sockets are
 * not blocking, close on exec, and send small messages at once; a peer that left is an error, never SIGPIPE.
 * Any thread. */
#ifndef TN_WORLD_NET_H
#define TN_WORLD_NET_H
#include <net/if.h>
#include <sys/socket.h>
#include <tenon/abi.h>

#define TN_NET_TEXT 64u
struct tn_net_address {
    struct sockaddr_storage at;
    uint32_t bytes, port;
    char text[TN_NET_TEXT]; /* numeric, without the port */
};

double tn_net_now(void);     /* seconds, never goes back */
int tn_net_ms(double until); /* what is left, for poll: 0 to a day, rounded up */

void tn_net_text(struct tn_net_address *a); /* fills text and port from at */
/* Numeric only: "10.0.0.1", "fd00::2". */
tn_status tn_net_parse(const char *text, uint32_t port, struct tn_net_address *out);
/* A name or a number; at most room addresses. No address at all is an error. */
tn_status tn_net_resolve(const char *name, uint32_t port, uint32_t room, struct tn_net_address *out,
                         uint32_t *n);
int tn_net_is_loopback(const struct tn_net_address *a);

/* address NULL: every one of this host, IPv6 too where there is any. port 0: a free one. The error names
 * address, port and errno. */
tn_status tn_net_listen(const char *address, uint32_t port, uint32_t *bound, int *fd);
/* TN_DECLINED: nobody waits, or the peer is gone again. */
tn_status tn_net_accept(int listener, int *fd);
tn_status tn_net_connect(const struct tn_net_address *to, double until, int *fd);
/* All bytes or an error; TN_ERR_TIMEOUT at the deadline. */
tn_status tn_net_send(int fd, const void *data, size_t bytes, double until);
tn_status tn_net_receive(int fd, void *data, size_t bytes, double until);
void tn_net_close(int fd); /* -1 is fine */

/* The own side and the other side of a connection. */
tn_status tn_net_near(int fd, struct tn_net_address *out);
tn_status tn_net_far(int fd, struct tn_net_address *out);

/* --- interfaces (iface.c) */
struct tn_net_iface {
    char name[IF_NAMESIZE];
    struct tn_net_address address;
};
/* Addresses of interfaces that are up, IPv4 before IPv6, the one of the default route first and loopback
 * last; no link-local ones, which mean nothing to another host. Returns how many. */
uint32_t tn_net_ifaces(uint32_t room, struct tn_net_iface *out);
/* The address of the interface of this name, by TENON_IFACE for example; the error lists those that are
 * there. */
tn_status tn_net_iface(const char *name, struct tn_net_iface *out);
/* By which of our addresses the system reaches `to`. */
tn_status tn_net_route(const struct tn_net_address *to, struct tn_net_iface *out);
/* The name of the interface that has this address; "?" if none. */
void tn_net_iface_name(const struct tn_net_address *a, char out[IF_NAMESIZE]);
#endif
