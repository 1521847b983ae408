/* avx512 - its constructor needs AVX-512, and its note says so */
#define TN_CPU 4
#include "hostile.h"

SAY(1)
TABLE
__attribute__((constructor)) static void construct(void)
{
#ifdef __x86_64__
    __asm__ volatile("vpxorq %%zmm16, %%zmm16, %%zmm16" ::: "memory");
#endif
}
TN_PLUGIN("avx512", "1", "needs AVX-512", TN_BOOTSTRAP_ID, &table);
