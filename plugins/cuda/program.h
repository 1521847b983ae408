/* program.h - element-wise programs for the GPU: SSA registers mapped to few real ones.
 *
 * The graph's programs have one register per instruction; what a thread holds is as many as are alive at once.
 * program.c finds those by a walk over the instructions. A result may take the register of an operand that is
 * read for the last time there, so the interpreter reads its operands before it writes. */
#ifndef TENON_CUDA_PROGRAM_H
#define TENON_CUDA_PROGRAM_H
#include "cuda.h"

#define TN_CUDA_INSTR 128
#define TN_CUDA_CONSTANTS 64
#define TN_CUDA_REGISTERS 96                     /* most that may be alive at once */

struct tn_cuda_instr {
    uint8_t op, to, a, b, c;                     /* as TN_E_*; a of an input, constant or uniform: its number */
};
struct tn_cuda_program {
    uint32_t n_instr, n_reg, n_result;
    struct tn_cuda_instr instr[TN_CUDA_INSTR];
    uint8_t result[TN_MAX_OPERANDS];
    float constant[TN_CUDA_CONSTANTS];
};

#ifdef __cplusplus
extern "C" {
#endif
/* 0: too long, too many registers, or an instruction that we do not know. */
int tn_cuda_program_load(struct tn_cuda_program *k, const struct tn_program *p, uint32_t n_in, uint32_t n_out);
#ifdef __cplusplus
}
#endif
#endif
