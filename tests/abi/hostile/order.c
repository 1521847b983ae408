/* order - notes when it starts and stops */
#include "hostile.h"

SAY(1)
TABLE
static tn_status start(void)
{
    tn_host->log(1, "order starts");
    return TN_OK;
}
static void stop(void)
{
    tn_host->log(1, "order stops");
}
TN_PLUGIN_("order", "1", "logs", TN_BOOTSTRAP_ID, start, stop, {TN_BOOTSTRAP_ID, &table});
