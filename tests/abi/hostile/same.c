/* same - another file with the name of good */
#include "hostile.h"

SAY(50)
TABLE
TN_PLUGIN("good", "6.6", "an impostor", TN_BOOTSTRAP_ID, &table);
