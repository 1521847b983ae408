/* elementwise.h - a program over a nest of loops: expr, copy, accum, expand, cast, and epilogues of products. */
#ifndef TENON_CUDA_ELEMENTWISE_H
#define TENON_CUDA_ELEMENTWISE_H
#include "nest.h"
#include "program.h"

/* What a launch is made of; the interpreter's parameter. The last loop of the nest is cut into chunks of neighbours: four
 * for the interpreter, as many as the compiled kernel takes if there is one. */
struct tn_cuda_elementwise {
    struct tn_cuda_nest nest;                    /* the other loops */
    void *compiled;                              /* the program's own kernel (compile.h), or NULL */
    uint32_t unit;                               /* elements of a chunk */
    uint32_t inner, chunks, total;               /* total: chunks of all turns */
    uint32_t n_in, n_out, accumulate;
    int64_t step[TN_MAX_OPERANDS];               /* of the last loop */
    uint32_t dtype[TN_MAX_OPERANDS];
    uint32_t wide[TN_MAX_OPERANDS];              /* chunks may be read and written at once */
    char *buffer[TN_MAX_OPERANDS];
    const float *uniform;
    struct tn_cuda_program program;
};

#ifdef __cplusplus
extern "C" {
#endif
/* The nest of p (nothing reduced) under a program. 0: not ours. */
int tn_cuda_elementwise_load(struct tn_cuda_elementwise *k, const struct tn_problem *p,
                             const struct tn_program *program);
/* buffer: inputs, then outputs. */
tn_status tn_cuda_elementwise_run(const struct tn_cuda_elementwise *k, char *const *buffer,
                                  const void *uniform, struct tn_queue *q);
#ifdef __cplusplus
}
#endif
#endif
