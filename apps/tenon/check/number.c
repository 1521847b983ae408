/* number.c - numbers of every dtype as double: shared with no plugin and no part of the core, which they are to judge. */
#include <math.h>
#include <tenon/abi.h>
#include "number.h"

size_t tn_number_width(uint32_t dtype)
{
    static const uint8_t bytes[] = {
        [TN_F32] = 4, [TN_BF16] = 2, [TN_F16] = 2, [TN_I32] = 4, [TN_F64] = 8, [TN_I64] = 8, [TN_U8] = 1,
    };

    return dtype < sizeof bytes ? bytes[dtype] : 0;
}

/* By its bits, for it is asked for often: those of a double with another bias. */
static double half_value(uint16_t h)
{
    const uint64_t e = h >> 10 & 31, fraction = h & 1023, sign = (uint64_t)(h >> 15) << 63;
    const uint64_t bits = sign | (e == 31 ? 2047 : e + 1023 - 15) << 52 | fraction << 42;
    double v;

    if (e == 0)
        return (h & 0x8000 ? -0x1p-24 : 0x1p-24) * (double)fraction;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* The nearest one, of two the even one: below 2^-14 in steps of 2^-24, else with eleven bits. */
static uint16_t half_nearest(double v)
{
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    const double a = fabs(v);
    int e;

    if (isnan(v))
        return 0x7e00;
    if (a >= 65520)
        return sign | 0x7c00;
    if (a < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)nearbyint(a * 0x1p24));
    const double m = nearbyint(frexp(a, &e) * 2048);

    return (uint16_t)(sign | (((uint32_t)(e + 14) << 10) + (uint32_t)m - 1024));
}

void tn_number_write(uint32_t dtype, void *at, double v)
{
    float f = (float)v;
    uint32_t bits;

    switch (dtype) {
    case TN_F32: memcpy(at, &f, 4); break;
    case TN_F64: memcpy(at, &v, 8); break;
    case TN_F16: memcpy(at, &(uint16_t){half_nearest(v)}, 2); break;
    case TN_I32: memcpy(at, &(int32_t){(int32_t)v}, 4); break;
    case TN_I64: memcpy(at, &(int64_t){(int64_t)v}, 8); break;
    case TN_U8: memcpy(at, &(uint8_t){(uint8_t)(int)v}, 1); break;
    default:
        memcpy(&bits, &f, 4);
        if (!isnan(f))
            bits += 0x7fff + (bits >> 16 & 1);
        memcpy(at, &(uint16_t){(uint16_t)(bits >> 16)}, 2);
    }
}

double tn_number_read(uint32_t dtype, const void *at)
{
    uint32_t bits = 0;
    uint16_t half;
    int32_t i;
    int64_t l;
    double v;
    float f;

    switch (dtype) {
    case TN_F32: return memcpy(&f, at, 4), f;
    case TN_F64: return memcpy(&v, at, 8), v;
    case TN_F16: return memcpy(&half, at, 2), half_value(half);
    case TN_I32: return memcpy(&i, at, 4), i;
    case TN_I64: return memcpy(&l, at, 8), (double)l;
    case TN_U8: return *(const uint8_t *)at;
    }
    memcpy(&half, at, 2), bits = (uint32_t)half << 16;
    return memcpy(&f, &bits, 4), f;
}

void tn_number_set(uint32_t dtype, void *array, uint64_t i, double v)
{
    tn_number_write(dtype, (char *)array + i * tn_number_width(dtype), v);
}

double tn_number_get(uint32_t dtype, const void *array, uint64_t i)
{
    return tn_number_read(dtype, (const char *)array + i * tn_number_width(dtype));
}
