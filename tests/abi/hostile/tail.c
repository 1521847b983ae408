/* tail - a newer table that uses a field we do not know */
#include "hostile.h"

SAY(50)
static const struct { struct tn_bootstrap known; void *unknown[2]; } table = {
    {.struct_size = sizeof table, .probe = probe, .locate = locate}, {NULL, (void *)&table}};
TN_PLUGIN("tail", "1", "needs a newer host", TN_BOOTSTRAP_ID, &table);
