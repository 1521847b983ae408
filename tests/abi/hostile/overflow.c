/* overflow - its constructor uses up the stack */
#include "hostile.h"

SAY(50)
TABLE
static volatile int depth;
__attribute__((noinline)) static int deeper(int n)
{
    volatile char room[4096];
    room[n % 4096] = (char)n;
    depth++;
    return deeper(n + 1) + room[depth % 4096];
}
__attribute__((constructor)) static void construct(void)
{
    deeper(0);
}
TN_PLUGIN("overflow", "1", "uses up the stack", TN_BOOTSTRAP_ID, &table);
