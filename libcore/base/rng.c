/* rng.c - uniform and bounded numbers from Philox blocks; normal ones are in normal.c.
 *
 * One block of Philox has four words of 32 bits. A uniform takes two of them, a bounded integer a whole block,
 * with more blocks in reserve for the rare draw that would favour small results and is thrown away. */
#include "base/rng.h"

static uint64_t word64(const struct tn_philox *block, uint32_t half)
{
    return (uint64_t)block->word[2 * half + 1] << 32 | block->word[2 * half];
}

double tn_random_uniform(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index)
{
    struct tn_philox block = tn_philox(seed, stream, step, index / 2);

    return (double)(word64(&block, index % 2) >> 11) * 0x1p-53;
}

/* Lemire's method: the high half of bits·n is the result; a low half under 2^64 mod n is drawn again. */
uint64_t tn_random_below(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index, uint64_t n)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t unfair = -n % n;
    wide m = 0;

    for (uint64_t attempt = 0; attempt < 256; attempt++) {
        struct tn_philox block = tn_philox(seed, stream, step, index | attempt << 56);

        for (uint32_t half = 0; half < 2; half++) {
            m = (wide)word64(&block, half) * n;
            if ((uint64_t)m >= unfair)
                return (uint64_t)(m >> 64);
        }
    }
    return (uint64_t)(m >> 64);                  /* not before 512 draws of at most one half each */
}

uint32_t tn_random_stream(const char *name)
{
    uint32_t h = 0x811c9dc5u;                    /* FNV-1a */

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x01000193u;
    return h | 0x80000000u;
}
