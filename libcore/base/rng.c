/* rng.c - uniform, normal and bounded numbers from Philox blocks.
 *
 * One block of Philox has four words of 32 bits. A uniform takes two of them, a normal one of its own and one
 * of its pair (two words make two normals), a bounded integer a whole block, with more blocks in reserve for
 * the rare draw that would favour small results and is thrown away. */
#include "base/rng.h"

#include <math.h>

static uint64_t word64(const struct tn_philox *block, uint32_t half)
{
    return (uint64_t)block->word[2 * half + 1] << 32 | block->word[2 * half];
}

double tn_random_uniform(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index)
{
    struct tn_philox block = tn_philox(seed, stream, step, index / 2);

    return (double)(word64(&block, index % 2) >> 11) * 0x1p-53;
}

/* The four normals of a block. The half keeps the logarithm away from 0 and the angle from repeating at 1. */
static void block_normals(struct tn_philox block, float out[4])
{
    for (int pair = 0; pair < 2; pair++) {
        float u = (float)(((double)block.word[2 * pair] + 0.5) * 0x1p-32);
        float angle = (float)(((double)block.word[2 * pair + 1] + 0.5) * 0x1p-32 * 6.283185307179586);
        float radius = sqrtf(-2 * logf(u)), sine, cosine;

        sincosf(angle, &sine, &cosine);
        out[2 * pair] = radius * cosine;
        out[2 * pair + 1] = radius * sine;
    }
}

float tn_random_normal(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index)
{
    float four[4];

    block_normals(tn_philox(seed, stream, step, index / 4), four);
    return four[index % 4];
}

void tn_random_normals(uint64_t seed, uint32_t stream, uint32_t step, uint64_t first, size_t n, float scale,
                       float *out)
{
    for (size_t i = 0; i < n;) {
        float four[4];

        block_normals(tn_philox(seed, stream, step, (first + i) / 4), four);
        do
            out[i] = scale * four[(first + i) % 4];
        while (++i < n && (first + i) % 4);
    }
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
