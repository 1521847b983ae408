/* contents.h - the lists and words in a plugin's tables: looked through once, as it is loaded.
 *
 * A list without an end, a key with a newline, a memory that has no name: the host would meet them in the middle of
 * a run, or when a checkpoint is written. Pointers that lead nowhere are found out here too, where a guard stands. */
#ifndef TN_PLUGIN_CONTENTS_H
#define TN_PLUGIN_CONTENTS_H
#include <tenon/optimizer.h>

#include "plugin/interface.h"

/* table is in our size. The cause goes to why. */
tn_status tn_contents_check(const struct tn_interface_type *type, const void *table, char *why);

/* Slots that choose gave, too: names that the update can use, no two alike. options may be NULL. */
tn_status tn_contents_slots(const struct tn_slot *slots, const struct tn_option *options, char *why);
#endif
