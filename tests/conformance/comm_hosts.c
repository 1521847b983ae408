/* comm_hosts.c - two hosts on one machine: network namespaces joined by a cable, each with a host name of its
 * own.
 *
 * Needs root and ip of iproute2; where they are not, the cases for two hosts are left out. */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>
#include "comm.h"

static int made_by; /* the process that has to take them away again */

__attribute__((format(printf, 1, 2))) static int shell(const char *fmt, ...)
{
    char command[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    return system(command);
}

static void down(void)
{
    if (getpid() == made_by)
        for (int i = 0; i < 2; i++)
            (void)!shell("ip netns del tenon%d-%d 2>/dev/null", made_by, i);
}

int tn_hosts_up(int with_cable)
{
    int failed = 0;

    made_by = getpid();
    atexit(down);
    for (int i = 0; i < 2; i++)
        failed |= shell("ip netns add tenon%d-%d 2>/dev/null && ip -n tenon%d-%d link set lo up", made_by, i,
                        made_by, i);
    if (failed || !with_cable)
        return !failed;
    failed =
        shell("ip link add tnv0 netns tenon%d-0 type veth peer name tnv1 netns tenon%d-1", made_by, made_by);
    /* An address that leads nowhere comes first. */
    failed |= shell("ip -n tenon%d-1 addr add 10.76.0.2/24 dev tnv1", made_by);
    for (int i = 0; i < 2; i++)
        failed |=
            shell("ip -n tenon%d-%d addr add 10.77.0.%d/24 dev tnv%d && ip -n tenon%d-%d link set tnv%d up",
                  made_by, i, i + 1, i, made_by, i, i);
    return !failed;
}

void tn_hosts_down(void)
{
    down();
    made_by = 0;
}

int tn_hosts_are_up(void)
{
    return made_by != 0;
}

void tn_hosts_enter(uint32_t rank)
{
    char path[64], name[16];
    int fd;

    snprintf(path, sizeof path, "/run/netns/tenon%d-%u", made_by, rank % 2);
    snprintf(name, sizeof name, "host%u", rank % 2);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) || unshare(CLONE_NEWUTS) || sethostname(name, strlen(name)))
        tn_bench_stop("cannot enter %s", path);
    close(fd);
}

/* What the host's store knows of a rank's address: on the first host something wrong, on the second the right
 * one. */
const char *tn_hosts_address(uint32_t rank)
{
    return rank % 2 ? "10.77.0.2" : "10.99.9.9";
}

void tn_hosts_cut(void)
{
    if (shell("ip -n tenon%d-1 link set tnv1 down", made_by))
        tn_bench_stop("cannot cut the cable");
}
