/* gelu.h - gelu(x) = x·Φ(x) and its derivative, one vector at a time, Φ the normal distribution.
 *
 * Φ and gelu' of -t are what is missing to 1 at t. So their tails are enough: h(|x|) with Φ(x) = 1 + h for x > 0,
 * else -h. It is smooth, and 0 to what matters above 6: each of 16 intervals, about the multiples of 0.39, has a
 * polynomial of degree 6, and the coefficients are picked from tables by the number of the interval, which vector
 * instructions do in one step. An exponential and an error function would cost three times as much.
 *
 * Errors, over all floats, against double: gelu 7e-8·max(1, |x|), the derivative 8e-8 absolute. NaN stays NaN, and
 * infinity becomes what the formula makes of it: gelu(-inf) and both derivatives are NaN. */
#ifndef TENON_CPU_GELU_H
#define TENON_CPU_GELU_H
#include "vec.h"

#define TN_GELU_WIDTH 0.390625f
#define TN_GELU_LAST 6.0f

/* [power][interval] */
static const float tn_gelu_phi[7][16] = {
    {-0x1.000000p-1f, -0x1.6463dep-2f, -0x1.bd1652p-3f, -0x1.ee130ap-4f, -0x1.e4067cp-5f,
     -0x1.a0315cp-6f, -0x1.38c94ep-7f, -0x1.99979ep-9f, -0x1.d21af4p-11f, -0x1.cc080ep-13f,
     -0x1.892c0ep-15f, -0x1.229ea2p-17f, -0x1.733238p-20f, -0x1.994962p-23f, -0x1.85503cp-26f,
     -0x1.3f477cp-29f},
    {0x1.988452p-2f, 0x1.7a8240p-2f, 0x1.2d130ep-2f, 0x1.9b2e7ep-3f, 0x1.e21644p-4f, 0x1.e53b46p-5f,
     0x1.a347c8p-6f, 0x1.3705ccp-7f, 0x1.8c2224p-9f, 0x1.b12274p-11f, 0x1.96922ep-13f, 0x1.47a102p-15f,
     0x1.c54e18p-18f, 0x1.0d376cp-20f, 0x1.128572p-23f, 0x1.e0a22ap-27f},
    {0, -0x1.27b5c2p-4f, -0x1.d66dc4p-4f, -0x1.e1da7ap-4f, -0x1.78a164p-4f, -0x1.d9dbe4p-5f,
     -0x1.eb5820p-6f, -0x1.a939f0p-7f, -0x1.357aaep-8f, -0x1.7caf42p-10f, -0x1.8d0aacp-12f,
     -0x1.5ff1c4p-14f, -0x1.099b74p-16f, -0x1.55c6a2p-19f, -0x1.77510ap-22f, -0x1.60049cp-25f},
    {-0x1.1056a4p-4f, -0x1.abaa04p-5f, -0x1.38d7fep-6f, 0x1.9945dap-7f, 0x1.cf3ee6p-6f, 0x1.c742ecp-6f,
     0x1.39fd06p-6f, 0x1.4fbf2ap-7f, 0x1.215deap-8f, 0x1.9a034ap-10f, 0x1.e3101ep-12f, 0x1.dcb3a6p-14f,
     0x1.8bff98p-16f, 0x1.15e726p-18f, 0x1.4a6370p-21f, 0x1.4d608ep-24f},
    {0, 0x1.18a9acp-6f, 0x1.76b6cep-6f, 0x1.054758p-6f, 0x1.1886d0p-8f, -0x1.015b5ap-8f,
     -0x1.98555cp-8f, -0x1.3d47b2p-8f, -0x1.5cf9d8p-9f, -0x1.28eccep-10f, -0x1.9599a6p-12f,
     -0x1.c57df4p-14f, -0x1.a3e4f4p-16f, -0x1.447194p-18f, -0x1.a4a5bap-21f, -0x1.cb583ep-24f},
    {0x1.443a6ep-7f, 0x1.a6c8d6p-8f, -0x1.6596f8p-11f, -0x1.6c1490p-8f, -0x1.6b9254p-8f,
     -0x1.59db50p-9f, 0x1.ceeeb4p-16f, 0x1.1fe412p-10f, 0x1.05cdcap-10f, 0x1.275250p-11f,
     0x1.ecc21ap-13f, 0x1.428ecap-14f, 0x1.54d144p-16f, 0x1.2756fcp-18f, 0x1.a818e0p-21f,
     0x1.fc1840p-24f},
    {0, -0x1.5ffe3ap-9f, -0x1.812e9ep-9f, -0x1.0e4f7ap-10f, 0x1.c802c0p-11f, 0x1.67c072p-10f,
     0x1.a9eaacp-11f, 0x1.2b0444p-13f, -0x1.58ba54p-13f, -0x1.74526ep-13f, -0x1.a500d2p-14f,
     -0x1.5119e0p-15f, -0x1.9f06bap-17f, -0x1.9751f6p-19f, -0x1.450d00p-21f, -0x1.ab1072p-24f},
};
static const float tn_gelu_slope[7][16] = {
    {-0x1.000000p-1f, -0x1.a111fap-3f, 0x1.957722p-7f, 0x1.d5a1ecp-4f, 0x1.ff3f8ap-4f, 0x1.71cf8cp-4f,
     0x1.9d25cep-5f, 0x1.7606fcp-6f, 0x1.185900p-7f, 0x1.5feec2p-9f, 0x1.7477eap-11f, 0x1.4dc7d2p-13f,
     0x1.fc03aap-16f, 0x1.48fc2ep-18f, 0x1.6b2636p-21f, 0x1.5609dap-24f},
    {0x1.988452p-1f, 0x1.5da180p-1f, 0x1.a2633cp-2f, 0x1.01b0f8p-3f, -0x1.a997a2p-5f, -0x1.b84634p-4f,
     -0x1.6e2764p-4f, -0x1.a9da52p-5f, -0x1.808724p-6f, -0x1.1871b6p-7f, -0x1.50ea20p-9f,
     -0x1.511c98p-11f, -0x1.1aed5ep-13f, -0x1.903e90p-16f, -0x1.ded0f6p-19f, -0x1.e59e42p-22f},
    {0, -0x1.1c6df6p-2f, -0x1.8ea5a4p-2f, -0x1.3c6c14p-2f, -0x1.2581c8p-3f, -0x1.5f3ac2p-7f,
     0x1.6ed42ep-5f, 0x1.719b82p-5f, 0x1.be15d6p-6f, 0x1.8dcc1cp-7f, 0x1.176352p-8f, 0x1.3e237ap-10f,
     0x1.2a5aa0p-12f, 0x1.d16622p-15f, 0x1.2fdb26p-17f, 0x1.4dabd4p-20f},
    {-0x1.105512p-2f, -0x1.74d790p-3f, -0x1.41c80ep-8f, 0x1.fece28p-4f, 0x1.1e694ep-3f, 0x1.499b0ap-4f,
     0x1.2af23cp-6f, -0x1.88211cp-7f, -0x1.ffd3b4p-7f, -0x1.3cf0f2p-7f, -0x1.135570p-8f,
     -0x1.6ff8ccp-10f, -0x1.890af2p-12f, -0x1.565f20p-14f, -0x1.ec6416p-17f, -0x1.26a666p-19f},
    {0, 0x1.92c2e8p-4f, 0x1.c90976p-4f, 0x1.7fdd52p-5f, -0x1.6b6910p-6f, -0x1.7391a4p-5f,
     -0x1.f5970ap-6f, -0x1.27a218p-7f, 0x1.32a7a6p-9f, 0x1.140a12p-8f, 0x1.5738e0p-9f, 0x1.1d94f0p-10f,
     0x1.666cb2p-12f, 0x1.6363f8p-14f, 0x1.1d160cp-16f, 0x1.774de0p-19f},
    {0x1.e50e42p-5f, 0x1.08fcbap-5f, -0x1.2360d2p-6f, -0x1.4b8f06p-5f, -0x1.9b5ebep-6f,
     0x1.b23b50p-13f, 0x1.7a7f88p-7f, 0x1.245576p-7f, 0x1.7e912ep-9f, -0x1.775306p-12f,
     -0x1.ed1ca0p-11f, -0x1.2d6258p-11f, -0x1.db0b34p-13f, -0x1.163b54p-14f, -0x1.fe9b6cp-17f,
     -0x1.78dac8p-19f},
    {0, -0x1.4efb20p-6f, -0x1.2bc946p-6f, -0x1.8f928ap-12f, 0x1.6dc076p-7f, 0x1.1b69acp-7f,
     0x1.3303c6p-10f, -0x1.4fe118p-9f, -0x1.18a256p-9f, -0x1.6dc9c8p-11f, 0x1.09fe68p-14f,
     0x1.830cc0p-13f, 0x1.ba6d82p-14f, 0x1.410780p-15f, 0x1.578556p-17f, 0x1.1e6088p-19f},
};

