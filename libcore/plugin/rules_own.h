/* rules_own.h - what the files of backend.debug share: see rules.h.
 *
 *   rules.c          broken rules, threads, tables that stay, what the host calls
 *   rules_host.c     the host's functions that plugins call
 *   rules_kernels.c  rules_device.c  rules_comm.c    the functions of plugins, by interface
 *
 * A table's functions know nothing of who they belong to, so each watched plugin has a number and a set of functions made
 * for it (EACH); more plugins of a kind than there are numbers are not watched. */
#ifndef TN_PLUGIN_RULES_OWN_H
#define TN_PLUGIN_RULES_OWN_H
#include <tenon/comm.h>
#include <tenon/device.h>
#include <tenon/kernels.h>
#include "base/status.h"
#include "plugin/rules.h"

#define TN_RULES_MOST 8
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define HERE __builtin_return_address(0)

struct tn_rule_thread {
    int step, body, team;                        /* within an update, a body of the pool, one of a team: how deep */
    int rank;                                    /* it is the main one of a rank that is a thread */
};
extern _Thread_local struct tn_rule_thread tn_rule_thread;

/* Ends the process with the sentence and the place of the caller; NULL: no place is known. */
__attribute__((format(printf, 2, 3), noreturn)) void tn_rule_broken(const void *caller, const char *fmt, ...);
/* Is this the main thread, one of an update, or in a body? */
int tn_rule_may_compute(void);
/* The rest end the process if it is not so: on the main thread, and not during an update; an error has a sentence. */
void tn_rule_before_steps(const char *path, const char *what);
void tn_rule_says(const char *path, const char *what, tn_status s);

/* The table's functions are replaced by watching ones. path is borrowed for ever. */
void tn_rules_kernels(const char *path, struct tn_kernels *t);
void tn_rules_device(const char *path, struct tn_device_api *t);
void tn_rules_comm(const char *path, struct tn_comm_api *t);
/* The host's own. */
void tn_rules_host(void);
void tn_rules_show_graph(int shown);
#endif
