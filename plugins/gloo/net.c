/* net.c - the address that other ranks reach this one by.
 *
 * TENON_IFACE=NAME names the interface. Without it: what the host told the store; else what the host's own
 * name stands for, if that is an address of an interface here and not loopback; else the first interface that
 * is up and not loopback; else loopback, which is refused later if a rank on another host would have to use
 * it. Only numbers are passed on. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>
#include "tcp.h"

int tn_address_is_loopback(const char *address)
{
    return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

static int is_usable(const struct ifaddrs *i)
{
    int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;

    if (!(i->ifa_flags & IFF_UP) || (family != AF_INET && family != AF_INET6))
        return 0; /* an address of a link only makes sense with its interface */
    return family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr);
}

static void number(const struct sockaddr *a, char *out, size_t size)
{
    socklen_t bytes = a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    if (getnameinfo(a, bytes, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
        snprintf(out, size, "?");
}

static void take(const struct ifaddrs *i, char *address, size_t size, char *interface, size_t interface_size)
{
    number(i->ifa_addr, address, size);
    snprintf(interface, interface_size, "%s", i->ifa_name);
}

static tn_status no_such(const struct ifaddrs *all, const char *name)
{
    char list[300] = "", address[64];

    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (is_usable(i)) {
            size_t at = strlen(list);
            number(i->ifa_addr, address, sizeof address);
            snprintf(list + at, sizeof list - at, "%s%s (%s)", at ? ", " : "", i->ifa_name, address);
        }
    return tn_error(TN_ERR_CONFIG,
                    TN_SELF ": TENON_IFACE=%s: there is no such interface with an address; there is %s", name,
                    *list ? list : "none");
}

/* IPv4 before IPv6. */
static const struct ifaddrs *named(const struct ifaddrs *all, const char *name)
{
    for (int family = 0; family < 2; family++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next)
            if (is_usable(i) && i->ifa_addr->sa_family == (family ? AF_INET6 : AF_INET) &&
                !strcmp(i->ifa_name, name))
                return i;
    return NULL;
}

static const struct ifaddrs *of_host(const struct ifaddrs *all)
{
    const struct addrinfo hint = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const struct ifaddrs *result = NULL;
    char host[256] = "", one[64], other[64];

    gethostname(host, sizeof host - 1);
    if (getaddrinfo(host, NULL, &hint, &found))
        return NULL;
    for (const struct addrinfo *a = found; a && !result; a = a->ai_next) {
        number(a->ai_addr, one, sizeof one);
        for (const struct ifaddrs *i = all; i && !result; i = i->ifa_next)
            if (is_usable(i) && !(i->ifa_flags & IFF_LOOPBACK)) {
                number(i->ifa_addr, other, sizeof other);
                result = strcmp(one, other) ? NULL : i;
            }
    }
    freeaddrinfo(found);
    return result;
}

static const struct ifaddrs *first(const struct ifaddrs *all, unsigned loopback)
{
    for (int family = 0; family < 2; family++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next)
            if (is_usable(i) && i->ifa_addr->sa_family == (family ? AF_INET6 : AF_INET) &&
                (i->ifa_flags & IFF_LOOPBACK) == loopback)
                return i;
    return NULL;
}

tn_status tn_address_find(char *address, size_t size, char *interface, size_t interface_size)
{
    const char *name = getenv("TENON_IFACE");
    struct ifaddrs *all = NULL;
    const struct ifaddrs *i;
    tn_status s = TN_OK;

    if (getifaddrs(&all))
        return tn_error(TN_ERR, TN_SELF ": the interfaces of this host cannot be listed: %s",
                        strerror(errno));
    if (name && *name)
        i = named(all, name);
    else if (!(i = of_host(all)) && !(i = first(all, 0)))
        i = first(all, IFF_LOOPBACK);
    if (i)
        take(i, address, size, interface, interface_size);
    else
        s = name && *name ? no_such(all, name)
                          : tn_error(TN_ERR, TN_SELF ": this host has no interface with an address");
    freeifaddrs(all);
    return s;
}

/* Is it the address of an interface here, and of which. */
int tn_address_known(const char *address, char *interface, size_t size)
{
    struct ifaddrs *all = NULL;
    char one[64] = "";
    int found = 0;

    if (getifaddrs(&all))
        return 0;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next)
        if (is_usable(i)) {
            number(i->ifa_addr, one, sizeof one);
            found = !strcmp(one, address);
            if (found)
                snprintf(interface, size, "%s", i->ifa_name);
        }
    freeifaddrs(all);
    return found;
}
