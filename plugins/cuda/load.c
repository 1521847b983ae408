/* load.c - compiled programs on a GPU: what NVRTC makes is loaded by the runtime, once for each source.
 *
 * The runtime's functions for it are weak: a runtime that lacks them (before CUDA 12.8, or a stand-in of the tests) leaves
 * the interpreter. TENON_CUDA_NVRTC=0 does too. Kernels stay loaded as long as the process. */
#include <stdio.h>
#include "device.h"
#include "rtc.h"

#if CUDART_VERSION >= 12080
#pragma weak cudaLibraryLoadData
#pragma weak cudaLibraryGetKernel
#pragma weak cudaLaunchKernel

struct compiled {
    struct compiled *next;
    char *source;
    cudaKernel_t kernel;                         /* NULL: cannot be had */
};
static struct compiled *all;

static tn_status failed(const char *name, const char *what, cudaError_t e)
{
    char text[300];

    cudaGetLastError();                          /* said here; the next launch is not at fault */
    snprintf(text, sizeof text, "cuda: %s of %s: %s (error %d), so it is interpreted", what, name, cudaGetErrorString(e),
             (int)e);
    tn_host->log(1, text);
    return TN_DECLINED;
}

static tn_status load(const char *source, const char *name, cudaKernel_t *out)
{
    int device = 0, major = 0, minor = 0;
    char *code;
    size_t size;
    cudaLibrary_t library;
    cudaError_t e = cudaGetDevice(&device);
    tn_status s;

    if (!e)
        e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!e)
        e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (e)
        return failed(name, "choosing a GPU", e);
    if ((s = tn_cuda_nvrtc(source, name, 10 * major + minor, &code, &size)))
        return s;
    e = cudaLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0);
    free(code);
    if (e)
        return failed(name, "loading", e);
    e = cudaLibraryGetKernel(out, library, name);
    return e ? failed(name, "the kernel", e) : TN_OK;
}

static tn_status make(const char *source, const char *name, void **out)
{
    struct compiled *c = all;

    while (c && strcmp(c->source, source))
        c = c->next;
    if (!c) {
        if (!(c = calloc(1, sizeof *c)) || !(c->source = strdup(source))) {
            free(c);
            return TN_DECLINED;
        }
        c->next = all, all = c;
        if (load(source, name, &c->kernel))
            c->kernel = NULL;
    }
    *out = c->kernel;
    return c->kernel ? TN_OK : TN_DECLINED;
}

static tn_status launch(void *kernel, uint32_t grid, const struct tn_cuda_pass *pass, struct tn_queue *q)
{
    void *args[] = {(void *)(uintptr_t)pass};
    const dim3 blocks = {grid, 1, 1}, threads = {TN_CUDA_PASS_THREADS, 1, 1};
    cudaError_t e = cudaLaunchKernel(kernel, blocks, threads, args, 0, tn_cuda_stream(q));

    return e ? tn_error(TN_ERR, "cuda: launching a program: %s (error %d)", cudaGetErrorString(e), (int)e) : TN_OK;
}

static const struct tn_cuda_compiler loader = {.make = make, .launch = launch};

const struct tn_cuda_compiler *tn_cuda_loader(void)
{
    const char *wanted = getenv("TENON_CUDA_NVRTC");

    if ((wanted && !strcmp(wanted, "0")) || !cudaLibraryLoadData || !cudaLibraryGetKernel || !cudaLaunchKernel)
        return NULL;
    return &loader;
}
#else
const struct tn_cuda_compiler *tn_cuda_loader(void)
{
    return NULL;
}
#endif
