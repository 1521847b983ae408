/* checkpoints.h - which checkpoint a command is about. */
#ifndef TENON_CHECKPOINTS_H
#define TENON_CHECKPOINTS_H
#include "options.h"

/* run: a run directory, whose newest checkpoint or that of --step is meant, or the directory of one. *out: owned (free). */
tn_status checkpoint_find(const struct options *o, const char *run, char **out);
#endif
