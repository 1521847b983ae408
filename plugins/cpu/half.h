/* half.h - bf16 and fp16 from and to fp32, round to nearest even.
 *
 * bf16 is the upper half of fp32. fp16 goes through integer arithmetic that needs no support by the machine
 * and that the compiler vectorises. NaN stays NaN, what is too large becomes infinite. */
#ifndef TENON_CPU_HALF_H
#define TENON_CPU_HALF_H
#include <stdint.h>

union tn_word {
    float f;
    uint32_t u;
};

static inline uint16_t tn_to_bf16(float x)
{
    union tn_word w = {.f = x};
    uint32_t rounded = (w.u + 0x7fffu + (w.u >> 16 & 1)) >> 16;

    return (uint16_t)(x != x ? w.u >> 16 | 0x40u : rounded);
}
static inline float tn_from_bf16(uint16_t h)
{
    return (union tn_word){.u = (uint32_t)h << 16}.f;
}

/* Below 2^-14 the sum with 1/2 rounds to the spacing of fp16's subnormals, whose bits it then ends in. */
static inline uint16_t tn_to_f16(float x)
{
    union tn_word w = {.f = x}, small = {.u = w.u & 0x7fffffffu};
    uint32_t sign = w.u >> 16 & 0x8000u, a = small.u;
    uint32_t normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13;

    small.f += 0.5f;
    uint32_t tiny = small.u - 0x3f000000u, h = a < 0x38800000u ? tiny : normal;

    h = a >= 0x477ff000u ? 0x7c00u : h;
    return (uint16_t)(sign | (a > 0x7f800000u ? 0x7e00u : h));
}
static inline float tn_from_f16(uint16_t h)
{
    uint32_t a = h & 0x7fffu;
    union tn_word normal = {.u = (a << 13) + 0x38000000u}, special = {.u = (a << 13) + 0x70000000u}, y;

    y.f = a < 0x400u ? (float)(int32_t)a * 0x1p-24f : normal.f;
    y.u = a >= 0x7c00u ? special.u : y.u;
    y.u |= (uint32_t)(h & 0x8000u) << 16;
    return y.f;
}
#endif
