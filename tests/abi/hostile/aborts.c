/* aborts - its constructor aborts */
#include "hostile.h"

SAY(50)
TABLE
__attribute__((constructor)) static void construct(void)
{
    abort();
}
TN_PLUGIN("aborts", "1", "aborts", TN_BOOTSTRAP_ID, &table);
