/* good - nothing wrong with it, for comparison */
#include "hostile.h"

SAY(5)
TABLE
TN_PLUGIN("good", "1.2", "a good one", TN_BOOTSTRAP_ID, &table);
