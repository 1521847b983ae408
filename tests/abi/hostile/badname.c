/* badname - a name that would move a terminal's cursor */
#include "hostile.h"

SAY(50)
TABLE
NOTE("\033[2Jbad", 1, 1, 0, TN_BOOTSTRAP_ID)
ENTRY("\033[2Jbad", &table)
