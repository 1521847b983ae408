/* compile.h - element-wise programs as kernels of their own, compiled when they are prepared.
 *
 * source.c writes a program as CUDA C++: registers are variables, dtypes, loops and the dims that an operand lacks are
 * known to the compiler, sizes and strides are not, so that tensors of one kind share a kernel. Who compiles it is
 * behind a table: NVRTC on a GPU (rtc.c), the host's compiler in tests. Without a compiler, or where it
 * fails, the interpreter of elementwise.cu runs the program. */
#ifndef TENON_CUDA_COMPILE_H
#define TENON_CUDA_COMPILE_H
#include "nest.h"

/* The parameter of a compiled kernel; source.c has it once more, as text. Operands: inputs, then outputs. */
struct tn_cuda_pass {
    char *buffer[TN_MAX_OPERANDS];
    const float *uniform;
    long long step[TN_MAX_OPERANDS];             /* of the last loop */
    long long stride[TN_CUDA_LOOPS][TN_MAX_OPERANDS]; /* of those around it */
    unsigned size[TN_CUDA_LOOPS];
    unsigned inner, chunks, total;               /* elements of the last loop; chunks of one turn, of all */
    unsigned wide;                               /* bit i: chunks of operand i may be read and written at once */
};
#define TN_CUDA_PASS_THREADS 256u

struct tn_cuda_elementwise;
struct tn_cuda_compiler {
    /* source: CUDA C++ that needs no header; name: the kernel's, told by its text. *out stays for ever, the same for
     * the same name. TN_DECLINED: cannot. Main thread. */
    tn_status (*make)(const char *source, const char *name, void **out);
    tn_status (*launch)(void *kernel, uint32_t grid, const struct tn_cuda_pass *pass, struct tn_queue *q);
};
#ifdef __cplusplus
extern "C" {
#endif
/* NULL: programs are interpreted. Set before the first prepare. */
extern const struct tn_cuda_compiler *tn_cuda_compiler;
/* Elements of a chunk: 16 bytes of the narrowest operand. */
uint32_t tn_cuda_pass_unit(const struct tn_cuda_elementwise *k);
/* The kernel for this program and these kinds of operands; NULL: none. */
void *tn_cuda_pass_make(const struct tn_cuda_elementwise *k);
#ifdef __cplusplus
}
#endif
#endif
