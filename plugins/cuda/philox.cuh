/* philox.cuh - the generator of tenon/philox.h on the device: the same numbers.
 *
 * A block of four words belongs to four elements with neighbouring indices. */
#ifndef TENON_CUDA_PHILOX_CUH
#define TENON_CUDA_PHILOX_CUH
#include "cu.cuh"

struct tn_words {
    uint32_t w[4];
};

TN_DEVICE tn_words tn_philox_block(uint32_t seed_low, uint32_t seed_high, uint32_t stream, uint32_t step,
                                   uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = stream, c3 = step;

#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t p = (uint64_t)0xD2511F53u * c0, q = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(q >> 32) ^ c1 ^ seed_low, c1 = (uint32_t)q;
        c2 = (uint32_t)(p >> 32) ^ c3 ^ seed_high, c3 = (uint32_t)p;
        seed_low += 0x9E3779B9u, seed_high += 0xBB67AE85u;
    }
    return tn_words{{c0, c1, c2, c3}};
}

/* Bit i: is the element with global index first + i kept? uniform: seed low, high, step low, high. */
TN_DEVICE uint32_t tn_philox_keep4(const uint32_t *uniform, uint32_t key, uint32_t threshold, uint64_t first)
{
    const uint32_t from = (uint32_t)(first % 4);
    tn_words w = tn_philox_block(uniform[0], uniform[1], key, uniform[2], first / 4);
    uint32_t keep = 0;

#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        keep |= w.w[i] >= threshold ? 1u << i : 0;
    if (!from)
        return keep;
    w = tn_philox_block(uniform[0], uniform[1], key, uniform[2], first / 4 + 1);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        keep |= w.w[i] >= threshold ? 16u << i : 0;
    return keep >> from & 15;
}

TN_DEVICE uint32_t tn_philox_keep(const uint32_t *uniform, uint32_t key, uint32_t threshold, uint64_t g)
{
    const tn_words w = tn_philox_block(uniform[0], uniform[1], key, uniform[2], g / 4);
    const uint32_t i = (uint32_t)(g % 4);

    return (i == 0 ? w.w[0] : i == 1 ? w.w[1] : i == 2 ? w.w[2] : w.w[3]) >= threshold;
}
#endif
