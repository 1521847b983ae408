/* permute.c - see permute.h.
 *
 * A Feistel network is a permutation of 2h bits whatever its round function is; ours is Philox. The smallest
 * one that holds n numbers is less than 4n wide: where a result is n or more, the network is applied again,
 * until it is below n (cycle walking). This ends, since the walk is along a cycle that i itself lies on. */
#include "data/permute.h"

#include <tenon/philox.h>

#define ROUNDS 8u

/* Philox's block: the half in the low bits, the round above all of them. */
static uint32_t round_bits(uint64_t seed, uint32_t stream, uint32_t epoch, uint32_t half, uint32_t round)
{
    return tn_philox(seed, stream, epoch, (uint64_t)round << 32 | half).word[0];
}

static uint64_t feistel(uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t x, unsigned h)
{
    uint32_t mask = (uint32_t)((1ull << h) - 1), left = (uint32_t)(x >> h) & mask, right = (uint32_t)x & mask;

    for (uint32_t r = 0; r < ROUNDS; r++) {
        uint32_t next = left ^ (round_bits(seed, stream, epoch, right, r) & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << h | right;
}

uint64_t tn_permute(uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t i, uint64_t n)
{
    unsigned h = 1;

    while (n > 1ull << (2 * h))
        h++;
    do
        i = feistel(seed, stream, epoch, i, h);
    while (i >= n);
    return i;
}
