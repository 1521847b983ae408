/* notable - its interface has no table */
#include "hostile.h"

TN_PLUGIN("notable", "1", "no table", TN_BOOTSTRAP_ID, NULL);
