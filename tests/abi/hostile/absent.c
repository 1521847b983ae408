/* absent - a sound plugin that finds nothing here */
#include "hostile.h"

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 0;
    snprintf(why, why_size, "no such network card");
    return TN_OK;
}
TABLE
TN_PLUGIN("absent", "1", "has no device", TN_BOOTSTRAP_ID, &table);
