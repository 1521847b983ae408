/* leaks - works, and shows two functions to everybody */
#include "hostile.h"

SAY(1)
TABLE
TN_EXPORT int leaks_one(void);
TN_EXPORT int leaks_two(void);
int leaks_one(void)
{
    return 1;
}
int leaks_two(void)
{
    return 2;
}
TN_PLUGIN("leaks", "1", "exports too much", TN_BOOTSTRAP_ID, &table);
