/* fold.cu - out = part 0 + part 1 + …, in this order, in fp32 (fp64 where the parts are), rounded once.
 *
 * A thread has one element at a time. The same bits on every rank and in every run. Compiled by nvcc, and,
 * emulated, by the host's compiler: see tests/cuda/emu.h. */
#ifndef TN_CUDA_EMULATED
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define TN_PARAM(type) const __grid_constant__ type
#define TN_LAUNCH(kernel, grid, block, queue, ...)                                                           \
    (kernel<<<grid, block, 0, (cudaStream_t)(queue)>>>(__VA_ARGS__), (int)cudaGetLastError())
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tenon/comm.h>

#define THREADS 256

struct tn_fold {                                 /* as in nccl.h, which C++ does not read */
    const void *parts, *own;
    void *out;
    uint64_t stride, count;
    uint32_t n, me, dtype, reduce;
};

__device__ static float from_half(uint16_t h)
{
#ifdef TN_CUDA_EMULATED
    _Float16 f;

    memcpy(&f, &h, sizeof f);
    return (float)f;
#else
    return __half2float(__ushort_as_half(h));
#endif
}

__device__ static uint16_t to_half(float v)
{
#ifdef TN_CUDA_EMULATED
    const _Float16 f = (_Float16)v;
    uint16_t h;

    memcpy(&h, &f, sizeof h);
    return h;
#else
    return __half_as_ushort(__float2half_rn(v));
#endif
}

__device__ static uint16_t to_bf16(float f)
{
    const uint32_t bits = __float_as_uint(f);

    return f != f ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T> __device__ static T get(uint32_t dtype, const void *base, uint64_t at)
{
    switch (dtype) {
    case TN_BF16: return (T)__uint_as_float((uint32_t)((const uint16_t *)base)[at] << 16);
    case TN_F16: return (T)from_half(((const uint16_t *)base)[at]);
    default: return ((const T *)base)[at];
    }
}

template <class T> __device__ static void put(uint32_t dtype, void *base, uint64_t at, T v)
{
    switch (dtype) {
    case TN_BF16: ((uint16_t *)base)[at] = to_bf16((float)v); break;
    case TN_F16: ((uint16_t *)base)[at] = to_half((float)v); break;
    default: ((T *)base)[at] = v;
    }
}

/* NaN if one is. */
template <class T> __device__ static T join(uint32_t reduce, T a, T b)
{
    if (reduce == TN_SUM)
        return a + b;
    if (a != a || b != b)
        return a + b;
    return (reduce == TN_MAX) == (a < b) ? b : a;
}

template <class T>
static __global__ void __launch_bounds__(THREADS) fold_parts(TN_PARAM(tn_fold) f)
{
    const uint64_t step = gridDim.x * (uint64_t)THREADS;

    for (uint64_t at = blockIdx.x * (uint64_t)THREADS + threadIdx.x; at < f.count; at += step) {
        T sum = f.me ? get<T>(f.dtype, f.parts, at) : get<T>(f.dtype, f.own, at);

        for (uint32_t p = 1; p < f.n; p++)
            sum = join(f.reduce, sum,
                       p == f.me ? get<T>(f.dtype, f.own, at) : get<T>(f.dtype, f.parts, p * f.stride + at));
        put(f.dtype, f.out, at, sum);
    }
}

extern "C" int tn_nccl_fold(const struct tn_fold *f, void *stream)
{
    const uint64_t blocks = (f->count + THREADS - 1) / THREADS;
    const uint32_t grid = blocks < 1024 ? (uint32_t)blocks : 1024;

    if (f->dtype == TN_F64)
        return TN_LAUNCH(fold_parts<double>, grid, THREADS, stream, *f);
    return TN_LAUNCH(fold_parts<float>, grid, THREADS, stream, *f);
}
