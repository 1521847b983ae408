/* hang - its constructor never returns */
#include "hostile.h"

SAY(50)
TABLE
__attribute__((constructor)) static void construct(void)
{
    for (;;)
        pause();
}
TN_PLUGIN("hang", "1", "hangs", TN_BOOTSTRAP_ID, &table);
