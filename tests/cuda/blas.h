/* blas.h - see blas.c. */
#ifndef TN_TEST_CUDA_BLAS_H
#define TN_TEST_CUDA_BLAS_H
#include "cuda.h"

extern const struct tn_cuda_blas tn_test_blas;
extern uint64_t tn_test_blas_elements;           /* of results, made so far */
#endif
