/* epilogue.h - which programs of an einsum a library's matrix product can do itself. */
#ifndef TENON_CUDA_EPILOGUE_H
#define TENON_CUDA_EPILOGUE_H
#include "cuda.h"

/* Numbers of operands, inputs first; 0: there is none (0 is x, which is never one of them). */
struct tn_cuda_epilogue {
    uint32_t kind;                               /* TN_CUDA_EPI_* */
    uint32_t bias, add, aux;                     /* add: c = product + add, of y's strides */
    uint32_t y;
};

#ifdef __cplusplus
extern "C" {
#endif
/* The whole program; 0: it is none of them. */
int tn_cuda_epilogue_find(const struct tn_problem *p, struct tn_cuda_epilogue *out);
/* Result o of it, whatever the others are. */
int tn_cuda_epilogue_of(const struct tn_problem *p, uint32_t o, struct tn_cuda_epilogue *out);
#ifdef __cplusplus
}
#endif
#endif
