/* test_faults.cpp - does the emulation find what it is there for? Kernels with a fault each, run in a child; each must
 * end with the sentence that names the fault, and the same kernel without a fault must end well.
 *
 * The kernel sums a row of 256 numbers by 64 threads, as those of the plugin do: in registers, over a warp by
 * shuffles, over the block through shared memory. */
#define TN_OK 0
#include "emu.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum fault {
    NONE, NO_BARRIER, NO_SECOND_BARRIER, WRONG_MASK, EXITED_LANE, EARLY_EXIT, OUT_OF_RANGE, NEVER_WRITTEN, TWO_WRITERS,
    BARRIER_IN_BRANCH, TWO_BARRIERS, OUTSIDE_MASK, UNALIGNED, NO_SYNCWARP, GRID, GLOBAL
};

struct problem {
    const float *x;
    float *y;
    enum fault fault;
};

static float warp_sum(const problem &p, float v)
{
    uint32_t mask = 0xffffffffu;

    if (p.fault == WRONG_MASK && threadIdx.x % 32 == 5)
        mask = 0xffffu;
    if (p.fault == OUTSIDE_MASK && threadIdx.x % 32 < 16)
        mask = 0xffffu;
    else if (p.fault == OUTSIDE_MASK)
        mask = 0xffff0000u;
    for (int o = 16; o; o >>= 1)
        v += __shfl_xor_sync(mask, v, o);
    return v;
}

static void sum(const problem &p)
{
    TN_SHARED(float, part, 2);
    TN_SHARED(float, again, 64);
    const uint32_t t = threadIdx.x, warp = t / 32;
    float v = 0;

    if (p.fault == EARLY_EXIT && t == 40)
        return;
    if (p.fault == UNALIGNED)
        emu_aligned(p.x + 1, 16);
    for (uint32_t i = t; i < 256; i += 64)
        v += p.x[i];
    if (p.fault == GLOBAL && t == 63)
        v += p.x[256 + t];
    if (p.fault == EXITED_LANE && t == 33)
        return;
    v = warp_sum(p, v);
    if (t % 32 == 0 && !(p.fault == NEVER_WRITTEN && warp == 1))
        part[p.fault == OUT_OF_RANGE ? warp * 2 : warp] = v;
    if (p.fault == TWO_WRITERS && t < 2)
        part[0] = v;
    if (p.fault == BARRIER_IN_BRANCH && warp == 1)
        return;
    if (p.fault == TWO_BARRIERS) {
        if (warp == 0)
            __syncthreads();
        else
            __syncthreads();
    } else if (p.fault != NO_BARRIER)
        __syncthreads();
    v = part[0] + part[1];
    if (p.fault != NO_SECOND_BARRIER)
        __syncthreads();
    if (t == 0)
        part[0] = v;
    again[t] = v;
    if (p.fault != NO_SYNCWARP)
        __syncwarp();
    v = again[t ^ 1];
    if (t == 0)
        *p.y = v;
}

static const struct {
    enum fault fault;
    const char *name, *says;
} faults[] = {
    {NO_BARRIER, "no __syncthreads after writing", "shared part["}, /* a race, or not written yet */
    {NO_SECOND_BARRIER, "no __syncthreads before writing again", "no barrier between"},
    {TWO_WRITERS, "two threads write one element", "no barrier between"},
    {NO_SYNCWARP, "no __syncwarp between two lanes", "shared again["},
    {WRONG_MASK, "a lane with another mask", "another warp function"},
    {OUTSIDE_MASK, "a shuffle from outside of the mask", "which mask"},
    {EXITED_LANE, "a mask that names a lane that has ended", "which has ended"},
    {EARLY_EXIT, "an early return in a warp", "which has ended"},
    {BARRIER_IN_BRANCH, "a warp that returns before a __syncthreads", "has ended, while others wait"},
    {TWO_BARRIERS, "__syncthreads at two places", "__syncthreads at line"},
    {OUT_OF_RANGE, "an index outside of shared memory", "shared part[2] of 2 elements"},
    {NEVER_WRITTEN, "shared memory that nobody wrote", "was not written in this block"},
    {UNALIGNED, "four numbers at an odd address", "an access of 16 bytes"},
    {GRID, "a launch without blocks", "launched with a grid of 0"},
#ifdef __SANITIZE_ADDRESS__
    {GLOBAL, "an index outside of global memory", "heap-buffer-overflow"},
#endif
};

/* In a child: the sum, with the fault. Its standard error comes back in text. */
static int child(enum fault fault, char *text, size_t size)
{
    int ends[2], status = 0;
    size_t n = 0;
    pid_t pid;

    if (pipe(ends) || (pid = fork()) < 0)
        exit(1);
    if (!pid) {
        float *x = (float *)malloc(256 * sizeof *x), y = 0, *on_heap = (float *)malloc(sizeof *on_heap);

        dup2(ends[1], 2), close(ends[0]);
        for (int i = 0; i < 256; i++)
            x[i] = (float)i;
        problem p = {x, on_heap, fault};

        emu_seed((uint64_t)fault + 1);
        for (int run = 0; run < 3; run++)
            (void)TN_LAUNCH(sum, fault == GRID ? 0 : 3, 64, 0, p);
        y = *on_heap;
        free(x), free(on_heap);
        _exit(y == 255 * 128 ? 0 : 3);
    }
    close(ends[1]);
    for (ssize_t k; n + 1 < size && (k = read(ends[0], text + n, size - 1 - n)) > 0;)
        n += (size_t)k;
    text[n] = 0;
    close(ends[0]);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int main(void)
{
    static char text[1 << 16];
    int failed = 0, status;

#ifdef __SANITIZE_THREAD__
    printf("skipped: the thread sanitizer does not know these fibers\n");
    return 77;
#endif
    if ((status = child(NONE, text, sizeof text)))
        printf("without a fault: status %d: %s\n", status, text), failed++;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        status = child(faults[i].fault, text, sizeof text);
        if (!status || !strstr(text, faults[i].says))
            printf("%s: status %d, does not say \"%s\": %s\n", faults[i].name, status, faults[i].says, text), failed++;
        else
            printf("%-48s %.100s\n", faults[i].name, faults[i].fault == GLOBAL ? faults[i].says : strchr(text, ':') + 2);
    }
    return failed != 0;
}
