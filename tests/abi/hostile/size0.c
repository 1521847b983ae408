/* size0 - a table of no size */
#include "hostile.h"

SAY(50)
static const struct tn_bootstrap table = {.probe = probe, .locate = locate};
TN_PLUGIN("size0", "1", "struct_size 0", TN_BOOTSTRAP_ID, &table);
