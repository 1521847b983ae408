/* @NAME@ - a communicator: TCP, one connection for each pair of ranks of a group.
 *
 * This file says how ranks meet and how bytes move; tenon/kit_comm.h makes all operations of it. To carry them over
 * another fabric replace meet, push, pull, cut and close, and nothing else.
 *
 * Ranks meet through the store of the run: each listens at its own address and writes address and port there, under a
 * key of the group; it connects to the ranks before it in the list and takes in those behind it. */
#include <tenon/kit_comm.h>

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESS 128                              /* "address port" */

struct tn_kit_link {
    int fd;
};

static tn_status link_new(int fd, struct tn_kit_link **out)
{
    const int yes = 1;

    *out = (struct tn_kit_link *)calloc(1, sizeof **out);
    if (!*out) {
        close(fd);
        return tn_error(TN_ERR_MEMORY, "@NAME@: no memory for a connection");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (*out)->fd = fd;
    return TN_OK;
}

/* A socket that is bound to a numeric address, or connected with it; -1 and errno. */
static int socket_at(const char *address, const char *port, int (*attach)(int, const struct sockaddr *, socklen_t))
{
    struct addrinfo how, *found = NULL;
    int fd = -1;

    memset(&how, 0, sizeof how);
    how.ai_socktype = SOCK_STREAM, how.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    if (getaddrinfo(address, port, &how, &found)) {
        errno = EINVAL;
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && attach(fd, found->ai_addr, found->ai_addrlen)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* Listens at this rank's address, as the host knows it, and says in the store where. *out: the socket, -1 after an error. */
static tn_status publish(const struct tn_store *store, const char *group, uint32_t rank, uint32_t n, int *out)
{
    char key[128], address[80], text[ADDRESS], port[16];
    uint64_t bytes = sizeof address - 1;
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;

    memset(address, 0, sizeof address);
    snprintf(key, sizeof key, "tenon/address/%u", (unsigned)rank);
    if (store->get(key, address, &bytes, 0.01) != TN_OK)
        snprintf(address, sizeof address, "127.0.0.1");
    *out = socket_at(address, "0", bind);
    if (*out < 0 || listen(*out, (int)n) || getsockname(*out, (struct sockaddr *)&bound, &size) ||
        getnameinfo((struct sockaddr *)&bound, size, NULL, 0, port, sizeof port, NI_NUMERICSERV))
        return tn_error(TN_ERR_IO, "@NAME@: rank %u cannot listen at %s: %s", (unsigned)rank, address, strerror(errno));
    snprintf(key, sizeof key, "@NAME@/%s/%u", group, (unsigned)rank);
    snprintf(text, sizeof text, "%s %s", address, port);
    return store->set(key, text, strlen(text) + 1);
}

/* To a rank before this one; the first word tells it who comes. */
static tn_status connect_to(const struct tn_store *store, const char *group, uint32_t rank, uint32_t me, double end,
                            struct tn_kit_link **out)
{
    char key[128], text[ADDRESS], *port;
    uint64_t bytes = sizeof text - 1;
    tn_status s;
    int fd;

    memset(text, 0, sizeof text);
    snprintf(key, sizeof key, "@NAME@/%s/%u", group, (unsigned)rank);
    s = store->get(key, text, &bytes, end - tn_kit_now());
    if (s != TN_OK)
        return tn_error(s < 0 ? s : TN_ERR_TIMEOUT, "@NAME@: rank %u does not say where it listens", (unsigned)rank);
    port = strchr(text, ' ');
    if (port)
        *port++ = 0;
    fd = socket_at(text, port ? port : "", connect);
    if (fd < 0 || send(fd, &me, sizeof me, MSG_NOSIGNAL) != (ssize_t)sizeof me) {
        s = tn_error(TN_ERR_IO, "@NAME@: rank %u at %s is not to be reached: %s", (unsigned)rank, text, strerror(errno));
        if (fd >= 0)
            close(fd);
        return s;
    }
    return link_new(fd, out);
}

static uint32_t first_missing(struct tn_kit_link *const *link, uint32_t n, uint32_t me)
{
    uint32_t i = me + 1;

    while (i < n && link[i])
        i++;
    return i;
}

/* Those behind this one, in whatever order they come. What is not one of them is sent away. */
static tn_status take_in(int fd, const uint32_t *ranks, uint32_t n, uint32_t me, double end, struct tn_kit_link **link)
{
    while (first_missing(link, n, me) < n) {
        struct pollfd p = {fd, POLLIN, 0};
        const double left = end - tn_kit_now();
        uint32_t who = n;
        int peer;

        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0)
            return tn_error(TN_ERR_TIMEOUT, "@NAME@: rank %u did not come", (unsigned)ranks[first_missing(link, n, me)]);
        peer = accept(fd, NULL, NULL);
        p.fd = peer;
        if (peer < 0)
            continue;
        if (poll(&p, 1, 1000) <= 0 || recv(peer, &who, sizeof who, MSG_WAITALL) != (ssize_t)sizeof who || who <= me ||
            who >= n || link[who]) {
            close(peer);
            continue;
        }
        if (link_new(peer, &link[who]) < 0)
            return TN_ERR_MEMORY;
    }
    return TN_OK;
}

static tn_status meet(const char *group, const uint32_t *ranks, uint32_t n, uint32_t me, double seconds,
                      struct tn_kit_link **link)
{
    const struct tn_store *store = tn_kit_store_of_run();
    const double end = tn_kit_now() + seconds;
    tn_status s;
    int fd = -1;

    if (!store)
        return tn_error(TN_ERR, "@NAME@: the host has no store, and without one ranks do not find each other");
    s = publish(store, group, ranks[me], n, &fd);
    for (uint32_t i = 0; i < me && s >= 0; i++)
        s = connect_to(store, group, ranks[i], me, end, &link[i]);
    if (s >= 0)
        s = take_in(fd, ranks, n, me, end, link);
    if (fd >= 0)
        close(fd);
    return s;
}

/* --- bytes */

static int64_t moved(ssize_t k)
{
    if (k > 0)
        return k;
    return k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
}

static int64_t push(struct tn_kit_link *l, const void *data, uint64_t bytes)
{
    return moved(send(l->fd, data, (size_t)bytes, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static int64_t pull(struct tn_kit_link *l, void *data, uint64_t bytes)
{
    return moved(recv(l->fd, data, (size_t)bytes, MSG_DONTWAIT));
}

static void cut(struct tn_kit_link *l)
{
    shutdown(l->fd, SHUT_RDWR);
}

static void close_link(struct tn_kit_link *l)
{
    close(l->fd);
    free(l);
}

/* --- the tables */

static const struct tn_kit_wire wire = {
    .name = "@NAME@",
    .meet = meet,
    .push = push,
    .pull = pull,
    .cut = cut,
    .close = close_link,
};

static tn_status open_world(uint32_t rank, uint32_t size, double seconds, struct tn_comm **world)
{
    return tn_kit_comm_open(&wire, rank, size, seconds, world);
}

/* Taken where somebody names it: gloo is faster. */
static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 2;
    snprintf(why, (size_t)why_size, "TCP, a connection for each pair of ranks");
    return TN_OK;
}

static const char *const devices[] = {"cpu", NULL};

static const struct tn_comm_api comm = TN_KIT_COMM(devices, probe, open_world);

TN_PLUGIN("@NAME@", "0.1", "all operations over TCP", TN_COMM_ID, &comm);
