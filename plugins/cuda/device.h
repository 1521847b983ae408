/* device.h - a GPU, its queues and events, as device.c and lt.c know them. */
#ifndef TENON_CUDA_DEVICE_H
#define TENON_CUDA_DEVICE_H
#include <cuda_runtime_api.h>
#include <tenon/device.h>
#include "cuda.h"

struct tn_device {
    int number, said;
    struct cudaDeviceProp properties;
};
struct tn_queue {
    struct tn_device *device;
    cudaStream_t stream;
    cudaEvent_t done;                            /* what sync waits for */
};
struct tn_event {
    struct tn_device *device;
    cudaEvent_t event;
};

extern const struct tn_device_api tn_cuda_device;
extern const struct tn_device_capture tn_cuda_capture;
/* 0 and a reason: no driver, or no device. The same for the device and for the kernels. */
tn_status tn_cuda_probe(uint32_t *score, char *why, uint64_t why_size);
/* Makes it the calling thread's. */
tn_status tn_cuda_use(const struct tn_device *d);
/* A runtime's error made ours. */
tn_status tn_cuda_failed(cudaError_t e, tn_status code, const char *what);
/* lt.c: cuBLASLt, opened when it is first asked for; NULL: not here, and the log says so. */
const struct tn_cuda_blas *tn_cuda_lt(void);
int tn_cuda_tf32(void);                          /* asked for by TENON_CUDA_TF32=1 */
/* dnn_kernel.c: cuDNN, opened when the first attention in low precision is prepared. Only where it was built in. */
extern const struct tn_cuda_dnn tn_cuda_dnn_attention;
#endif
