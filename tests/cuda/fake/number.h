/* number.h - numbers of 16 and 32 bits as double, for the fake libraries. */
#ifndef TN_FAKE_NUMBER_H
#define TN_FAKE_NUMBER_H
#include <library_types.h>
#include <stdint.h>
#include <string.h>

static inline float tn_fake_bf16(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t tn_fake_to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof f);
    return f != f ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline double tn_fake_get(cudaDataType_t type, const void *base, int64_t at)
{
    _Float16 h;

    if (type == CUDA_R_32F)
        return ((const float *)base)[at];
    if (type == CUDA_R_16BF)
        return tn_fake_bf16(((const uint16_t *)base)[at]);
    memcpy(&h, (const uint16_t *)base + at, sizeof h);
    return (double)h;
}

/* Rounded as the device does: to fp32, and from there. */
static inline void tn_fake_put_number(cudaDataType_t type, void *base, int64_t at, double v)
{
    const _Float16 h = (_Float16)(float)v;

    if (type == CUDA_R_32F)
        ((float *)base)[at] = (float)v;
    else if (type == CUDA_R_16BF)
        ((uint16_t *)base)[at] = tn_fake_to_bf16((float)v);
    else
        memcpy((uint16_t *)base + at, &h, sizeof h);
}

static inline uint32_t tn_fake_width(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : 2;
}
#endif
