/* alias - its note has one name, its table another */
#include "hostile.h"

SAY(50)
TABLE
NOTE("alias", 1, 1, 0, TN_BOOTSTRAP_ID)
ENTRY("elias", &table)
