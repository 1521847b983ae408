/* unknown - an interface that this host does not know beside one that it knows */
#include "hostile.h"

SAY(4)
TABLE
static const uint32_t other[4] = {16, 1, 2, 3};
TN_PLUGIN2("unknown", "1", "has more than we know", TN_BOOTSTRAP_ID, &table, "tenon.teleport/7", other);
