/* better - nothing wrong with it, and a higher score */
#include "hostile.h"

SAY(9)
TABLE
TN_PLUGIN("better", "1.2", "a better one", TN_BOOTSTRAP_ID, &table);
