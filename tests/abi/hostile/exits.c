/* exits - its constructor calls exit(0), as if all were well */
#include "hostile.h"

SAY(50)
TABLE
__attribute__((constructor)) static void construct(void)
{
    exit(0);
}
TN_PLUGIN("exits", "1", "exits", TN_BOOTSTRAP_ID, &table);
