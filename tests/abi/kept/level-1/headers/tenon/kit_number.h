/* kit_number.h - for authors: every dtype as double, and back by rounding once to nearest, ties to even.
 *
 * Inline code over the public types, no part of the ABI: a plugin that uses it carries its own copy. bf16 and fp16
 * are floating-point numbers of 8 and 11 significant bits. A double is first rounded to such a number, still as a
 * double, and then written down; so there is no double rounding through fp32. Any thread; no errors: an unknown
 * dtype is what tn_kit_width says 0 of, and is declined before anything is loaded. */
#ifndef TENON_KIT_NUMBER_H
#define TENON_KIT_NUMBER_H
#include <math.h>
#include <tenon/abi.h>

#define TN_KIT static inline __attribute__((unused))

/* Bytes of one element; 0: no such dtype. */
TN_KIT uint64_t tn_kit_width(uint32_t dtype)
{
    switch (dtype) {
    case TN_F32: case TN_I32: return 4;
    case TN_BF16: case TN_F16: return 2;
    case TN_F64: case TN_I64: return 8;
    case TN_U8: return 1;
    default: return 0;
    }
}

/* v to a multiple of the unit in its last place, of `bits` significant bits; low: exponent of the smallest normal
 * number, high: of the largest. */
TN_KIT double tn_kit_round(double v, int bits, int low, int high)
{
    int e;
    double unit;

    if (!isfinite(v) || v == 0)
        return v;
    e = ilogb(v);
    unit = ldexp(1, (e < low ? low : e) - bits + 1);
    v = rint(v / unit) * unit;
    return fabs(v) >= ldexp(1, high + 1) ? copysign((double)INFINITY, v) : v;
}

/* The bits of v in bf16. */
TN_KIT uint16_t tn_kit_to_bf16(double v)
{
    float f = (float)tn_kit_round(v, 8, -126, 127);
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* The value of bits in bf16. */
TN_KIT double tn_kit_from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* The bits of v in fp16: sign, 5 bits of exponent with bias 15, 10 bits of fraction. */
TN_KIT uint16_t tn_kit_to_f16(double v)
{
    const uint32_t sign = signbit(v) ? 0x8000 : 0;
    int e;

    if (isnan(v))
        return (uint16_t)(sign | 0x7e00);
    v = fabs(tn_kit_round(v, 11, -14, 15));
    if (isinf(v))
        return (uint16_t)(sign | 0x7c00);
    if (v < ldexp(1, -14))
        return (uint16_t)(sign | (uint32_t)ldexp(v, 24));
    e = ilogb(v);
    return (uint16_t)((sign | (uint32_t)(e + 15) << 10) | ((uint32_t)ldexp(v, 10 - e) - 1024));
}

/* The value of bits in fp16. */
TN_KIT double tn_kit_from_f16(uint16_t h)
{
    const int e = h >> 10 & 31, fraction = h & 1023;
    double v = e ? ldexp(1024 + fraction, e - 25) : ldexp(fraction, -24);

    if (e == 31)
        v = (double)(fraction ? NAN : INFINITY);
    return h & 0x8000 ? -v : v;
}

/* Element `at` of a buffer. */
TN_KIT double tn_kit_load(uint32_t dtype, const void *buffer, int64_t at)
{
    switch (dtype) {
    case TN_F32: return (double)((const float *)buffer)[at];
    case TN_F64: return ((const double *)buffer)[at];
    case TN_BF16: return tn_kit_from_bf16(((const uint16_t *)buffer)[at]);
    case TN_F16: return tn_kit_from_f16(((const uint16_t *)buffer)[at]);
    case TN_I32: return ((const int32_t *)buffer)[at];
    case TN_I64: return (double)((const int64_t *)buffer)[at];
    case TN_U8: return ((const uint8_t *)buffer)[at];
    default: return (double)NAN;
    }
}

/* The same, written. What no integer is, NaN too, becomes the least one (0 of TN_U8). */
TN_KIT void tn_kit_store(uint32_t dtype, void *buffer, int64_t at, double value)
{
    switch (dtype) {
    case TN_F32: ((float *)buffer)[at] = (float)value; break;
    case TN_F64: ((double *)buffer)[at] = value; break;
    case TN_BF16: ((uint16_t *)buffer)[at] = tn_kit_to_bf16(value); break;
    case TN_F16: ((uint16_t *)buffer)[at] = tn_kit_to_f16(value); break;
    case TN_I32:
        ((int32_t *)buffer)[at] = fabs(value) < 2147483647.5 ? (int32_t)rint(value) : INT32_MIN;
        break;
    case TN_I64:
        ((int64_t *)buffer)[at] = fabs(value) < 9223372036854775808.0 ? (int64_t)rint(value) : INT64_MIN;
        break;
    case TN_U8: ((uint8_t *)buffer)[at] = value >= 0 && value <= 255 ? (uint8_t)rint(value) : 0; break;
    default: break;
    }
}
#endif
