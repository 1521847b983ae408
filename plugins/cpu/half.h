/* half.h - bf16 and fp16 from and to fp32, round to nearest even.
 *
 * bf16 is the upper half of fp32. fp16 goes through F16C where the level has it, else through integer
 * arithmetic that needs no support by the machine and that the compiler vectorises. NaN stays NaN, what is
 * too large becomes infinite. Runs of elements are converted by tn_half_load and tn_half_store. */
#ifndef TENON_CPU_HALF_H
#define TENON_CPU_HALF_H
#include <stdint.h>
#include <string.h>
#include <tenon/abi.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

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

static inline int tn_is_half(uint32_t dtype)
{
    return dtype == TN_BF16 || dtype == TN_F16;
}
static inline int64_t tn_width(uint32_t dtype)
{
    return tn_is_half(dtype) ? 2 : 4;
}

__attribute__((unused)) static void tn_load_f16(const uint16_t *x, int64_t n, float *y)
{
    int64_t i = 0;

#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#endif
    for (; i < n; i++)
        y[i] = tn_from_f16(x[i]);
}
__attribute__((unused)) static void tn_store_f16(const float *x, int64_t n, uint16_t *y)
{
    int64_t i = 0;

#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        y[i] = tn_to_f16(x[i]);
}

/* y[i] = x[i·step], n of them; x is of this dtype: bf16, fp16 or fp32. */
__attribute__((unused)) static void tn_half_load(uint32_t dtype, const void *from, int64_t step, int64_t n,
                                                 float *y)
{
    const uint16_t *x = from;
    const float *f = from;

    if (dtype == TN_F32 && step == 1)
        memcpy(y, f, (size_t)n * sizeof *y);
    else if (dtype == TN_F32)
        for (int64_t i = 0; i < n; i++)
            y[i] = f[i * step];
    else if (dtype == TN_BF16 && step == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] = tn_from_bf16(x[i]);
    else if (dtype == TN_BF16)
        for (int64_t i = 0; i < n; i++)
            y[i] = tn_from_bf16(x[i * step]);
    else if (step == 1)
        tn_load_f16(x, n, y);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = tn_from_f16(x[i * step]);
}
/* y[i·step] = x[i], y of this dtype. */
__attribute__((unused)) static void tn_half_store(uint32_t dtype, const float *x, int64_t step, int64_t n,
                                                  void *to)
{
    uint16_t *y = to;
    float *f = to;

    if (dtype == TN_F32 && step == 1)
        memmove(f, x, (size_t)n * sizeof *x);
    else if (dtype == TN_F32)
        for (int64_t i = 0; i < n; i++)
            f[i * step] = x[i];
    else if (dtype == TN_BF16 && step == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] = tn_to_bf16(x[i]);
    else if (dtype == TN_BF16)
        for (int64_t i = 0; i < n; i++)
            y[i * step] = tn_to_bf16(x[i]);
    else if (step == 1)
        tn_store_f16(x, n, y);
    else
        for (int64_t i = 0; i < n; i++)
            y[i * step] = tn_to_f16(x[i]);
}
#endif
