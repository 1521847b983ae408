/* normal.c - many normal numbers at once: Box and Muller over Philox blocks, in loops that become vector
 * code.
 *
 * A model of 124 M parameters begins with that many normal numbers, and nobody wants to wait for them. Blocks
 * go by groups of LANES; within a group every step is a loop without branches or calls, so the compiler may
 * work on several lanes together. Logarithm, sine and cosine are polynomials of this file: the bits of a
 * number depend neither on the C library nor on how wide vectors are, and hence not on where the number is
 * made. For that products and sums must not be contracted, and each clone for a processor does the same
 * operations.
 *
 *     radius = sqrt(-2 log u), u in (0, 1] of 31 bits; angle: 32 bits are a turn */
#include <string.h>

#include "base/rng.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#elif defined __GNUC__
#pragma GCC optimize("O3,fp-contract=off")
#if defined __x86_64__ && defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define CLONES __attribute__((target_clones("avx2", "default")))
#endif
#endif
#ifndef CLONES
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))
#define LANES 32 /* fewer are unrolled before they can become vectors */

struct group {
    uint32_t word[4][LANES]; /* of block first + lane */
};

INLINE float as_float(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

INLINE uint32_t as_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* As tn_philox, lane by lane. */
INLINE void make_words(uint64_t seed, uint32_t stream, uint32_t step, uint64_t first, struct group *g)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int i = 0; i < LANES; i++) {
        uint64_t block = first + (uint64_t)i;
        g->word[0][i] = (uint32_t)block, g->word[1][i] = (uint32_t)(block >> 32);
        g->word[2][i] = stream, g->word[3][i] = step;
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < LANES; i++) {
            uint64_t p = (uint64_t)0xD2511F53u * g->word[0][i], q = (uint64_t)0xCD9E8D57u * g->word[2][i];
            g->word[0][i] = (uint32_t)(q >> 32) ^ g->word[1][i] ^ k0;
            g->word[1][i] = (uint32_t)q;
            g->word[2][i] = (uint32_t)(p >> 32) ^ g->word[3][i] ^ k1;
            g->word[3][i] = (uint32_t)p;
        }
}

/* x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172. */
INLINE float logarithm(float x)
{
    const uint32_t root = 0x3f3504f3u; /* bits of sqrt(1/2) */
    uint32_t bits = as_bits(x) - root;
    float e = (float)((int32_t)bits >> 23), m = as_float((bits & 0x7fffffu) + root);
    float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    float p = 1.0f / 9;

    p = p * z + 1.0f / 7;
    p = p * z + 1.0f / 5;
    p = p * z + 1.0f / 3;
    p = p * z + 1.0f;
    return e * 0.693147181f + 2.0f * s * p;
}

/* x times 1/sqrt(x), by Newton from a guess that halves the exponent; 0 for 0. The C library's may set errno,
 * so it could not become vector code. */
INLINE float square_root(float x)
{
    float y = as_float(0x5f3759dfu - (as_bits(x) >> 1)), half = 0.5f * x;

    for (int i = 0; i < 3; i++)
        y = y * (1.5f - half * y * y);
    return x * y;
}

/* Of 2 pi turns / 2^32: to a quarter and a rest of at most an eighth, there by their series. */
INLINE void sine_cosine(int32_t turn, float *sine, float *cosine)
{
    const float magic = 12582912.0f; /* 1.5 2^23: a sum with it is an integer, in the low bits */
    float quarters = (float)turn * 0x1p-30f, sum = quarters + magic;
    uint32_t q = as_bits(sum) - 0x4b400000u;
    float x = (quarters - (sum - magic)) * 1.57079633f, z = x * x;
    float s = x * (1 + z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880)))));
    float c = 1 + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320))));
    uint32_t odd = 0u - (q & 1), a = as_bits(s), b = as_bits(c);

    *sine = as_float(((a & ~odd) | (b & odd)) ^ (q & 2) << 30);
    *cosine = as_float(((b & ~odd) | (a & odd)) ^ ((q + 1) & 2) << 30);
}

/* The 4 LANES normals of the blocks first ... in order, times scale. */
INLINE void make_group(uint64_t seed, uint32_t stream, uint32_t step, uint64_t first, float scale, float *out)
{
    float normal[4][LANES];
    struct group g;

    make_words(seed, stream, step, first, &g);
    for (int pair = 0; pair < 4; pair += 2)
        for (int i = 0; i < LANES; i++) {
            float u = ((float)(int32_t)(g.word[pair][i] >> 1) + 0.5f) * 0x1p-31f, sine, cosine;
            float radius = square_root(-2.0f * logarithm(u));
            sine_cosine((int32_t)g.word[pair + 1][i], &sine, &cosine);
            normal[pair][i] = scale * (radius * cosine);
            normal[pair + 1][i] = scale * (radius * sine);
        }
    for (int i = 0; i < LANES; i++)
        for (int w = 0; w < 4; w++)
            out[4 * i + w] = normal[w][i];
}

CLONES
void tn_random_normals(uint64_t seed, uint32_t stream, uint32_t step, uint64_t first, size_t n, float scale,
                       float *out)
{
    float some[4 * LANES];

    while (n) {
        size_t skip = first % (4 * LANES), take = 4 * LANES - skip;
        int whole = take <= n && !skip;
        take = take < n ? take : n;
        make_group(seed, stream, step, (first - skip) / 4, scale, whole ? out : some);
        if (!whole)
            memcpy(out, some + skip, take * sizeof *out);
        out += take, first += take, n -= take;
    }
}

float tn_random_normal(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index)
{
    float one;

    tn_random_normals(seed, stream, step, index, 1, 1.0f, &one);
    return one;
}
