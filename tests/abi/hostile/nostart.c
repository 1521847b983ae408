/* nostart - its start fails and says why */
#include "hostile.h"

SAY(50)
TABLE
static tn_status start(void)
{
    return tn_error(TN_ERR_IO, "the licence server is asleep");
}
TN_PLUGIN_("nostart", "1", "cannot start", TN_BOOTSTRAP_ID, start, NULL, {TN_BOOTSTRAP_ID, &table});
