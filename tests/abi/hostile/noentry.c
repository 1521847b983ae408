/* noentry - has a note, exports nothing */
#include "hostile.h"

NOTE("noentry", 1, 1, 0, TN_BOOTSTRAP_ID)