/* table[low four bits of n], in each lane. */
static inline tn_vec tn_pick(const float *table, tn_mask n)
{
#if defined(__AVX512F__)
    return _mm512_permutexvar_ps((__m512i)n, _mm512_loadu_ps(table));
#elif defined(__AVX2__)
    __m256i at = (__m256i)n;
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), at),
           high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), at);

    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
#else
    tn_vec y;

    for (int i = 0; i < TN_W; i++)
        y[i] = table[n[i] & 15];
    return y;
#endif
}

static inline tn_vec tn_gelu_place(tn_vec x)
{
    tn_vec t = (tn_vec)((tn_mask)x & 0x7fffffff), last = tn_splat(TN_GELU_LAST);

    return tn_select(t > last, last, t);
}

/* h at t = |x|, at most TN_GELU_LAST. */
static inline tn_vec tn_gelu_tail(const float table[7][16], tn_vec t)
{
    const float magic = 12582912.0f;             /* a sum with it is an integer, in the low bits */
    tn_vec n = tn_fma(t, tn_splat(1 / TN_GELU_WIDTH), tn_splat(magic));
    tn_mask at = (tn_mask)n;
    tn_vec u = tn_fma(n - tn_splat(magic), tn_splat(-TN_GELU_WIDTH), t), y;

    y = tn_pick(table[6], at);
#pragma GCC unroll 6
    for (int i = 5; i >= 0; i--)
        y = tn_fma(y, u, tn_pick(table[i], at));
    return y;
}

/* x - x is NaN where x is infinite, else nothing. */
static inline tn_vec tn_gelu(tn_vec x)
{
    tn_vec t = tn_gelu_place(x), above = (tn_vec)((tn_mask)(x > tn_splat(0)) & (tn_mask)x);

    return tn_fma(t, tn_gelu_tail(tn_gelu_phi, t), above) +
           (tn_vec)((tn_mask)(x < tn_splat(0)) & (tn_mask)(x - x));
}

static inline tn_vec tn_gelu_derivative(tn_vec x)
{
    tn_vec h = tn_gelu_tail(tn_gelu_slope, tn_gelu_place(x));
    tn_mask bits = (tn_mask)x, one = ~(bits < 0) & (tn_mask)tn_splat(1);

    return (tn_vec)one + (tn_vec)((tn_mask)h ^ (bits & INT32_MIN)) + (x - x);
}
#endif
