/* rtc.h - the toolkit's compiler, opened when it is first asked for. No driver is needed to compile. */
#ifndef TENON_CUDA_RTC_H
#define TENON_CUDA_RTC_H
#include "compile.h"

/* Machine code for sm_<arch>, PTX if the compiler does not know that one; *out is the caller's. TN_DECLINED: there is no
 * compiler, or it refuses; said in the log once each. */
tn_status tn_cuda_nvrtc(const char *source, const char *name, int arch, char **out, size_t *size);
/* load.c: compiled for the calling thread's GPU and loaded; NULL: this runtime cannot load (or TENON_CUDA_NVRTC=0). */
const struct tn_cuda_compiler *tn_cuda_loader(void);
#endif
