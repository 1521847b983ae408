/* rtc.c - see rtc.h. */
#include <cuda_runtime_api.h>                    /* CUDART_VERSION; nothing of it is called */
#include <dlfcn.h>
#include <stdio.h>
#include "rtc.h"
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>

#define FUNCTIONS(X)                                                                                         \
    X(nvrtcVersion) X(nvrtcGetNumSupportedArchs) X(nvrtcGetSupportedArchs) X(nvrtcCreateProgram)             \
    X(nvrtcDestroyProgram) X(nvrtcCompileProgram) X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN) X(nvrtcGetPTXSize)   \
    X(nvrtcGetPTX) X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog) X(nvrtcGetErrorString)
#define MEMBER(name) __typeof__(name) *name;
#define NAME(name) {#name, offsetof(struct library, name)},

static struct library {
    FUNCTIONS(MEMBER)
} rtc;
static const struct {
    const char *name;
    size_t at;
} names[] = {FUNCTIONS(NAME)};

/* -1: not asked yet */
static int here = -1;

static int without(const char *why)
{
    char text[400];

    snprintf(text, sizeof text, "cuda: without NVRTC, so element-wise programs are interpreted: %s", why);
    tn_host->log(2, text);
    return here = 0;
}

static int open_library(void)
{
    char path[400];
    const char *name = path + sizeof TN_CUDA_LIBDIR;
    void *so;

    if (here >= 0)
        return here;
    snprintf(path, sizeof path, TN_CUDA_LIBDIR "/libnvrtc.so.%d", CUDART_VERSION / 1000);
    if (!(so = dlopen(name, RTLD_NOW | RTLD_LOCAL)) && !(so = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
        return without(dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(so, names[i].name);

        if (!f)
            return without(dlerror());
        memcpy((char *)&rtc + names[i].at, &f, sizeof f);
    }
    return here = 1;
}

/* Machine code if the compiler knows the architecture, else PTX for the newest one that it knows below it; 0: none. */
static int target(int arch, int *machine)
{
    int known[64], n = 0, best = 0;

    if (rtc.nvrtcGetNumSupportedArchs(&n) || n > 64 || rtc.nvrtcGetSupportedArchs(known))
        return 0;
    for (int i = 0; i < n; i++)
        best = known[i] <= arch && known[i] > best ? known[i] : best;
    *machine = best == arch;
    return best;
}

static tn_status refused(nvrtcProgram p, const char *name, nvrtcResult r)
{
    char text[600], *log = NULL;
    size_t n = 0;

    if (p && !rtc.nvrtcGetProgramLogSize(p, &n) && (log = malloc(n + 1)) && !rtc.nvrtcGetProgramLog(p, log))
        log[n] = 0;
    snprintf(text, sizeof text, "cuda: NVRTC does not compile %s, so it is interpreted: %s: %.400s", name,
             rtc.nvrtcGetErrorString(r), log ? log : "");
    tn_host->log(1, text);
    free(log);
    return TN_DECLINED;
}

static nvrtcResult fetch(nvrtcProgram p, int machine, char **out, size_t *size)
{
    nvrtcResult r = machine ? rtc.nvrtcGetCUBINSize(p, size) : rtc.nvrtcGetPTXSize(p, size);

    if (r)
        return r;
    if (!(*out = malloc(*size + 1)))
        return NVRTC_ERROR_OUT_OF_MEMORY;
    return machine ? rtc.nvrtcGetCUBIN(p, *out) : rtc.nvrtcGetPTX(p, *out);
}

tn_status tn_cuda_nvrtc(const char *source, const char *name, int arch, char **out, size_t *size)
{
    char flag[40];
    const char *flags[] = {flag, "--std=c++17"};
    nvrtcProgram p = NULL;
    nvrtcResult r;
    int machine = 0, best;
    tn_status s = TN_OK;

    *out = NULL;
    if (!open_library())
        return TN_DECLINED;
    if (!(best = target(arch, &machine)))
        return TN_DECLINED;
    snprintf(flag, sizeof flag, "--gpu-architecture=%s_%d", machine ? "sm" : "compute", best);
    r = rtc.nvrtcCreateProgram(&p, source, name, 0, NULL, NULL);
    if (!r)
        r = rtc.nvrtcCompileProgram(p, sizeof flags / sizeof *flags, flags);
    if (!r)
        r = fetch(p, machine, out, size);
    if (r) {
        free(*out);
        *out = NULL;
        s = refused(p, name, r);
    }
    if (p)
        rtc.nvrtcDestroyProgram(&p);
    return s;
}
#else
tn_status tn_cuda_nvrtc(const char *source, const char *name, int arch, char **out, size_t *size)
{
    (void)source, (void)name, (void)arch, (void)size;
    *out = NULL;
    return TN_DECLINED;
}
#endif
