/* probecrash - loads well and crashes when asked */
#include "hostile.h"

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 50;
    (void)why;
    (void)why_size;
    raise(SIGBUS);
    return TN_OK;
}
TABLE
TN_PLUGIN("probecrash", "1", "crashes when asked", TN_BOOTSTRAP_ID, &table);
