/* groups.h - parameters that are treated differently, by name. */
#ifndef TENON_TRAIN_GROUPS_H
#define TENON_TRAIN_GROUPS_H
#include "base/config.h"
#include "graph/graph.h"

/* Sets lr_scale and decay of the graph's parameters from optimizer.lr_scale and optimizer.no_decay. A pattern that fits
 * no parameter is an error: it is misspelt, and silence would train something else. */
tn_status tn_groups_apply(struct tn_config *c, struct tn_graph *g);
#endif
