/* no_device.c - a libcuda.so.1 that is there and does nothing: enough for cuDNN to compile kernels that
 * nobody runs.
 *
 * cuDNN looks for these functions when it loads a driver, and hands it the kernels that it compiled. NVRTC
 * asks for a device too, and must be told that there is none. */
#define NOTHING(name)                                                                                        \
    __attribute__((visibility("default"))) int name(void);                                                   \
    int name(void)                                                                                           \
    {                                                                                                        \
        return 0;                                                                                            \
    }
#define HANDLE(name)                                                                                         \
    __attribute__((visibility("default"))) int name(void **out);                                             \
    int name(void **out)                                                                                     \
    {                                                                                                        \
        static int it;                                                                                       \
        *out = &it;                                                                                          \
        return 0;                                                                                            \
    }
#define NUMBER(name, value)                                                                                  \
    __attribute__((visibility("default"))) int name(int *out);                                               \
    int name(int *out)                                                                                       \
    {                                                                                                        \
        *out = value;                                                                                        \
        return 0;                                                                                            \
    }
#define TEXT(name)                                                                                           \
    __attribute__((visibility("default"))) int name(int error, const char **out);                            \
    int name(int error, const char **out)                                                                    \
    {                                                                                                        \
        (void)error;                                                                                         \
        *out = "an error of the driver that does nothing";                                                   \
        return 0;                                                                                            \
    }

__attribute__((visibility("default"))) int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    return 100;                                  /* no device */
}

NUMBER(cuDriverGetVersion, 13000)
NUMBER(cuDeviceGetCount, 1)
NUMBER(cuDeviceGetAttribute, 64)
TEXT(cuGetErrorName)
TEXT(cuGetErrorString)
HANDLE(cuLibraryLoadData)
HANDLE(cuLibraryGetKernel)

NOTHING(cuCtxGetCurrent)
NOTHING(cuCtxGetDevice)
NOTHING(cuCtxGetLimit)
NOTHING(cuCtxPopCurrent)
NOTHING(cuCtxPushCurrent)
NOTHING(cuDeviceGet)
NOTHING(cuDevicePrimaryCtxRelease)
NOTHING(cuDevicePrimaryCtxReset)
NOTHING(cuDevicePrimaryCtxRetain)
NOTHING(cuFuncGetAttribute)
NOTHING(cuFuncSetAttribute)
NOTHING(cuKernelGetAttribute)
NOTHING(cuKernelSetAttribute)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuLaunchKernel)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLibraryLoadFromFile)
NOTHING(cuLibraryUnload)
NOTHING(cuLinkAddData)
NOTHING(cuLinkAddData_v2)
NOTHING(cuLinkAddFile_v2)
NOTHING(cuLinkComplete)
NOTHING(cuLinkCreate)
NOTHING(cuLinkCreate_v2)
NOTHING(cuLinkDestroy)
NOTHING(cuMemcpyDtoH_v2)
NOTHING(cuModuleGetFunction)
NOTHING(cuModuleGetGlobal_v2)
NOTHING(cuModuleLoadData)
NOTHING(cuModuleLoadDataEx)
NOTHING(cuModuleLoadFatBinary)
NOTHING(cuModuleUnload)
NOTHING(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamGetCtx)
NOTHING(cuStreamSynchronize)
NOTHING(cuTensorMapEncodeTiled)
