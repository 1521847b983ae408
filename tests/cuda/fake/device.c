/* device.c - which devices there are: what an H200 says of itself. TENON_FAKE_DEVICES=N: how many, 8 if not
 * said. */
#include "fake.h"

static _Thread_local int current;

int tn_fake_devices(void)
{
    const char *text = getenv("TENON_FAKE_DEVICES");
    const int n = text ? atoi(text) : 8;

    return n < 0 ? 0 : n > TN_FAKE_DEVICES ? TN_FAKE_DEVICES : n;
}

int *tn_fake_current(void)
{
    return &current;
}

static cudaError_t check(int device)
{
    return device >= 0 && device < tn_fake_devices()
               ? cudaSuccess
               : tn_fake_error(cudaErrorInvalidDevice, "device %d of %d", device, tn_fake_devices());
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = tn_fake_devices();
    return *n ? cudaSuccess : tn_fake_last(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    const cudaError_t e = check(device);

    if (!e)
        current = device;
    return e;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    const cudaError_t e = check(device);
    size_t available, total;

    if (e)
        return e;
    tn_fake_memory_info(device, &available, &total);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Fake H200");
    p->major = 9, p->minor = 0, p->multiProcessorCount = 132, p->warpSize = 32;
    p->totalGlobalMem = total, p->asyncEngineCount = 3, p->concurrentKernels = 1;
    p->maxThreadsPerBlock = 1024, p->maxThreadsPerMultiProcessor = 2048, p->regsPerBlock = 65536;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->sharedMemPerBlock = 48 << 10, p->sharedMemPerBlockOptin = 227 << 10,
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->memoryBusWidth = 6144, p->l2CacheSize = 60 << 20, p->unifiedAddressing = 1, p->ECCEnabled = 1;
    p->pciBusID = 0x10 + device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    struct cudaDeviceProp p;
    const cudaError_t e = cudaGetDeviceProperties(&p, device);

    if (e)
        return e;
    switch ((int)which) {
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMemoryClockRate: *value = 3201000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrAsyncEngineCount: *value = p.asyncEngineCount; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case cudaDevAttrPciBusId: *value = p.pciBusID; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    default: tn_fake_die("cudaDeviceGetAttribute: this fake does not know attribute %d", (int)which);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    const cudaError_t e = check(device);

    if (!e)
        snprintf(text, (size_t)size, "0000:%02x:00.0", 0x10 + device);
    return e;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    const cudaError_t e = check(device);

    *can = 0;
    return e ? e : check(peer);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* --- errors that programs here meet */
static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text)                                                                                    \
    {                                                                                                        \
        cudaError##name, "cudaError" #name, text                                                             \
    }
    {cudaSuccess, "cudaSuccess", "no error"},
    ERROR(InvalidValue, "invalid argument"),
    ERROR(MemoryAllocation, "out of memory"),
    ERROR(InvalidConfiguration, "invalid configuration argument"),
    ERROR(InvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(InsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(InvalidDeviceFunction, "invalid device function"),
    ERROR(NoDevice, "no CUDA-capable device is detected"),
    ERROR(InvalidDevice, "invalid device ordinal"),
    ERROR(InvalidResourceHandle, "invalid resource handle"),
    ERROR(IllegalState, "the operation cannot be performed in the present state"),
    ERROR(NotReady, "device not ready"),
    ERROR(IllegalAddress, "an illegal memory access was encountered"),
    ERROR(LaunchFailure, "unspecified launch failure"),
    ERROR(NotSupported, "operation not supported"),
    ERROR(StreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(StreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR(StreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    ERROR(StreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ERROR(StreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(StreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    ERROR(StreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(CapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(StreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
};

static size_t find(cudaError_t e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == e)
            return i;
    return sizeof errors / sizeof *errors;
}

const char *cudaGetErrorName(cudaError_t e)
{
    const size_t i = find(e);

    return i < sizeof errors / sizeof *errors ? errors[i].name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t e)
{
    const size_t i = find(e);

    return i < sizeof errors / sizeof *errors ? errors[i].text : "unrecognized error code";
}
