/* equal - nothing wrong with it, and the score of better */
#include "hostile.h"

SAY(9)
TABLE
TN_PLUGIN("equal", "1.2", "as good as the better one", TN_BOOTSTRAP_ID, &table);
