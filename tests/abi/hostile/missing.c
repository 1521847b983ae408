/* missing - lacks the mandatory locate */
#include "hostile.h"

SAY(50)
static const struct tn_bootstrap table = {.struct_size = sizeof table, .probe = probe};
TN_PLUGIN("missing", "1", "lacks locate", TN_BOOTSTRAP_ID, &table);
