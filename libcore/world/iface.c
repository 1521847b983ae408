/* iface.c - the interfaces of this host, and which one leads where: see net.h.
 *
 * The route is asked of the system by connecting a UDP socket, which sends nothing. Host names are no help
 * here: many hosts resolve their own name to 127.0.1.1. */
#include "world/net.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#define IFACES 64u

/* Can another process be told this address? */
static int is_usable(const struct ifaddrs *i)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
        return 0;
    if (i->ifa_addr->sa_family == AF_INET6)
        return !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
    return i->ifa_addr->sa_family == AF_INET;
}

static void take(const struct ifaddrs *i, struct tn_net_iface *out)
{
    int six = i->ifa_addr->sa_family == AF_INET6;

    memset(out, 0, sizeof *out);
    out->address.bytes = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    memcpy(&out->address.at, i->ifa_addr, out->address.bytes);
    tn_net_text(&out->address);
    snprintf(out->name, sizeof out->name, "%s", i->ifa_name);
}

/* As the system lists them. */
static uint32_t list_all(uint32_t room, struct tn_net_iface *out)
{
    struct ifaddrs *list = NULL;
    uint32_t n = 0;

    if (getifaddrs(&list))
        return 0;
    for (const struct ifaddrs *i = list; i && n < room; i = i->ifa_next)
        if (is_usable(i))
            take(i, &out[n++]);
    freeifaddrs(list);
    return n;
}

static int route_source(const struct tn_net_address *to, struct tn_net_address *out)
{
    int fd = socket(to->at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), e = 0;

    if (fd < 0)
        return errno;
    if (connect(fd, (const struct sockaddr *)&to->at, to->bytes))
        e = errno;
    else if (tn_net_near(fd, out) < 0)
        e = EADDRNOTAVAIL;
    close(fd);
    return e;
}

void tn_net_iface_name(const struct tn_net_address *a, char out[IF_NAMESIZE])
{
    struct tn_net_iface list[IFACES];
    uint32_t n = list_all(IFACES, list);

    snprintf(out, IF_NAMESIZE, "?");
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(list[i].address.text, a->text))
            snprintf(out, IF_NAMESIZE, "%s", list[i].name);
}

/* Smaller is better: default route, IPv4, IPv6, loopback. */
static int rank_of(const struct tn_net_iface *i, const char *by_default)
{
    if (tn_net_is_loopback(&i->address))
        return 3;
    if (!strcmp(i->address.text, by_default))
        return 0;
    return i->address.at.ss_family == AF_INET6 ? 2 : 1;
}

uint32_t tn_net_ifaces(uint32_t room, struct tn_net_iface *out)
{
    struct tn_net_iface list[IFACES];
    struct tn_net_address far, near = {0};
    uint32_t n = list_all(IFACES, list), k = 0;

    /* an address for documents: it is nobody's, so the default route leads there, if there is one */
    if (tn_net_parse("192.0.2.1", 9, &far) == TN_OK && route_source(&far, &near))
        near.text[0] = 0;
    for (int rank = 0; rank <= 3; rank++)
        for (uint32_t i = 0; i < n && k < room; i++)
            if (rank_of(&list[i], near.text) == rank)
                out[k++] = list[i];
    return k;
}

tn_status tn_net_iface(const char *name, struct tn_net_iface *out)
{
    struct tn_net_iface list[IFACES];
    uint32_t n = tn_net_ifaces(IFACES, list);
    char names[256] = "";
    size_t k = 0;

    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) {
            *out = list[i];
            return TN_OK;
        }
    for (uint32_t i = 0; i < n && k < sizeof names; i++)
        k += (size_t)snprintf(names + k, sizeof names - k, "%s%s (%s)", k ? ", " : "", list[i].name,
                              list[i].address.text);
    return tn_error(TN_ERR_CONFIG, "no interface %.40s with an address is up on this host; there are: %s",
                    name, *names ? names : "none");
}

tn_status tn_net_route(const struct tn_net_address *to, struct tn_net_iface *out)
{
    int e;

    memset(out, 0, sizeof *out);
    if ((e = route_source(to, &out->address)))
        return tn_error(TN_ERR_IO, "no route from this host to %s: %s (errno %d)", to->text, strerror(e), e);
    tn_net_iface_name(&out->address, out->name);
    return TN_OK;
}
