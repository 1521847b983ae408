/* philox.h - the counter-based generator behind initial weights, dropout and data order.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC11). A number is a
 * pure function of (seed, stream, step, index), so every rank and every layout can make exactly the numbers of
 * its own elements. Public, since a kernel that draws must draw the same numbers on every device. */
#ifndef TENON_PHILOX_H
#define TENON_PHILOX_H
#include <stdint.h>

/* Four words of 32 random bits. */
struct tn_philox {
    uint32_t word[4];
};

/* The four words of elements 4·block to 4·block + 3. seed: of the run; stream: who draws; step: of the update. Pure; any
 * thread. */
__attribute__((unused)) static inline struct tn_philox tn_philox(uint64_t seed, uint32_t stream, uint32_t step, uint64_t block)
{
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), stream, step};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n[4] = {(uint32_t)(q >> 32) ^ c[1] ^ k[0], (uint32_t)q, (uint32_t)(p >> 32) ^ c[3] ^ k[1], (uint32_t)p};

        for (int i = 0; i < 4; i++)
            c[i] = n[i];
        k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
    }
    return (struct tn_philox){{c[0], c[1], c[2], c[3]}};
}
/* The 32 bits of one element. */
__attribute__((unused)) static inline uint32_t tn_philox_at(uint64_t seed, uint32_t stream, uint32_t step, uint64_t element)
{
    return tn_philox(seed, stream, step, element / 4).word[element % 4];
}
/* An element is dropped with probability p if its bits are below this; p in [0, 1). */
__attribute__((unused)) static inline uint32_t tn_dropout_threshold(double p)
{
    return (uint32_t)(p * 4294967296.0);
}
#endif
