/* cu.cuh - under every kernel: CUDA or its emulation, numbers of every dtype, offsets, sums over a warp.
 *
 * Kernels are written with the TN_ macros so that the host's compiler can take them too: it is told to include
 * tests/cuda/emu.h first, which has the same macros and what CUDA's headers declare.
 * Arithmetic is in fp32; dtypes are met only in tn_get and tn_put, whose switch is the same for all threads. */
#ifndef TENON_CUDA_CU_CUH
#define TENON_CUDA_CU_CUH
#include <float.h>
#include <math.h>
#include "nest.h"
#ifndef TN_CUDA_EMULATED
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define TN_PARAM(type) const __grid_constant__ type
#define TN_SHARED(type, name, n) __shared__ type name[n]
#define TN_LAUNCH(kernel, grid, block, queue, ...)                                                    \
    (kernel<<<grid, block, 0, (cudaStream_t)tn_cuda_stream(queue)>>>(__VA_ARGS__), tn_cuda_launched(#kernel))
#endif

#define TN_DEVICE __device__ __forceinline__
#define TN_KERNEL(...) static __global__ void __launch_bounds__(__VA_ARGS__) /* threads, blocks at a time */
#define TN_ALL 0xffffffffu                       /* all lanes of a warp */

/* --- numbers */
#ifdef TN_CUDA_EMULATED
TN_DEVICE float tn_from_bf16(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}

TN_DEVICE uint16_t tn_to_bf16(float f)
{
    const uint32_t bits = __float_as_uint(f);

    return f != f ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

TN_DEVICE float tn_from_f16(uint16_t h)
{
    _Float16 f;

    memcpy(&f, &h, sizeof f);
    return (float)f;
}

TN_DEVICE uint16_t tn_to_f16(float v)
{
    const _Float16 f = (_Float16)v;
    uint16_t h;

    memcpy(&h, &f, sizeof h);
    return h;
}
#else
TN_DEVICE float tn_from_bf16(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}

TN_DEVICE uint16_t tn_to_bf16(float f)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(f));
}

TN_DEVICE float tn_from_f16(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

TN_DEVICE uint16_t tn_to_f16(float v)
{
    return __half_as_ushort(__float2half_rn(v));
}
#endif

TN_DEVICE float tn_get(uint32_t dtype, const char *base, int64_t at)
{
    switch (dtype) {
    case TN_F32: return ((const float *)base)[at];
    case TN_BF16: return tn_from_bf16(((const uint16_t *)base)[at]);
    case TN_F16: return tn_from_f16(((const uint16_t *)base)[at]);
    default: return (float)((const int32_t *)base)[at];
    }
}

TN_DEVICE void tn_put(uint32_t dtype, char *base, int64_t at, float v)
{
    switch (dtype) {
    case TN_F32: ((float *)base)[at] = v; break;
    case TN_BF16: ((uint16_t *)base)[at] = tn_to_bf16(v); break;
    case TN_F16: ((uint16_t *)base)[at] = tn_to_f16(v); break;
    default: ((int32_t *)base)[at] = (int32_t)rintf(v);
    }
}

TN_DEVICE void tn_put_or_add(uint32_t dtype, uint32_t add, char *base, int64_t at, float v)
{
    tn_put(dtype, base, at, add ? v + tn_get(dtype, base, at) : v);
}

/* Four neighbours at once: 16 or 8 bytes, aligned to that. */
struct alignas(16) tn_f4 {
    float v[4];
};
struct alignas(8) tn_h4 {
    uint16_t v[4];
};

TN_DEVICE void tn_check_aligned(const void *at, size_t bytes)
{
#ifdef TN_CUDA_EMULATED
    emu_aligned(at, bytes);
#else
    (void)at, (void)bytes;
#endif
}

TN_DEVICE tn_f4 tn_get4(uint32_t dtype, const char *base, int64_t at)
{
    tn_f4 f;

    if (dtype == TN_F32) {
        tn_check_aligned((const float *)base + at, 16);
        return *(const tn_f4 *)((const float *)base + at);
    }
    if (dtype == TN_I32) {
        for (int i = 0; i < 4; i++)
            f.v[i] = (float)((const int32_t *)base)[at + i];
        return f;
    }
    tn_check_aligned((const uint16_t *)base + at, 8);
    const tn_h4 h = *(const tn_h4 *)((const uint16_t *)base + at);

    for (int i = 0; i < 4; i++)
        f.v[i] = dtype == TN_BF16 ? tn_from_bf16(h.v[i]) : tn_from_f16(h.v[i]);
    return f;
}

TN_DEVICE void tn_put4(uint32_t dtype, char *base, int64_t at, tn_f4 f)
{
    tn_h4 h;

    if (dtype == TN_F32) {
        tn_check_aligned((float *)base + at, 16);
        *(tn_f4 *)((float *)base + at) = f;
        return;
    }
    for (int i = 0; i < 4; i++)
        h.v[i] = dtype == TN_BF16 ? tn_to_bf16(f.v[i]) : tn_to_f16(f.v[i]);
    tn_check_aligned((uint16_t *)base + at, 8);
    *(tn_h4 *)((uint16_t *)base + at) = h;
}

/* Eight neighbours: one access of 16 bytes in two bytes, two of them in fp32. */
struct tn_f8 {
    float v[8];
};
struct alignas(16) tn_h8 {
    uint16_t v[8];
};

TN_DEVICE tn_f8 tn_get8(uint32_t dtype, const char *base, int64_t at)
{
    tn_f8 f;

    if (dtype == TN_F32) {
        for (int i = 0; i < 8; i += 4) {
            const tn_f4 part = tn_get4(dtype, base, at + i);

            for (int q = 0; q < 4; q++)
                f.v[i + q] = part.v[q];
        }
        return f;
    }
    tn_check_aligned((const uint16_t *)base + at, 16);
    const tn_h8 h = *(const tn_h8 *)((const uint16_t *)base + at);

    for (int i = 0; i < 8; i++)
        f.v[i] = dtype == TN_BF16 ? tn_from_bf16(h.v[i]) : tn_from_f16(h.v[i]);
    return f;
}

TN_DEVICE void tn_put8(uint32_t dtype, char *base, int64_t at, tn_f8 f)
{
    tn_h8 h;

    if (dtype == TN_F32) {
        for (int i = 0; i < 8; i += 4)
            tn_put4(dtype, base, at + i, tn_f4{{f.v[i], f.v[i + 1], f.v[i + 2], f.v[i + 3]}});
        return;
    }
    for (int i = 0; i < 8; i++)
        h.v[i] = dtype == TN_BF16 ? tn_to_bf16(f.v[i]) : tn_to_f16(f.v[i]);
    tn_check_aligned((uint16_t *)base + at, 16);
    *(tn_h8 *)((uint16_t *)base + at) = h;
}

/* --- offsets */
TN_DEVICE int64_t tn_axis_at(const tn_cuda_axis &axis, uint32_t i)
{
    int64_t at = 0;

    if (axis.n == 0)
        return 0;
    for (uint32_t l = axis.n - 1; l; l--) {
        at += i % axis.size[l] * axis.stride[l];
        i /= axis.size[l];
    }
    return at + i * axis.stride[0];
}

/* Turn number i of a nest: one count per loop. */
struct tn_turn {
    uint32_t c[TN_CUDA_LOOPS];
};

TN_DEVICE tn_turn tn_nest_turn(const tn_cuda_nest &nest, uint32_t i)
{
    tn_turn t;

#pragma unroll
    for (int l = TN_CUDA_LOOPS - 1; l >= 0; l--) {
        t.c[l] = 0;
        if (l > 0 && l < (int)nest.n) {
            t.c[l] = i % nest.size[l];
            i /= nest.size[l];
        }
    }
    t.c[0] = i;
    return t;
}

TN_DEVICE int64_t tn_nest_at(const tn_cuda_nest &nest, const tn_turn &t, uint32_t op)
{
    int64_t at = 0;

#pragma unroll
    for (int l = 0; l < TN_CUDA_LOOPS; l++)
        if (l < (int)nest.n)
            at += t.c[l] * nest.stride[l][op];
    return at;
}

/* --- rows of a view: row is the offset of the row */
TN_DEVICE float tn_view_get(const tn_cuda_view &v, int64_t row, uint32_t c)
{
    return tn_get(v.dtype, v.base, row + tn_axis_at(v.col, c));
}

TN_DEVICE void tn_view_put(const tn_cuda_view &v, int64_t row, uint32_t c, float x)
{
    tn_put_or_add(v.dtype, v.add, v.base, row + tn_axis_at(v.col, c), x);
}

/* Columns c..c+3 as far as there are any; 0 for those behind the end. */
TN_DEVICE tn_f4 tn_view_get4(const tn_cuda_view &v, int64_t row, uint32_t c)
{
    tn_f4 f;

    if (v.wide)
        return tn_get4(v.dtype, v.base, row + c);
    for (uint32_t i = 0; i < 4; i++)
        f.v[i] = c + i < v.col.total ? tn_view_get(v, row, c + i) : 0.0f;
    return f;
}

TN_DEVICE void tn_view_put4(const tn_cuda_view &v, int64_t row, uint32_t c, tn_f4 f)
{
    if (v.wide) {
        if (v.add) {
            const tn_f4 old = tn_get4(v.dtype, v.base, row + c);

            for (int i = 0; i < 4; i++)
                f.v[i] += old.v[i];
        }
        tn_put4(v.dtype, v.base, row + c, f);
        return;
    }
    for (uint32_t i = 0; i < 4; i++)
        if (c + i < v.col.total)
            tn_view_put(v, row, c + i, f.v[i]);
}

/* The same for columns c..c+7. */
TN_DEVICE tn_f8 tn_view_get8(const tn_cuda_view &v, int64_t row, uint32_t c)
{
    tn_f8 f;

    if (v.wide == 8)
        return tn_get8(v.dtype, v.base, row + c);
    for (uint32_t i = 0; i < 8; i++)
        f.v[i] = c + i < v.col.total ? tn_view_get(v, row, c + i) : 0.0f;
    return f;
}

TN_DEVICE void tn_view_put8(const tn_cuda_view &v, int64_t row, uint32_t c, tn_f8 f)
{
    if (v.wide == 8) {
        if (v.add) {
            const tn_f8 old = tn_get8(v.dtype, v.base, row + c);

            for (int i = 0; i < 8; i++)
                f.v[i] += old.v[i];
        }
        tn_put8(v.dtype, v.base, row + c, f);
        return;
    }
    for (uint32_t i = 0; i < 8; i++)
        if (c + i < v.col.total)
            tn_view_put(v, row, c + i, f.v[i]);
}

/* --- global indices */
TN_DEVICE int64_t tn_map_global(const tn_cuda_map &map, int64_t i)
{
    int64_t id = i + map.global[0];

    for (uint32_t r = 1; r < map.n; r++)
        if (i >= map.start[r])
            id = map.global[r] + i - map.start[r];
    return id;
}

/* The local position of a global index, -1 if it is not here. */
TN_DEVICE int64_t tn_map_find(const tn_cuda_map &map, int64_t id)
{
    for (uint32_t r = 0; r < map.n; r++) {
        const int64_t end = r + 1 < map.n ? map.start[r + 1] : map.size, i = id - map.global[r] + map.start[r];

        if (i >= map.start[r] && i < end)
            return i;
    }
    return -1;
}

/* --- sums of 32 lanes, in one order; all of them get the result */
TN_DEVICE float tn_warp_sum(float v)
{
    for (int o = 16; o; o >>= 1)
        v += __shfl_xor_sync(TN_ALL, v, o);
    return v;
}

/* NaN if any is. */
TN_DEVICE float tn_max(float a, float b)
{
    return a > b || a != a ? a : b;
}

TN_DEVICE float tn_min(float a, float b)
{
    return a < b || a != a ? a : b;
}

TN_DEVICE float tn_warp_max(float v)
{
    for (int o = 16; o; o >>= 1)
        v = tn_max(v, __shfl_xor_sync(TN_ALL, v, o));
    return v;
}

/* Blocks for n items of one block each, as far as a grid goes; kernels walk with that stride. */
static inline uint32_t tn_grid(int64_t n)
{
    return (uint32_t)TN_CUDA_MIN(n, 65535 * 16);
}
#endif
