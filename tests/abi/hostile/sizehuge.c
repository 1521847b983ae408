/* sizehuge - a table of four gigabytes */
#include "hostile.h"

SAY(50)
static const struct tn_bootstrap table = {.struct_size = UINT32_MAX, .probe = probe, .locate = locate};
TN_PLUGIN("sizehuge", "1", "struct_size 4294967295", TN_BOOTSTRAP_ID, &table);
