/* suite.h - tenon plugins check: what the files of this folder share.
 *
 *   list.c         which tests there are for a plugin
 *   ask.c          what it claims, asked in a child
 *   open.c         what a test loads
 *   child.c        tests in processes of their own: start, end, time limit
 *   keeper.c       what is left of a check that ended, and how it goes
 *   report.c       the table and the document
 *   file.c         the file: its export, its note, its dependencies, its start
 *   kernels.c      kernels against ref; conform.c, cases.c, bench.c, ... have the problems and their comparison;
 *                  recorded.c has them in a recording
 *   comms.c        communicators, by the cases of comm_values.c, comm_failures.c, comm_streams.c; comm_ranks.c finds out how
 *                  ranks can be had, comm_device.c gives each a device, comm_through.c hands its memory on
 *   gradient.c     adjoint kernels against differences of the forward
 *   device.c       memory; queues.c: queues, events, recordings
 *
 * The process that lists and reports never loads the plugin. A test is a function that runs in a forked child, loads
 * what it needs and comes to one end: it returns, or calls check_fail, check_skip or check_decline, which do not. A
 * child that ends in any other way has failed. Tests of kernels are many and small: they share a child, and the device
 * that it has opened, as long as none fails. */
#ifndef TN_SUITE_H
#define TN_SUITE_H
#include <stdlib.h>
#include <tenon/device.h>
#include <tenon/kernels.h>
#include "plugin/load.h"

enum check_state { CHECK_NONE, CHECK_PASSED, CHECK_FAILED, CHECK_DECLINED, CHECK_SKIPPED };
extern const char *const check_state_name[];

struct check_result {
    uint32_t state, variants;                    /* variants: how many ways of the problem ran */
    double worst;                                /* largest error, as a part of what is allowed; 0 where nothing is */
    double seconds;
    char why[1200];                              /* of a failure, a skip */
};

/* What a plugin says of itself, asked in a child. */
#define CHECK_CLAIMS 128
#define CHECK_OPTIONS 32
struct check_claims {
    int32_t loads;                               /* else why says it */
    uint32_t claims, dtypes;                     /* dtypes: of the device that kernels work on, 0 not known */
    char kind[48], kernels_kind[48];             /* device, and device of the kernels */
    uint32_t ranks, options;                     /* ranks: enum check_ranks */
    uint32_t is_pass, is_optimizer, is_bootstrap;
    uint32_t records;                            /* its kernels' device may record launches */
    struct check_option {
        char key[40], preset[40];
        double low, high;
    } option[CHECK_OPTIONS];                     /* of a pass or an optimizer */
    char op[CHECK_CLAIMS][24];
    char why[TN_WHY_SIZE];                       /* it does not load, its communicator cannot be tried as others are */
    struct check_devices {                       /* whose memory the communicator takes, beside the host's */
        char kind[24], path[4096];               /* "" none; the plugin that is the device */
        uint32_t n, captures;                    /* how many there are here, as far as they were counted; it records */
        char why[TN_WHY_SIZE];                   /* no more of them */
    } devices;
};

/* What the ranks of a communicator are. */
enum check_ranks { CHECK_NO_RANKS, CHECK_PROCESSES, CHECK_THREADS, CHECK_ONE_RANK, CHECK_LAUNCHED, CHECK_UNLAUNCHED };

struct check_subject {
    char *path;                                  /* owned */
    const char *plugins_path;                    /* where other plugins are looked for first; NULL: the usual places alone */
    char real[4096];                             /* the same, absolute */
    struct tn_card card;
    char axis[8];                                /* of a strategy, if the user said one */
    struct check_claims claims;
    char ref[4096];                              /* path of ref; "" none */
    char folder[64];                             /* of this check, for whatever tests write */
    uint32_t rank, size;                         /* of a launcher that started the check; 0 of 0 without */
    uint32_t local, local_size;                  /* the same on this host; local_size 0: not known */
    char job[48];                                /* the same on all ranks that it started */
};

struct check_test;
struct check_run {
    const struct check_subject *subject;
    const struct check_test *test;
    struct check_result *result;
};

/* A test as it is listed: KIND/GROUP or KIND/GROUP/LABEL. */
struct check_test {
    char name[96], what[600];
    void (*run)(struct check_run *r);
    const void *with;                            /* what the function wants to know */
    uint32_t number;                             /* the same */
    uint32_t alone, shared;                      /* nothing else runs meanwhile; may follow others in one process */
    double limit;                                /* seconds */
    struct check_result result;
};

