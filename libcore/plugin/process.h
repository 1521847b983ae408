/* process.h - what code of others may have changed of this process, and how to put it back.
 *
 * A constructor that flushes denormals to zero, another working directory, a comma in numbers, a closed stderr: none of
 * it crashes, all of it is felt much later and by somebody else. Only what no library has a reason to change; threads,
 * handlers of signals and the environment are not among it. Main thread. */
#ifndef TN_PLUGIN_PROCESS_H
#define TN_PLUGIN_PROCESS_H
#include <fenv.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>

struct tn_process {
    int folder, stream[3];                       /* descriptors of what there was; -1: could not be held */
    struct stat place, file[3];                  /* which files those are; zero: none */
    mode_t creation;                             /* umask */
    int rounding, traps, denormals;              /* of the processor. denormals: 1e-40 is a number */
    fenv_t processor;
    sigset_t blocked;
    char locale[256];
};

/* As it is now. Holds descriptors until tn_process_drop. */
void tn_process_note(struct tn_process *p);
/* How many things are otherwise now. what gets them as "changed the umask, blocked signals". */
int tn_process_compare(const struct tn_process *p, char *what, size_t room);
/* All as it was, as far as that can be had. */
void tn_process_restore(const struct tn_process *p);
void tn_process_drop(struct tn_process *p);
#endif
