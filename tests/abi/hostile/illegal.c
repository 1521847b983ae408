/* illegal - its constructor uses an instruction that does not exist */
#include "hostile.h"

SAY(50)
TABLE
__attribute__((constructor)) static void construct(void)
{
    raise(SIGILL);
}
TN_PLUGIN("illegal", "1", "is for another CPU and does not say so", TN_BOOTSTRAP_ID, &table);
