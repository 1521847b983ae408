/* crash - its constructor crashes */
#include "hostile.h"

SAY(50)
TABLE
__attribute__((constructor)) static void construct(void)
{
    raise(SIGSEGV);                              /* a write through NULL would be optimised away */
}
TN_PLUGIN("crash", "1", "crashes", TN_BOOTSTRAP_ID, &table);
