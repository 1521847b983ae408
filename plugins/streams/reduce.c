/* reduce.c - parts of all ranks made one, in the order of ranks whatever came first.
 *
 * Blocks of a fixed number of elements go through an accumulator of the type that is added in: fp32 for the
 * halves, else the type itself. Each part is read once and each result rounded once, so where a block ends or
 * who adds changes no bit. Integers wrap, which is why they are added unsigned. */
#include "streams.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc's O2 would not vectorise these loops */
#endif

#define BLOCK 512

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* To nearest, ties to even; a NaN stays one. */
static uint16_t to_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* The exponent is moved by a multiplication, which makes subnormal numbers right as well. */
static float from_f16(uint16_t h)
{
    uint32_t u = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    float f;

    if ((h & 0x7c00) == 0x7c00) {
        u |= 0x7f800000;
    } else {
        memcpy(&f, &u, sizeof f);
        f *= 0x1p112f;
        memcpy(&u, &f, sizeof u);
    }
    u |= sign;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint16_t to_f16(float f)
{
    uint32_t u, sign;

    memcpy(&u, &f, sizeof u);
    sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x3ff));
    if (u >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (u < 0x38800000) { /* below 2^-14: the sum's last bit is 2^-24 */
        float sum;
        memcpy(&sum, &u, sizeof sum);
        sum += 0.5f;
        memcpy(&u, &sum, sizeof u);
        return (uint16_t)(sign | (u - 0x3f000000));
    }
    u += 0xfff + (u >> 13 & 1);
    return (uint16_t)(sign | ((u - 0x38000000) >> 13));
}

#define SAME(x) (x)
#define ADD(a, b) ((a) + (b))
#define MAXIMUM(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define MINIMUM(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

/* Of two parts, without the accumulator: y may be one of them, never another place in it. */
#define PAIR(OP, T, ACC, FROM, TO)                                                                           \
    {                                                                                                        \
        const T *a = part[0], *b = part[1];                                                                  \
        T *y = out;                                                                                          \
        _Pragma("GCC ivdep") for (uint64_t i = 0; i < count; i++)                                            \
        {                                                                                                    \
            const ACC u = FROM(a[i]), v = FROM(b[i]);                                                        \
            y[i] = (T)TO(OP(u, v));                                                                          \
        }                                                                                                    \
        return;                                                                                              \
    }

#define LOOP(OP, T, ACC, FROM)                                                                               \
    for (uint32_t p = 1; p < n; p++) {                                                                       \
        const T *x = (const T *)part[p] + at;                                                                \
        for (uint64_t i = 0; i < m; i++) {                                                                   \
            const ACC b = FROM(x[i]);                                                                        \
            acc[i] = OP(acc[i], b);                                                                          \
        }                                                                                                    \
    }

/* T: in memory. ACC: what is added in. */
#define REDUCE(NAME, T, ACC, FROM, TO)                                                                       \
    static void NAME(uint32_t reduce, const void *const *part, uint32_t n, uint64_t count, void *out)        \
    {                                                                                                        \
        ACC acc[BLOCK];                                                                                      \
                                                                                                             \
        if (n == 2 && reduce == TN_SUM)                                                                      \
            PAIR(ADD, T, ACC, FROM, TO)                                                                      \
                                                                                                             \
        for (uint64_t at = 0; at < count; at += BLOCK) {                                                     \
            const uint64_t m = count - at < BLOCK ? count - at : BLOCK;                                      \
            T *y = (T *)out + at;                                                                            \
            for (uint64_t i = 0; i < m; i++)                                                                 \
                acc[i] = FROM(((const T *)part[0])[at + i]);                                                 \
            if (reduce == TN_SUM) {                                                                          \
                LOOP(ADD, T, ACC, FROM)                                                                      \
            } else if (reduce == TN_MAX) {                                                                   \
                LOOP(MAXIMUM, T, ACC, FROM)                                                                  \
            } else {                                                                                         \
                LOOP(MINIMUM, T, ACC, FROM)                                                                  \
            }                                                                                                \
            for (uint64_t i = 0; i < m; i++)                                                                 \
                y[i] = (T)TO(acc[i]);                                                                        \
        }                                                                                                    \
    }

REDUCE(reduce_f32, float, float, SAME, SAME)
REDUCE(reduce_f64, double, double, SAME, SAME)
REDUCE(reduce_bf16, uint16_t, float, from_bf16, to_bf16)
REDUCE(reduce_f16, uint16_t, float, from_f16, to_f16)
REDUCE(reduce_u8, uint8_t, uint8_t, SAME, SAME)
REDUCE(order_i32, int32_t, int32_t, SAME, SAME)
REDUCE(order_i64, int64_t, int64_t, SAME, SAME)
REDUCE(add_u32, uint32_t, uint32_t, SAME, SAME)
REDUCE(add_u64, uint64_t, uint64_t, SAME, SAME)

void tn_reduce(uint32_t dtype, uint32_t reduce, const void *const *part, uint32_t n, uint64_t count,
               void *out)
{
    switch (dtype) {
    case TN_F32: reduce_f32(reduce, part, n, count, out); break;
    case TN_F64: reduce_f64(reduce, part, n, count, out); break;
    case TN_BF16: reduce_bf16(reduce, part, n, count, out); break;
    case TN_F16: reduce_f16(reduce, part, n, count, out); break;
    case TN_U8: reduce_u8(reduce, part, n, count, out); break;
    case TN_I32: (reduce == TN_SUM ? add_u32 : order_i32)(reduce, part, n, count, out); break;
    case TN_I64: (reduce == TN_SUM ? add_u64 : order_i64)(reduce, part, n, count, out); break;
    default: break;
    }
}
