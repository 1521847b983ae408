/* vmath.h - exp, log, tanh, erf in plain C that the compiler turns into vector code.
 *
 * No branch, no call: each choice is a select, each table a polynomial (minimax, fitted for this file).
 * Within 2 ulp of the true value, subnormals included; infinities and signs as in libm; NaN stays NaN because
 * clamps are written "t > c ? c : t", which lets it through. Needs -fno-math-errno -fno-trapping-math, or the
 * loops around these stay scalar. With FMA the polynomials use it, else two roundings: the bits of the two
 * differ. */
#ifndef TENON_CPU_VMATH_H
#define TENON_CPU_VMATH_H
#include <math.h>
#include <stdint.h>

#ifdef __FMA__
#define TN_MADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define TN_MADD(a, b, c) ((a) * (b) + (c))
#endif
#define TN_LN2_HIGH 0.693359375f                 /* few bits, so that its product with an exponent is exact */
#define TN_LN2_LOW -2.12194440e-4f

union tn_bits {
    float f;
    uint32_t u;
};

/* 2^e for -126 <= e <= 127. Unsigned, for e is garbage where x was NaN. */
static inline float tn_power_of_two(uint32_t e)
{
    return (union tn_bits){.u = (e + 127u) << 23}.f;
}

/* x = k·ln 2 + r; exp = 2^k·(1 + r + r²·P(r)). 2^k goes in two halves, so that results near either end of the
 * range round once. */
static inline float tn_exp(float x)
{
    const float magic = 12582912.0f;             /* 1.5·2^23: a sum with it is an integer, in the low bits */
    float t = x > 89.0f ? 89.0f : x;
    union tn_bits n;

    t = t < -104.0f ? -104.0f : t;
    n.f = TN_MADD(t, 1.44269504f, magic);
    float k = n.f - magic;
    float r = TN_MADD(k, -TN_LN2_LOW, TN_MADD(k, -TN_LN2_HIGH, t));
    float p = 0x1.6a1f5cp-10f;

    p = TN_MADD(p, r, 0x1.123cccp-7f);
    p = TN_MADD(p, r, 0x1.555904p-5f);
    p = TN_MADD(p, r, 0x1.55548ep-3f);
    p = TN_MADD(p, r, 0x1.fffffcp-2f);
    float y = 1.0f + TN_MADD(r * r, p, r);
    uint32_t e = n.u - 0x4b400000u, half = ((e + 512u) >> 1) - 256u;

    return y * tn_power_of_two(half) * tn_power_of_two(e - half);
}

/* x = 2^e·(1 + f) with 1 + f in [√½, √2); log = e·ln 2 + f - f²/2 + f³·P(f). */
static inline float tn_log(float x)
{
    const float sqrt_half = 0x1.6a09e6p-1f;
    float small = x < 0x1p-126f ? 0x1p23f : 1.0f;
    union tn_bits b = {.f = x * small}, m, root = {.f = sqrt_half};
    uint32_t u = b.u - root.u;

    m.u = (u & 0x7fffffu) + root.u;
    float e = (float)((int32_t)u >> 23) - (small != 1.0f ? 23.0f : 0.0f);
    float f = m.f - 1.0f, s = f * f, p = 0x1.1457e4p-4f;

    p = TN_MADD(p, f, -0x1.de3bf6p-4f);
    p = TN_MADD(p, f, 0x1.e6f03cp-4f);
    p = TN_MADD(p, f, -0x1.fc2208p-4f);
    p = TN_MADD(p, f, 0x1.23376cp-3f);
    p = TN_MADD(p, f, -0x1.555c4ep-3f);
    p = TN_MADD(p, f, 0x1.99a4b6p-3f);
    p = TN_MADD(p, f, -0x1.000006p-2f);
    p = TN_MADD(p, f, 0x1.555548p-2f);
    float y = TN_MADD(e, TN_LN2_LOW, p * f * s);

    y = TN_MADD(-0.5f, s, y) + f;
    y = TN_MADD(e, TN_LN2_HIGH, y);
    y = x == INFINITY ? INFINITY : y;
    y = x == 0.0f ? -INFINITY : y;
    return x < 0.0f ? NAN : x != x ? x : y;
}

static inline float tn_with_sign(float magnitude, float sign)
{
    union tn_bits a = {.f = magnitude}, s = {.f = sign};

    return (union tn_bits){.u = (a.u & 0x7fffffffu) | (s.u & 0x80000000u)}.f;
}

/* |x| < 5/8: x + x³·P(x²); beyond: 1 - 2/(exp(2|x|) + 1). */
static inline float tn_tanh(float x)
{
    float s = x * x, p = -0x1.72fc4cp-8f;

    p = TN_MADD(p, s, 0x1.518b16p-6f);
    p = TN_MADD(p, s, -0x1.b8265ep-5f);
    p = TN_MADD(p, s, 0x1.11068ep-3f);
    p = TN_MADD(p, s, -0x1.555530p-2f);
    float t = fabsf(x), near = TN_MADD(p * s, x, x);
    float far = tn_with_sign(1.0f - 2.0f / (tn_exp(2.0f * t) + 1.0f), x);

    return t > 0.625f ? far : near;
}

/* |x| < 0.92: x + x·P(x²); beyond: 1 - exp(t·Q(t) - t), t = |x|, from log erfc; 1 from t = 4 on. */
static inline float tn_erf(float x)
{
    float s = x * x, p = 0x1.60bcc2p-14f, t = fabsf(x), c = t > 4.0f ? 4.0f : t, q = 0x1.c0c1c2p-13f;

    p = TN_MADD(p, s, -0x1.ab6eb2p-11f);
    p = TN_MADD(p, s, 0x1.54ea68p-8f);
    p = TN_MADD(p, s, -0x1.b8122ap-6f);
    p = TN_MADD(p, s, 0x1.ce2e34p-4f);
    p = TN_MADD(p, s, -0x1.812744p-2f);
    p = TN_MADD(p, s, 0x1.06eba8p-3f);
    q = TN_MADD(q, c, -0x1.a563c0p-9f);
    q = TN_MADD(q, c, 0x1.77075ep-6f);
    q = TN_MADD(q, c, -0x1.af2702p-4f);
    q = TN_MADD(q, c, -0x1.457ce0p-1f);
    q = TN_MADD(q, c, -0x1.073288p-3f);
    float near = TN_MADD(p, x, x), far = tn_with_sign(1.0f - tn_exp(TN_MADD(q, c, -c)), x);

    return t > 0.92f ? far : near;
}
#endif
