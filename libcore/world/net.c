/* net.c - connections and addresses: see net.h. */
#include "world/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_MS 86400000.0 /* of one poll; who waits longer asks again */

double tn_net_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int tn_net_ms(double until)
{
    double ms = ceil((until - tn_net_now()) * 1e3);

    return ms > 0 ? (int)fmin(ms, LONGEST_MS) : 0;
}

/* --- addresses */
void tn_net_text(struct tn_net_address *a)
{
    const void *raw = a->at.ss_family == AF_INET6 ? (const void *)&((struct sockaddr_in6 *)&a->at)->sin6_addr
                                                  : (const void *)&((struct sockaddr_in *)&a->at)->sin_addr;
    uint16_t port = a->at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a->at)->sin6_port
                                                : ((struct sockaddr_in *)&a->at)->sin_port;

    a->port = ntohs(port);
    if (!inet_ntop(a->at.ss_family, raw, a->text, sizeof a->text))
        snprintf(a->text, sizeof a->text, "?");
}

/* An IPv4 peer of a socket for both: ::ffff:10.0.0.1 is 10.0.0.1. */
static void unmap(struct tn_net_address *a)
{
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a->at;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six->sin6_port};

    if (a->at.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        return;
    memcpy(&four.sin_addr, six->sin6_addr.s6_addr + 12, 4);
    memset(&a->at, 0, sizeof a->at);
    memcpy(&a->at, &four, sizeof four);
    a->bytes = sizeof four;
}

static void set_port(struct tn_net_address *a, uint32_t port)
{
    if (a->at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&a->at)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&a->at)->sin_port = htons((uint16_t)port);
    a->port = port;
}

tn_status tn_net_parse(const char *text, uint32_t port, struct tn_net_address *out)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};

    *out = (struct tn_net_address){0};
    if (port > 65535)
        return tn_error(TN_ERR_CONFIG, "%u is no port, the last is 65535", port);
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        memcpy(&out->at, &four, out->bytes = sizeof four);
    else if (inet_pton(AF_INET6, text, &six.sin6_addr) == 1)
        memcpy(&out->at, &six, out->bytes = sizeof six);
    else
        return tn_error(TN_ERR_CONFIG, "\"%.64s\" is no numeric address, like 10.0.0.1 or fd00::2", text);
    set_port(out, port);
    tn_net_text(out);
    return TN_OK;
}

tn_status tn_net_resolve(const char *name, uint32_t port, uint32_t room, struct tn_net_address *out,
                         uint32_t *n)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int e;

    *n = 0;
    if (tn_net_parse(name, port, out) == TN_OK) {
        *n = 1;
        return TN_OK;
    }
    if ((e = getaddrinfo(name, NULL, &hints, &list)))
        return tn_error(TN_ERR_CONFIG, "the host name \"%.200s\" has no address: %s", name,
                        e == EAI_SYSTEM ? strerror(errno) : gai_strerror(e));
    for (struct addrinfo *a = list; a && *n < room; a = a->ai_next) {
        if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) || a->ai_addrlen > sizeof out->at)
            continue;
        struct tn_net_address *to = &out[(*n)++];
        *to = (struct tn_net_address){.bytes = a->ai_addrlen};
        memcpy(&to->at, a->ai_addr, a->ai_addrlen);
        set_port(to, port);
        tn_net_text(to);
    }
    freeaddrinfo(list);
    return *n ? TN_OK : tn_error(TN_ERR_CONFIG, "the host name \"%.200s\" has no address", name);
}

int tn_net_is_loopback(const struct tn_net_address *a)
{
    if (a->at.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)&a->at)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)&a->at)->sin_addr.s_addr) >> 24 == 127;
}

/* --- connections */
static tn_status listen_at(const struct tn_net_address *a, const char *where, uint32_t *bound, int *fd)
{
    struct tn_net_address got = {.bytes = sizeof got.at};
    int on = 1, off = 0, e;

    *fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return tn_error(TN_ERR_IO, "no socket to listen on %s: %s (errno %d)", where, strerror(errno), errno);
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->at.ss_family == AF_INET6)
        setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (!bind(*fd, (const struct sockaddr *)&a->at, a->bytes) && !listen(*fd, 4096) &&
        !getsockname(*fd, (struct sockaddr *)&got.at, &got.bytes)) {
        tn_net_text(&got);
        *bound = got.port;
        return TN_OK;
    }
    e = errno;
    tn_net_close(*fd);
    *fd = -1;
    return tn_error(TN_ERR_IO, "cannot listen on %s port %u: %s (errno %d)", where, a->port, strerror(e), e);
}

