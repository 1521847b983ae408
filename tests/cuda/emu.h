/* emu.h - CUDA kernels as host C++: what a kernel says is run by fibers, one for each thread of a block.
 *
 * The same .cu file is compiled by nvcc for a GPU and by the host's compiler with this header in place of CUDA's.
 * Blocks run one after another. Within a block the threads of a warp, and the warps, run in a random order
 * between barriers, so a result that depends on an order is not the same twice. Found here, and said with the
 * kernel's name, the block, the thread and the line:
 *
 *  - shared memory: an index outside, a read of what this block has not written, and every pair of accesses by
 *    two threads, one of them a write, without a __syncthreads (or, in one warp, a __syncwarp) between: by the
 *    epochs kept with each element, so no lucky order hides a missing barrier;
 *  - barriers that not all threads reach, or that they reach at different lines;
 *  - warp functions: a mask that lacks the caller, names a lane that has ended or does not exist, lanes that
 *    disagree on mask or line, a shuffle that reads a lane outside of the mask;
 *  - vector accesses that are not aligned; launches outside of the limits.
 *
 * Under the thread sanitizer (make cuda-tsan, a few small shapes) shared memory is plain, and the sanitizer, told of
 * barriers, names both lines of a race; global memory within a block is watched too.
 *
 * Not seen: races between blocks, or through global memory if the order drawn hides them; the memory model;
 * the rounding of the GPU's exp, tanh and the like. Global memory is the host's: guard pages and the
 * sanitizers watch it. */
