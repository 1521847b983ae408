/* endless - a list of interfaces without an end */
#include "hostile.h"

SAY(50)
TABLE
NOTE("endless", 1, 1, 0, TN_BOOTSTRAP_ID)
static struct tn_interface interfaces[200];
static const struct tn_plugin plugin = {sizeof plugin, 0, "endless", "1", "a test", interfaces, NULL, NULL};
TN_EXPORT const struct tn_plugin *tn_plugin_entry(const struct tn_host *host);
const struct tn_plugin *tn_plugin_entry(const struct tn_host *host)
{
    tn_host = host;
    for (int i = 0; i < 200; i++)
        interfaces[i] = (struct tn_interface){"tenon.unheard/1", &table};
    return &plugin;
}
