/* newer - a newer table that leaves the fields we do not know at 0 */
#include "hostile.h"

SAY(3)
static const struct { struct tn_bootstrap known; void *unknown[2]; } table = {
    {.struct_size = sizeof table, .probe = probe, .locate = locate}, {NULL, NULL}};
TN_PLUGIN("newer", "1", "works on this host too", TN_BOOTSTRAP_ID, &table);
