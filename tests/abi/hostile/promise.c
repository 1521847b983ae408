/* promise - promises a communicator in its note and has none */
#include "hostile.h"

SAY(50)
TABLE
NOTE("promise", 1, 1, 0, TN_BOOTSTRAP_ID " tenon.comm/1")
ENTRY("promise", &table)