tn_status tn_net_listen(const char *address, uint32_t port, uint32_t *bound, int *fd)
{
    struct tn_net_address a;
    tn_status s;
    int probe;

    *fd = -1;
    *bound = 0;
    if (address)
        return (s = tn_net_parse(address, port, &a)) < 0 ? s : listen_at(&a, address, bound, fd);
    probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    tn_net_close(probe);
    s = tn_net_parse(probe < 0 ? "0.0.0.0" : "::", port, &a);
    return s < 0 ? s : listen_at(&a, "every address of this host,", bound, fd);
}

static void tune(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

tn_status tn_net_accept(int listener, int *fd)
{
    do
        *fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (*fd < 0 && errno == EINTR);
    if (*fd >= 0) {
        tune(*fd);
        return TN_OK;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS || errno == EBADF ||
        errno == EINVAL)
        return tn_error(TN_ERR_IO, "cannot accept a connection: %s (errno %d)", strerror(errno), errno);
    return TN_DECLINED;
}

/* TN_OK: something of events, or an error of the connection that the next call will tell. */
static tn_status wait_for(int fd, short events, double until)
{
    struct pollfd p = {.fd = fd, .events = events};

    for (;;) {
        int r = poll(&p, 1, tn_net_ms(until));
        if (r > 0)
            return TN_OK;
        if (r < 0 && errno != EINTR)
            return tn_error(TN_ERR_IO, "poll: %s", strerror(errno));
        if (!r && tn_net_now() >= until)
            return TN_ERR_TIMEOUT;
    }
}

tn_status tn_net_connect(const struct tn_net_address *to, double until, int *fd)
{
    socklen_t size = sizeof(int);
    tn_status s = TN_OK;
    int e = 0;

    *fd = socket(to->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return tn_error(TN_ERR_IO, "no socket to connect to %s: %s (errno %d)", to->text, strerror(errno),
                        errno);
    if (connect(*fd, (const struct sockaddr *)&to->at, to->bytes)) {
        e = errno;
        if (e == EINPROGRESS || e == EINTR) {
            s = wait_for(*fd, POLLOUT, until);
            if (s == TN_OK && getsockopt(*fd, SOL_SOCKET, SO_ERROR, &e, &size))
                e = errno;
        }
    }
    if (s == TN_OK && !e) {
        tune(*fd);
        return TN_OK;
    }
    tn_net_close(*fd);
    *fd = -1;
    if (s == TN_ERR_TIMEOUT)
        return tn_error(s, "%s port %u does not answer", to->text, to->port);
    return s < 0 ? s : tn_error(TN_ERR_IO, "%s port %u: %s (errno %d)", to->text, to->port, strerror(e), e);
}

static int again(int e)
{
    return e == EAGAIN || e == EWOULDBLOCK || e == EINTR;
}

tn_status tn_net_send(int fd, const void *data, size_t bytes, double until)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t k = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (k > 0) {
            done += (size_t)k;
            continue;
        }
        if (k < 0 && !again(errno))
            return tn_error(TN_ERR_IO, "the connection was lost while sending: %s (errno %d)",
                            strerror(errno), errno);
        tn_status s = wait_for(fd, POLLOUT, until);
        if (s < 0)
            return s == TN_ERR_TIMEOUT ? tn_error(s, "the other side takes no data") : s;
    }
    return TN_OK;
}

tn_status tn_net_receive(int fd, void *data, size_t bytes, double until)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t k = recv(fd, (char *)data + done, bytes - done, 0);
        if (k > 0) {
            done += (size_t)k;
            continue;
        }
        if (!k)
            return tn_error(TN_ERR_IO, "the other side closed the connection");
        if (!again(errno))
            return tn_error(TN_ERR_IO, "the connection was lost while receiving: %s (errno %d)",
                            strerror(errno), errno);
        tn_status s = wait_for(fd, POLLIN, until);
        if (s < 0)
            return s == TN_ERR_TIMEOUT ? tn_error(s, "the other side is silent") : s;
    }
    return TN_OK;
}

void tn_net_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

static tn_status side(int r, struct tn_net_address *out)
{
    if (r)
        return tn_error(TN_ERR_IO, "a connection has no address: %s", strerror(errno));
    unmap(out);
    tn_net_text(out);
    return TN_OK;
}

tn_status tn_net_near(int fd, struct tn_net_address *out)
{
    *out = (struct tn_net_address){.bytes = sizeof out->at};
    return side(getsockname(fd, (struct sockaddr *)&out->at, &out->bytes), out);
}

tn_status tn_net_far(int fd, struct tn_net_address *out)
{
    *out = (struct tn_net_address){.bytes = sizeof out->at};
    return side(getpeername(fd, (struct sockaddr *)&out->at, &out->bytes), out);
}
