/* order2 - notes when it starts and stops, and asks the host for an ability */
#include "hostile.h"

SAY(1)
TABLE
static tn_status start(void)
{
    const char *const *ability = tn_host->interface("test.ability/1");

    tn_host->log(1, ability ? *ability : "order2 starts alone");
    return tn_host->interface("test.none/1") ? TN_ERR : TN_OK;
}
static void stop(void)
{
    tn_host->log(1, "order2 stops");
}
TN_PLUGIN_("order2", "1", "logs", TN_BOOTSTRAP_ID, start, stop, {TN_BOOTSTRAP_ID, &table});
