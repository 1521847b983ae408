/* gelu.h - gelu(x) = x·Φ(x) and its derivative, one vector at a time, Φ the normal distribution.
 *
 * Φ(t) - ½ and gelu'(t) - ½ are odd, and above 6 they are ½ to the last bit that matters. So |x| is enough: each of
 * 16 intervals, about the multiples of 0.39, has a polynomial of degree 5, and the coefficients are picked from tables
 * by the number of the interval, which vector instructions do in one step. An exponential and an error function
 * would cost three times as much.
 *
 * Errors, over all floats, against double: gelu 1.2e-7·max(1, |x|), the derivative 1.5e-7 absolute. NaN stays NaN,
 * and infinity becomes what the formula makes of it: gelu(-inf) and both derivatives are NaN. */
#ifndef TENON_CPU_GELU_H
#define TENON_CPU_GELU_H
#include "vec.h"

#define TN_GELU_WIDTH 0.390625f
#define TN_GELU_LAST 6.0f

/* [power][interval] */
static const float tn_gelu_phi[6][16] = {
    {0, 0x1.373842p-3f, 0x1.2174d6p-2f, 0x1.847b3ep-2f, 0x1.c37f30p-2f, 0x1.e5fceap-2f, 0x1.f639b6p-2f,
     0x1.fcccd0p-2f, 0x1.ff16f2p-2f, 0x1.ffc67ep-2f, 0x1.fff3b6p-2f, 0x1.fffdbap-2f, 0x1.ffffa4p-2f,
     0x1.fffff4p-2f, 0x1.fffffep-2f, 0x1.000000p-1f},
    {0x1.988454p-2f, 0x1.7a8240p-2f, 0x1.2d130ep-2f, 0x1.9b2e7cp-3f, 0x1.e21644p-4f, 0x1.e53b46p-5f,
     0x1.a347cap-6f, 0x1.3705cep-7f, 0x1.8c2226p-9f, 0x1.b12270p-11f, 0x1.96921ep-13f, 0x1.47a0dcp-15f,
     0x1.c54da8p-18f, 0x1.0d36ecp-20f, 0x1.12848ap-23f, 0x1.e09f8ap-27f},
    {0, -0x1.27b374p-4f, -0x1.d66b3ep-4f, -0x1.e1d998p-4f, -0x1.78a224p-4f, -0x1.d9de3ep-5f,
     -0x1.eb5aeap-6f, -0x1.a93aeap-7f, -0x1.35786cp-8f, -0x1.7ca582p-10f, -0x1.8cf49ep-12f,
     -0x1.5fce76p-14f, -0x1.097000p-16f, -0x1.55715ep-19f, -0x1.76c900p-22f, -0x1.5f51f0p-25f},
    {-0x1.105734p-4f, -0x1.abaa9cp-5f, -0x1.38d736p-6f, 0x1.994908p-7f, 0x1.cf3fcap-6f, 0x1.c742cap-6f,
     0x1.39fc80p-6f, 0x1.4fbe74p-7f, 0x1.215d92p-8f, 0x1.9a03f6p-10f, 0x1.e3138ap-12f, 0x1.dcbb38p-14f,
     0x1.8c0b08p-16f, 0x1.15f43ap-18f, 0x1.4a7b0ep-21f, 0x1.4d8302p-24f},
    {0, 0x1.162508p-6f, 0x1.73f568p-6f, 0x1.044fe0p-6f, 0x1.1bca14p-8f, -0x1.f86b6ap-9f,
     -0x1.954978p-8f, -0x1.3cbee4p-8f, -0x1.5e3590p-9f, -0x1.2b969ap-10f, -0x1.9b9f58p-12f,
     -0x1.cf2292p-14f, -0x1.afc3e0p-16f, -0x1.5017bap-18f, -0x1.b73ccep-21f, -0x1.e3c418p-24f},
    {0x1.4498b6p-7f, 0x1.a72bc4p-8f, -0x1.67a348p-11f, -0x1.6c9a12p-8f, -0x1.6bdcecp-8f,
     -0x1.59c536p-9f, 0x1.fb00f4p-16f, 0x1.205b5ep-10f, 0x1.05eadcp-10f, 0x1.2735f6p-11f,
     0x1.ec3286p-13f, 0x1.41f00cp-14f, 0x1.53e15ep-16f, 0x1.2644a0p-18f, 0x1.a6295cp-21f,
     0x1.f94562p-24f},
};
static const float tn_gelu_slope[6][16] = {
    {0, 0x1.2f7700p-2f, 0x1.0655dcp-1f, 0x1.3ab43ep-1f, 0x1.3fe7f2p-1f, 0x1.2e39f2p-1f, 0x1.19d25cp-1f,
     0x1.0bb038p-1f, 0x1.046164p-1f, 0x1.015feep-1f, 0x1.005d1ep-1f, 0x1.0014dcp-1f, 0x1.0003f8p-1f,
     0x1.0000a4p-1f, 0x1.000016p-1f, 0x1.000002p-1f},
    {0x1.988452p-1f, 0x1.5da180p-1f, 0x1.a2633ap-2f, 0x1.01b0f4p-3f, -0x1.a997a6p-5f, -0x1.b84632p-4f,
     -0x1.6e2762p-4f, -0x1.a9da50p-5f, -0x1.808726p-6f, -0x1.1871bcp-7f, -0x1.50ea26p-9f,
     -0x1.511c96p-11f, -0x1.1aed4cp-13f, -0x1.903e42p-16f, -0x1.ded028p-19f, -0x1.e59cb2p-22f},
    {0, -0x1.1c6992p-2f, -0x1.8ea1b6p-2f, -0x1.3c6c00p-2f, -0x1.258692p-3f, -0x1.5f762ap-7f,
     0x1.6ed22cp-5f, 0x1.719feap-5f, 0x1.be1d30p-6f, 0x1.8dd0e6p-7f, 0x1.176272p-8f, 0x1.3e1954p-10f,
     0x1.2a4374p-12f, 0x1.d122e6p-15f, 0x1.2f933ap-17f, 0x1.4d33f6p-20f},
    {-0x1.105632p-2f, -0x1.74d880p-3f, -0x1.41a208p-8f, 0x1.fed148p-4f, 0x1.1e69a6p-3f, 0x1.4999cep-4f,
     0x1.2aedd0p-6f, -0x1.8822c2p-7f, -0x1.ffd1bap-7f, -0x1.3cef48p-7f, -0x1.13546cp-8f,
     -0x1.6ff938p-10f, -0x1.890ed8p-12f, -0x1.56672ep-14f, -0x1.ec7942p-17f, -0x1.26badep-19f},
    {0, 0x1.8df7e2p-4f, 0x1.c4bf6ap-4f, 0x1.7fafc6p-5f, -0x1.60f182p-6f, -0x1.6f83a4p-5f,
     -0x1.f47e2ap-6f, -0x1.2c7084p-7f, 0x1.229880p-9f, 0x1.116c72p-8f, 0x1.57b2e0p-9f, 0x1.2059c4p-10f,
     0x1.6cc0d6p-12f, 0x1.6c92c8p-14f, 0x1.26e934p-16f, 0x1.87aed2p-19f},
    {0x1.e5ca7ap-5f, 0x1.094bacp-5f, -0x1.242824p-6f, -0x1.4c1216p-5f, -0x1.9b97dap-6f,
     0x1.e5cda2p-13f, 0x1.7b38f8p-7f, 0x1.247812p-7f, 0x1.7deb60p-9f, -0x1.7bb236p-12f,
     -0x1.edc61ep-11f, -0x1.2d507cp-11f, -0x1.da6796p-13f, -0x1.159262p-14f, -0x1.fcdf5ep-17f,
     -0x1.772d58p-19f},
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

/* The odd function of a table at |x|. */
static inline tn_vec tn_gelu_half(const float table[6][16], tn_vec t)
{
    const float magic = 12582912.0f;             /* a sum with it is an integer, in the low bits */
    tn_vec c = tn_select(t > tn_splat(TN_GELU_LAST), tn_splat(TN_GELU_LAST), t);
    tn_vec n = tn_fma(c, tn_splat(1 / TN_GELU_WIDTH), tn_splat(magic));
    tn_mask at = (tn_mask)n;
    tn_vec u = tn_fma(n - tn_splat(magic), tn_splat(-TN_GELU_WIDTH), c), y;

    y = tn_pick(table[5], at);
#pragma GCC unroll 5
    for (int i = 4; i >= 0; i--)
        y = tn_fma(y, u, tn_pick(table[i], at));
    return y;
}

static inline tn_vec tn_magnitude(tn_vec x)
{
    return (tn_vec)((tn_mask)x & 0x7fffffff);
}

static inline tn_vec tn_gelu(tn_vec x)
{
    tn_vec t = tn_magnitude(x);

    return tn_fma(t, tn_gelu_half(tn_gelu_phi, t), x * tn_splat(0.5f));
}

static inline tn_vec tn_gelu_derivative(tn_vec x)
{
    tn_vec y = tn_gelu_half(tn_gelu_slope, tn_magnitude(x));

    y = (tn_vec)((tn_mask)y ^ ((tn_mask)x & INT32_MIN));
    return y + tn_splat(0.5f) + (x - x);         /* x - x: NaN if x is infinite */
}
#endif
