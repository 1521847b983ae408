/* undefined - needs a symbol that nobody has */
#include "hostile.h"

void tn_nowhere(void);
static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    (void)why;
    (void)why_size;
    *score = 50;
    tn_nowhere();
    return TN_OK;
}
TABLE
TN_PLUGIN("undefined", "1", "undefined symbol", TN_BOOTSTRAP_ID, &table);
