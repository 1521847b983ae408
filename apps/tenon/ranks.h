/* ranks.h - many ranks, for commands that prove something: their groups in words, and processes of this
 * program.
 *
 * Training is started by a launcher. probe and verify are worth running without one, so they can start the
 * ranks as processes of this host, which meet through a folder (bootstrap dir). */
#ifndef TENON_RANKS_H
#define TENON_RANKS_H
#include "base/config.h"
#include "mesh/mesh.h"
#include "options.h"

#define RANKS_OPTION                                                                                         \
    {                                                                                                        \
        .name = "ranks", .value = "N",                                                                       \
        .help = "Start N processes on this host instead of being started by a launcher", .type = TN_KEY_INT, \
        .low = 1, .high = 64                                                                                 \
    }

/* "[0 2] [1 3]": all groups along an axis, cut where there is no more room. Returns out. */
const char *ranks_groups(const struct tn_mesh *m, int axis, char *out, size_t room);

/* Product of the axes that the configuration names, dp as it is given or 1. */
int64_t ranks_asked(const struct tn_config *c);

/* Runs this command again as n ranks and waits for them. *here 1: this process is one of them already, and
 * shall do the work; else *code is the exit status of the first rank that failed, 0 if none did. */
tn_status ranks_start(const struct options *o, int64_t n, int argc, char **argv, int *here, int *code);
/* Is there a launcher that started this process? Reads, changes nothing. */
tn_status ranks_launched(const struct tn_config *c, int *out);
#endif