#ifndef TN_CUDA_EMU_H
#define TN_CUDA_EMU_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct dim3 {
    uint32_t x, y, z;

    dim3(uint32_t x_ = 1, uint32_t y_ = 1, uint32_t z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct emu_thread {
    dim3 thread, block, block_size, grid;
    uint32_t linear, lane, warp;
};
extern emu_thread *emu_self;                     /* of the fiber that runs */
extern uint32_t emu_epoch;                       /* counts barriers and blocks */
extern uint32_t emu_step[32];                    /* counts the __syncwarp of each warp */

#define threadIdx (emu_self->thread)
#define blockIdx (emu_self->block)
#define blockDim (emu_self->block_size)
#define gridDim (emu_self->grid)

/* Says what is wrong and where, and ends the process with 99. */
[[noreturn]] __attribute__((format(printf, 1, 2))) void emu_die(const char *format, ...);
void emu_seed(uint64_t seed);
/* Runs body(arg) once for each thread. name: of the kernel. */
void emu_run(const char *name, dim3 grid, dim3 block, void (*body)(const void *arg), const void *arg);
/* Waits for all threads of the block; how many of them gave a predicate that is not 0. */
int emu_barrier(int predicate, int line);
/* Waits for the lanes of mask; what each of them gave. */
const uint64_t *emu_meet(uint32_t mask, uint64_t value, int kind, int line);

#define EMU_SYNCWARP 1
#define EMU_SHUFFLE 2
#define EMU_VOTE 3

static inline void __syncthreads(int line = __builtin_LINE())
{
    emu_barrier(0, line);
}

static inline int __syncthreads_or(int predicate, int line = __builtin_LINE())
{
    return emu_barrier(predicate, line) != 0;
}

static inline void __syncwarp(uint32_t mask = 0xffffffffu, int line = __builtin_LINE())
{
    emu_meet(mask, 0, EMU_SYNCWARP, line);
}

template <class T> T emu_shuffle(uint32_t mask, T value, int from, int line)
{
    uint64_t bits = 0;
    const uint64_t *all;

    static_assert(sizeof(T) <= 8);
    memcpy(&bits, &value, sizeof value);
    all = emu_meet(mask, bits, EMU_SHUFFLE, line);
    if (from < 0 || from > 31)
        return value;
    if (!(mask >> from & 1))
        emu_die("line %d: a shuffle reads lane %d, which mask %08x lacks", line, from, mask);
    memcpy(&value, &all[from], sizeof value);
    return value;
}

template <class T> T __shfl_xor_sync(uint32_t mask, T value, int bits, int line = __builtin_LINE())
{
    return emu_shuffle(mask, value, (int)emu_self->lane ^ bits, line);
}

template <class T> T __shfl_sync(uint32_t mask, T value, int from, int line = __builtin_LINE())
{
    return emu_shuffle(mask, value, from & 31, line);
}

static inline uint32_t __ballot_sync(uint32_t mask, int predicate, int line = __builtin_LINE())
{
    const uint64_t *all = emu_meet(mask, predicate != 0, EMU_VOTE, line);
    uint32_t votes = 0;

    for (int lane = 0; lane < 32; lane++)
        votes |= mask >> lane & 1 && all[lane] ? 1u << lane : 0;
    return votes;
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}

static inline float __uint_as_float(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t __float_as_uint(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* --- shared memory: n elements, each with who wrote it last and who has read it since the last barrier.
 *
 * A stamp is epoch << 32 | step of the warp << 16 | linear number of the thread << 2 | kind; the kind of a read
 * stamp: 1 by one thread, 2 by several of one warp, 3 by several warps. What happened in an earlier epoch is
 * ordered before now, in the same one only what this thread did, or this warp before its last __syncwarp. */
extern uint32_t emu_block_epoch;                 /* first epoch of this block */

static inline uint64_t emu_stamp(uint32_t kind)
{
    return (uint64_t)emu_epoch << 32 | (emu_step[emu_self->warp] & 0xffff) << 16 | emu_self->linear << 2 | kind;
}

static inline uint32_t emu_who(uint64_t stamp)
{
    return (uint32_t)stamp >> 2 & 0x3fff;
}

static inline bool emu_ordered(uint64_t stamp)
{
    const uint32_t who = emu_who(stamp);

    return stamp >> 32 != emu_epoch || who == emu_self->linear ||
           (who / 32 == emu_self->warp && ((uint32_t)stamp >> 16) != (emu_step[emu_self->warp] & 0xffff));
}

template <class T, int N> class emu_shared {
    struct cell {
        T value;
        uint64_t wrote, read;
    };
    cell cells[N];
    const char *name;

    cell &at(int64_t i)
    {
        if ((uint64_t)i >= N)
            emu_die("shared %s[%lld] of %d elements", name, (long long)i, N);
        return cells[i];
    }
    __attribute__((noinline)) void check_read(int64_t i)
    {
        cell &c = cells[i];

        if (c.wrote >> 32 < emu_block_epoch)
            emu_die("shared %s[%lld] is read and was not written in this block", name, (long long)i);
        if (!emu_ordered(c.wrote))
            emu_die("shared %s[%lld]: written by thread %u, read by thread %u, no barrier between", name,
                    (long long)i, emu_who(c.wrote), emu_self->linear);
        if (c.read >> 32 != emu_epoch)
            c.read = emu_stamp(1);
        else if ((c.read & 3) < 3 && emu_who(c.read) != emu_self->linear)
            c.read = emu_stamp(emu_who(c.read) / 32 == emu_self->warp ? 2 : 3);
    }
    void check_write(int64_t i)
    {
        cell &c = cells[i];
        const uint32_t kind = c.read & 3;

        if (c.wrote >> 32 >= emu_block_epoch && !emu_ordered(c.wrote))
            emu_die("shared %s[%lld]: written by threads %u and %u, no barrier between", name, (long long)i,
                    emu_who(c.wrote), emu_self->linear);
        if (c.read >> 32 != emu_epoch || (kind == 1 && emu_ordered(c.read)))
            return;
        if (kind == 2 && emu_who(c.read) / 32 == emu_self->warp &&
            ((uint32_t)c.read >> 16) != (emu_step[emu_self->warp] & 0xffff))
            return;
        emu_die("shared %s[%lld]: read by thread %u%s, written by thread %u, no barrier between", name,
                (long long)i, emu_who(c.read), kind > 1 ? " and others" : "", emu_self->linear);
    }

public:
    explicit emu_shared(const char *name_) : cells(), name(name_) {}

    T read(int64_t i)
    {
        cell &c = at(i);
        const uint32_t wrote = (uint32_t)(c.wrote >> 32);

        if (wrote < emu_block_epoch || wrote == emu_epoch || c.read >> 32 != emu_epoch || (c.read & 3) < 3)
            check_read(i);
        return c.value;
    }
    void write(int64_t i, const T &value)
    {
        cell &c = at(i);

        check_write(i);
        c.value = value, c.wrote = emu_stamp(0);
    }

    struct element {
        emu_shared &array;
        int64_t index;

        operator T() const { return array.read(index); }
        T operator=(const T &value) const
        {
            array.write(index, value);
            return value;
        }
        T operator=(const element &other) const { return *this = (T)other; }
        T operator+=(const T &value) const { return *this = array.read(index) + value; }
    };
    element operator[](int64_t i) { return element{*this, i}; }
};
#ifdef __SANITIZE_THREAD__                       /* sees the accesses itself, and names the line */
#define TN_SHARED(type, name, n) static type name[n]
#else
#define TN_SHARED(type, name, n) static emu_shared<type, n> name(#name)
#endif

/* --- launches */
#define TN_PARAM(type) const type &
template <class... P, class... A>
void emu_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, const A &...args)
{
    auto body = [&] { kernel(args...); };
    typedef decltype(body) closure;

    static_assert((sizeof(A) + ... + 0) <= 32764, "parameters of a kernel");
    emu_run(name, grid, block, [](const void *arg) { (*(const closure *)arg)(); }, &body);
}
#define TN_LAUNCH(kernel, grid, block, queue, ...) \
    ((void)(queue), emu_launch(#kernel, kernel, grid, block, __VA_ARGS__), TN_OK)

/* An access of so many bytes at once. */
static inline void emu_aligned(const void *at, size_t bytes)
{
    if ((uintptr_t)at % bytes)
        emu_die("an access of %zu bytes at once to %p", bytes, at);
}
#endif
