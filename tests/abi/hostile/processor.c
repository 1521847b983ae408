/* processor - for a CPU level that does not exist yet */
#include "hostile.h"

SAY(50)
TABLE
NOTE("processor", 1, 1, 9, TN_BOOTSTRAP_ID)
ENTRY("processor", &table)
