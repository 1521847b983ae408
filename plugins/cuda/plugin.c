/* plugin.c - NVIDIA GPUs: a device and kernels for it.
 *
 * Needs libcudart to be loaded, and no driver: without one the plugin loads and its probe says so. The libraries that
 * take long to load are opened when the first kernel that wants one is prepared. TENON_CUDA_BLAS=0 and
 * TENON_CUDA_NVRTC=0 do without them, for tests. */
#include "device.h"
#include "rtc.h"

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    static int asked;

    if (!asked) {
        const char *blas = getenv("TENON_CUDA_BLAS");

        asked = 1;
        tn_cuda_blas = blas && !strcmp(blas, "0") ? NULL : tn_cuda_lt();
#ifdef TN_CUDA_DNN
        tn_cuda_dnn = &tn_cuda_dnn_attention;
#endif
        tn_cuda_compiler = tn_cuda_loader();
    }
    return tn_cuda_prepare(p, out);
}

static const struct tn_kernels kernels = {
    .struct_size = sizeof kernels,
    .device = "cuda",
    .ops = tn_cuda_ops,
    .probe = tn_cuda_probe,
    .prepare = prepare,
};

TN_PLUGIN_("cuda", "1.0", "NVIDIA GPUs: device, and kernels of our own and of cuBLASLt",
           TN_DEVICE_ID " " TN_KERNELS_ID " " TN_DEVICE_CAPTURE_ID, NULL, NULL, {TN_DEVICE_ID, &tn_cuda_device},
           {TN_KERNELS_ID, &kernels}, {TN_DEVICE_CAPTURE_ID, &tn_cuda_capture});
