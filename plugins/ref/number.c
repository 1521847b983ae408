/* number.c - every dtype as double, and back by rounding once to nearest, ties to even.
 *
 * bf16 and fp16 are floating-point numbers of 8 and 11 significant bits. A double is first rounded to such a
 * number, still as a double, and then written down; so there is no double rounding through fp32. */
#include "ref.h"

int tn_ref_knows(uint32_t dtype)
{
    return dtype == TN_F32 || dtype == TN_F64 || dtype == TN_I32 || dtype == TN_BF16 || dtype == TN_F16;
}

/* v to a multiple of the unit in its last place; low: exponent of the smallest normal number, high: of the
 * largest. */
static double round_to(double v, int bits, int low, int high)
{
    int e;
    double unit;

    if (!isfinite(v) || v == 0)
        return v;
    e = ilogb(v);
    unit = ldexp(1, (e < low ? low : e) - bits + 1);
    v = rint(v / unit) * unit;
    return fabs(v) >= ldexp(1, high + 1) ? copysign(INFINITY, v) : v;
}

static uint16_t to_bf16(double v)
{
    float f = (float)round_to(v, 8, -126, 127);
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static double from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* fp16: sign, 5 bits of exponent with bias 15, 10 bits of fraction. */
static uint16_t to_f16(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    int e;

    if (isnan(v))
        return sign | 0x7e00;
    v = fabs(round_to(v, 11, -14, 15));
    if (isinf(v))
        return sign | 0x7c00;
    if (v < ldexp(1, -14))
        return sign | (uint16_t)ldexp(v, 24);
    e = ilogb(v);
    return sign | (uint16_t)((e + 15) << 10) | (uint16_t)(ldexp(v, 10 - e) - 1024);
}

static double from_f16(uint16_t h)
{
    int e = h >> 10 & 31, fraction = h & 1023;
    double v = e == 31 ? fraction ? NAN : INFINITY
               : e     ? ldexp(1024 + fraction, e - 25)
                       : ldexp(fraction, -24);

    return h & 0x8000 ? -v : v;
}

double tn_ref_load_other(uint32_t dtype, const void *buffer, int64_t at)
{
    switch (dtype) {
    case TN_I32: return ((const int32_t *)buffer)[at];
    case TN_BF16: return from_bf16(((const uint16_t *)buffer)[at]);
    case TN_F16: return from_f16(((const uint16_t *)buffer)[at]);
    default: return ((const double *)buffer)[at];
    }
}

void tn_ref_store_other(uint32_t dtype, void *buffer, int64_t at, double value)
{
    switch (dtype) {
    case TN_I32:
        ((int32_t *)buffer)[at] = fabs(value) < 2147483647.5 ? (int32_t)rint(value) : INT32_MIN;
        break;
    case TN_BF16: ((uint16_t *)buffer)[at] = to_bf16(value); break;
    case TN_F16: ((uint16_t *)buffer)[at] = to_f16(value); break;
    default: ((double *)buffer)[at] = value;
    }
}