struct check_list {
    struct check_test *test;
    uint32_t n, room;
};

/* Appends; a mistake of memory ends the program. */
__attribute__((format(printf, 4, 5))) struct check_test *
check_add(struct check_list *l, void (*run)(struct check_run *r), const char *what, const char *name, ...);

/* One for each kind; each adds its tests if the plugin has what they are for. */
void check_list_file(struct check_list *l, const struct check_subject *s);
void check_list_device(struct check_list *l, const struct check_subject *s);
void check_list_kernels(struct check_list *l, const struct check_subject *s);
void check_list_gradients(struct check_list *l, const struct check_subject *s);
void check_list_comm(struct check_list *l, const struct check_subject *s);
void check_list_passes(struct check_list *l, const struct check_subject *s);
void check_list_optimizers(struct check_list *l, const struct check_subject *s);
void check_list_bootstraps(struct check_list *l, const struct check_subject *s);
void check_list_all(struct check_list *l, const struct check_subject *s);

/* --- child.c */
/* Asks the plugin in a child what it claims; seconds 0: as long as usual. */
tn_status check_ask(struct check_subject *s, double seconds);
/* Runs all tests of the list that are chosen, jobs at a time; says each one's end if told to. */
tn_status check_run_all(const struct check_subject *s, struct check_list *l, uint32_t jobs,
                        void (*done)(const struct check_test *t));
/* For tests; none of these returns. */
__attribute__((format(printf, 2, 3), noreturn)) void check_fail(struct check_run *r, const char *fmt, ...);
__attribute__((format(printf, 2, 3), noreturn)) void check_skip(struct check_run *r, const char *fmt, ...);
__attribute__((noreturn)) void check_decline(struct check_run *r);
#define check_must(r, x) ((x) ? (void)0 : check_fail(r, "not so: %s%s%s", #x, check_said_before(), check_said()))
const char *check_said(void);                    /* the last error that was recorded, and clears it */
const char *check_said_before(void);             /* ": " if there is one */
double check_now(void);

/* comm_ranks.c: in a child: how its ranks can be had, and which devices. */
void check_ranks(struct check_run *r, struct check_claims *out);
/* comm_device.c: looks for devices; whose ranks then open theirs. */
void check_comm_devices(struct check_run *r, struct check_claims *out);
void check_comm_device(const struct check_devices *d);

/* --- open.c: loading, in a child. The test fails where it cannot be done. */
const struct tn_loaded *check_open(struct check_run *r);
const void *check_table(struct check_run *r, const char *id);         /* of the plugin */
const void *check_ref(struct check_run *r, const char *id);           /* of ref; skips where it is not found */
struct tn_bench_device;
/* The plugin's own device if it is of this kind, else that of the host; NULL: why says it. */
const struct tn_device_api *check_find_device(struct check_run *r, const char *kind, char *why, size_t room);
/* The device that the plugin is, or that its kernels work on, open, with a queue; once for each process. Returns whether its memory is not
 * the host's. */
int check_device(struct check_run *r, const char *kind, struct tn_bench_device *out);

/* --- tenon.c: this program with these words, in the folder of the check. Returns its exit status; said: the last thing it
 * said. */
#define CHECK_WORDS 80
struct check_words {
    char text[CHECK_WORDS][300];
    char *argv[CHECK_WORDS + 1];
    uint32_t n;
};
/* One more, until there are CHECK_WORDS. */
__attribute__((format(printf, 2, 3))) void check_word(struct check_words *w, const char *fmt, ...);
int check_tenon(struct check_run *r, struct check_words *w, char *said, size_t room);

/* --- keeper.c: the folder of the check, and the end of what was started and let go of. An end too much is none. */
tn_status check_keep_begin(struct check_subject *s);
void check_keep_end(struct check_subject *s);

/* --- report.c */
void check_print(FILE *f, const struct check_subject *s, const struct check_list *l, double seconds);
void check_print_list(FILE *f, const struct check_list *l);
tn_status check_print_json(FILE *f, const struct check_subject *s, const struct check_list *l, double seconds);
uint32_t check_count(const struct check_list *l, uint32_t state);

/* --- check.c: the whole of it. *code: the exit status. */
struct check_wish {
    const char *plugin, *only, *axis;            /* axis NULL: found out */
    uint32_t json, list, jobs;                   /* jobs 0: as many as there are CPUs */
    const char *plugins_path;
    double seconds;                              /* limit of each test; 0: its own */
};
tn_status check_plugin(const struct check_wish *w, int *code);
#endif
