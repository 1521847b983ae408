/* nothing - its entry returns nothing */
#include "hostile.h"

NOTE("nothing", 1, 1, 0, TN_BOOTSTRAP_ID)
TN_EXPORT const struct tn_plugin *tn_plugin_entry(const struct tn_host *host);
const struct tn_plugin *tn_plugin_entry(const struct tn_host *host)
{
    tn_host = host;
    return NULL;
}
