/* prints - writes to standard output when loaded and asked */
#include "hostile.h"

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 1;
    snprintf(why, why_size, "two\nlines\033[2J");
    return TN_OK;
}
TABLE
__attribute__((constructor)) static void construct(void)
{
    if (write(STDOUT_FILENO, "NOISE\n", 6) < 0)
        abort();
}
TN_PLUGIN("prints", "1", "is noisy", TN_BOOTSTRAP_ID, &table);
