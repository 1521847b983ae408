/* rundir.h - a run directory: RUN/step-00000100/, one for each checkpoint that was kept.
 *
 * A name step-N counts only if it is complete (state.h). Work in progress has names with a dot in front; what
 * a killed process left of those is removed when the next one opens the run for writing. One process writes
 * at a time: the lock says which. Looking needs no lock. */
#ifndef TN_CKPT_RUNDIR_H
#define TN_CKPT_RUNDIR_H
#include <tenon/abi.h>

/* --- the right to write: makes the directory, takes the lock, clears leftovers (each with a notice).
 * TN_ERR_INPUT where the directory cannot be had or written, TN_ERR with the pid where another process has
 * it. */
struct tn_runs;
tn_status tn_runs_open(const char *run, struct tn_runs **out);
void tn_runs_close(struct tn_runs *r);           /* NULL is fine */
/* A text that is another one each time a run is opened for writing, and the one that lies in the directory now, from
 * whatever process; "" if none does. So others can tell whether theirs is the same directory. */
#define TN_RUNS_MARK 48u
const char *tn_runs_mark(const struct tn_runs *r);
const char *tn_runs_look(const char *run, char out[TN_RUNS_MARK]);

/* --- looking */

/* Steps of the complete checkpoints, ascending, owned (free); the incomplete ones get a notice. */
tn_status tn_runs_list(const char *run, int64_t **steps, uint64_t *count);
/* TN_DECLINED without a word if there is none. */
tn_status tn_runs_latest(const char *run, int64_t *step);
/* TN_ERR_INPUT if this step is not there; the sentence says which are. */
tn_status tn_runs_find(const char *run, int64_t step);
/* "RUN/step-00000100", owned (free). */
char *tn_runs_path(const char *run, int64_t step);

/* Removes complete checkpoints until the newest `keep` are left; 0 keeps all. `current`, the one just written
 * or resumed from, stays in any case: it need not be the newest where a run went back. */
tn_status tn_runs_prune(struct tn_runs *r, int64_t keep, int64_t current);

/* --- for save.c: names of work in progress, and of a checkpoint that is being replaced */
#define TN_RUNS_TEMP ".step-%08lld.tmp-%ld"
#define TN_RUNS_OLD ".step-%08lld.old-%ld"
#endif
