/* loop.h - a training run, from a configuration to the last checkpoint.
 *
 * Everything that can be wrong is looked at first: configuration, plugins, data, plan, the checkpoint to go
 * on from, room on the disk. Only then is the first file touched. From there on the run is a function of its
 * configuration: update s sees the data of step s at the rate of step s, whatever was saved, validated or
 * interrupted in between. */
#ifndef TN_TRAIN_LOOP_H
#define TN_TRAIN_LOOP_H
#include "base/config.h"

/* Lines about the run go to stdout. TN_OK: all of train.steps are done and saved, or a signal asked to stop
 * and what was done is saved. Borrows c, settles keys of it. */
tn_status tn_train(struct tn_config *c);

/* Where the run is kept: checkpoint.dir, else runs/NAME for a file NAME.ini, which is settled. NULL: neither
 * is there. */
const char *tn_run_folder(struct tn_config *c);
#endif
