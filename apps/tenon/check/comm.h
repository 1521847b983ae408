/* comm.h - what every communicator has to do, tried with real processes.
 *
 * A case is a function that each of n forked processes runs as one rank. Each loads the plugin itself, finds
 * the others through a store of files, opens the world, and ends with 0 if all was right. Values are small
 * whole numbers, exact in every dtype, and behind each result lies an element that must stay as it was. */
#ifndef TN_COMM_TEST_H
#define TN_COMM_TEST_H
#include <tenon/comm.h>
#include <tenon/device.h>
#include "bench.h"
#include "number.h"

struct tn_rank {
    const struct tn_comm_api *api;               /* what cases call: the plugin's, or comm_through.c's before it */
    struct tn_comm *world;
    uint32_t rank, size;
    double limit; /* seconds: of each wait, and of opening */
    const struct tn_comm_api *own;               /* the plugin's */
    /* Its device, where the communicator takes the memory of one. */
    const struct tn_device_api *device_api;
    const struct tn_device_capture *capture;
    struct tn_device *device;
};

/* How a case's memory gets to the communicator; comm_through.c says what they are. */
enum tn_comm_way { TN_COMM_HOST, TN_COMM_WAIT, TN_COMM_STREAM, TN_COMM_RECORD };
extern enum tn_comm_way tn_comm_way;
extern const struct tn_comm_api tn_comm_through;
void tn_comm_through_as(const struct tn_rank *r);            /* whose calls those of this thread are */

/* What every rank does of a device before it opens the world: comm_device.c. NULL: there is none. */
struct tn_comm_device {
    void (*open)(struct tn_rank *r, uint32_t local_rank);    /* main thread; a mistake ends the process */
    void (*enter)(struct tn_rank *r);            /* before each case, in the rank's thread: r->api by the way */
    void (*close)(struct tn_rank *r);
};
extern const struct tn_comm_device *tn_comm_device;

#define NOBODY (-1)
#define UNOPENED 98       /* the case opens the world itself, */
#define LAST_UNSTARTED 99 /* and the last rank is not there */

struct tn_comm_case {
    const char *name;
    void (*run)(struct tn_rank *r);
    uint32_t least;     /* ranks that it needs */
    int32_t rank_fails; /* the rank that is killed or stopped by the case, or one of NOBODY, ... */
    uint32_t flags;     /* TN_COMM_QUALITY, ... */
};
#define TN_COMM_QUALITY 1u      /* more than tenon/comm.h asks for */
#define TN_COMM_HOST_ONLY 2u    /* not by streams, which are the executor's thread's */
#define TN_COMM_NOT_RECORDED 4u /* one transfer waits for another, which one recording after the other cannot */

/* 1: sentences and times must be those of this project's own communicators (plugins/streams). 0: a sentence names the
 * rank, and a limit may be passed by a second. */
extern int tn_comm_words;

extern const struct tn_comm_case tn_comm_values[];    /* what is right; end with a NULL name */
extern const struct tn_comm_case tn_comm_failures[];  /* what goes wrong */
extern const struct tn_comm_case tn_comm_streams[];   /* of streams: where there is a device */
extern const struct tn_comm_case tn_comm_unlaunched[]; /* what needs mpirun, without it */
extern const struct tn_comm_case tn_comm_two_hosts[]; /* between tn_hosts_up and tn_hosts_down */
extern const struct tn_comm_case tn_comm_no_cable[];
extern const struct tn_comm_case tn_comm_interface[];

/* The same on processes that mpirun starts, which each run the cases from..to of a list, so that MPI begins once for
 * them. name is what tn_comm_list knows the list by. Returns how many cases have failed. */
int tn_comm_launch(const char *plugin, const char *name, uint32_t n, uint32_t from, uint32_t to);
/* main of such a process */
int tn_comm_launched(char **argv);
const struct tn_comm_case *tn_comm_list(const char *name);

/* Runs a case on n ranks, prints a line if it fails; returns whether it did. In processes, or in threads of this one;
 * then whatever is wrong ends the process. */
int tn_comm_run(const char *plugin, const struct tn_comm_case *c, uint32_t n);
int tn_comm_run_threads(const char *plugin, const struct tn_comm_case *c, uint32_t n);
/* As tn_comm_run, for one that returns its end itself: *status by rank, as wait has it. Whether all ended in time. */
int tn_comm_fork(const char *plugin, const struct tn_comm_case *c, uint32_t n, int *status);

/* --- for cases; a mistake is printed with rank and line, and ends the process */
__attribute__((format(printf, 3, 4), noreturn)) void tn_comm_wrong(const struct tn_rank *r, int line,
                                                                   const char *fmt, ...);
#define must(r, x) ((x) ? (void)0 : tn_comm_wrong(r, __LINE__, "%s (%s)", #x, tn_bench_said()))

/* Hosts that ranks are put on: NULL where all are on this one. */
struct tn_comm_hosts {
    void (*enter)(uint32_t rank);                /* by the rank, before anything else */
    const char *(*address)(uint32_t rank);       /* what the host's store knows */
};
extern const struct tn_comm_hosts *tn_comm_hosts;
/* comm_hosts.c: two of them by turns. Whether it could be done. */
int tn_hosts_up(int with_cable);
void tn_hosts_down(void);

/* comm.c: where the store of files lies; where folders for such are made; what a rank does */
void tn_comm_folder(const char *path);
void tn_comm_root(const char *path);
void tn_comm_remove(const char *path);           /* a folder and all in it */
const struct tn_plugin *tn_comm_load(struct tn_rank *r, const char *plugin);
void tn_comm_case_run(struct tn_rank *r, const struct tn_comm_case *c);
double tn_comm_now(void);
void tn_comm_sleep(double seconds);
int tn_comm_says(const char *text);              /* does the last error of this thread have these words? */
void tn_comm_dead(struct tn_rank *r, struct tn_comm *c);     /* must be: the world has failed */
void tn_comm_sum_until_error(struct tn_rank *r, struct tn_comm *c, uint64_t count, double *seconds);
tn_status tn_comm_do(struct tn_rank *r, struct tn_comm *c, const struct tn_transfer *t, uint32_t n);
#endif
