/* plugin.c - a communicator for NVIDIA GPUs.
 *
 * Needs libnccl and libcudart to be loaded, and no driver: without one the plugin loads and its probe says
 * so. */
#include <dlfcn.h>
#include "nccl.h"

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    int n = 0;
    cudaError_t e;

    *score = 0;
    if (!driver) {
        snprintf(why, why_size, "no driver: libcuda.so.1 is not here");
        return TN_OK;
    }
    e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver)
        snprintf(why, why_size, "no driver, or one that is too old for CUDA %d.%d (error %d)",
                 CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100, (int)e);
    else if (e == cudaErrorNoDevice || (!e && !n))
        snprintf(why, why_size, "no device: the driver is here and sees no GPU (CUDA_VISIBLE_DEVICES?)");
    else if (e)
        snprintf(why, why_size, "%s (error %d)", cudaGetErrorString(e), (int)e);
    else {
        *score = 5; /* by choice below those of any device: on a GPU it is preferred for its memory */
        snprintf(why, why_size, "%d GPU%s here; one for each rank", n, n == 1 ? "" : "s");
    }
    dlclose(driver);
    return TN_OK;
}

static const char *const devices[] = {"cuda", "cpu", NULL};

static const struct tn_comm_api nccl = {
    .struct_size = sizeof nccl,
    .devices = devices,
    .probe = probe,
    .open = tn_nccl_open,
    .group = tn_nccl_group,
    .start = tn_nccl_start,
    .wait = tn_nccl_wait,
    .abort = tn_nccl_abort,
    .close = tn_nccl_close,
    .wait_on = tn_nccl_wait_on,
    .check = tn_nccl_check,
};

TN_PLUGIN("nccl", "1.0", "NVIDIA GPUs, over NCCL", TN_COMM_ID, &nccl);
