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

static void enter(uint32_t rank)
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
static const char *address(uint32_t rank)
{
    return rank % 2 ? "10.77.0.2" : "10.99.9.9";
}

static void cut_cable(void)
{
    if (shell("ip -n tenon%d-1 link set tnv1 down", made_by))
        tn_bench_stop("cannot cut the cable");
}

static const struct tn_comm_hosts two = {.enter = enter, .address = address};

int tn_hosts_up(int with_cable)
{
    int failed = 0;

    made_by = getpid();
    tn_comm_hosts = &two;
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
    tn_comm_hosts = NULL;
}

/* --- cases: even ranks on one, odd ones on the other */

/* All ranks that are left name one of the other host. */
static void cut(struct tn_rank *r)
{
    const struct tn_transfer barrier = {.op = TN_BARRIER};
    char name[2][16];
    double seconds;

    must(r, tn_comm_do(r, r->world, &barrier, 1) == TN_OK);
    r->limit = 2;
    if (r->rank == 0) {
        tn_comm_sleep(0.1);
        cut_cable();
    }
    tn_comm_sum_until_error(r, r->world, 1000, &seconds);
    must(r, seconds < r->limit + 0.1 && tn_comm_says("does not answer") && tn_comm_says("all_reduce 5"));
    for (uint32_t i = 0; i < 2; i++)
        snprintf(name[i], sizeof name[i], ": rank %u ", (r->rank + 1) % 2 + 2 * i);
    must(r, tn_comm_says(name[0]) || tn_comm_says(name[1]));
    tn_comm_dead(r, r->world);
}

static void loopback_only(struct tn_rank *r)
{
    must(r, r->api->open(r->rank, r->size, 5, &r->world) < 0 && !r->world);
    must(r, tn_comm_says("host0") && tn_comm_says("host1") && tn_comm_says("127.0.0.1") && tn_comm_says("TENON_IFACE"));
}

static void no_interface(struct tn_rank *r)
{
    setenv("TENON_IFACE", "nosuch0", 1);
    must(r, r->api->open(r->rank, r->size, 5, &r->world) < 0 && !r->world);
    must(r, tn_comm_says("TENON_IFACE=nosuch0") && tn_comm_says("lo (127.0.0.1)"));
}

/* --- a plugin that needs a launcher, without one */

static void unlaunched(struct tn_rank *r)
{
    double begin = tn_comm_now();
    uint32_t score = 1;
    char why[200] = "";

    must(r, r->api->probe(&score, why, sizeof why) == TN_OK && score == 0 && strstr(why, "mpirun"));
    must(r, r->api->open(r->rank, r->size, 5, &r->world) < 0 && !r->world);
    must(r, tn_comm_says("mpirun") && tn_comm_says("rank") && tn_comm_now() - begin < 2);
}

const struct tn_comm_case tn_comm_unlaunched[] = {
    {"without mpirun", unlaunched, 2, UNOPENED, 0},
    {0},
};

const struct tn_comm_case tn_comm_interface[] = {
    {"no such interface", no_interface, 2, UNOPENED, 0},
    {0},
};

const struct tn_comm_case tn_comm_two_hosts[] = {
    {"a cable is cut", cut, 2, NOBODY, 0},
    {0},
};

const struct tn_comm_case tn_comm_no_cable[] = {
    {"loopback across hosts", loopback_only, 2, UNOPENED, 0},
    {0},
};
