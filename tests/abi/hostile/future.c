/* future - for hosts of levels to come */
#include "hostile.h"

SAY(50)
TABLE
NOTE("future", 8, 9, 0, TN_BOOTSTRAP_ID)
ENTRY("future", &table)
