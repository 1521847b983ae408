/* lt_own.h - what the two files of the fake cuBLASLt share: lt_describe.c, which products there are, and
 * lt.c, one that is run. */
#ifndef TN_FAKE_LT_OWN_H
#define TN_FAKE_LT_OWN_H
#include <cublasLt.h>
#include "fake.h"
#include "number.h"

#define MAGIC 0x616c676fu

struct tn_lt_layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld, step;
    int32_t batch, reserved0; /* no padding: compared as bytes */
};
struct tn_lt_desc {
    cublasComputeType_t compute;
    cudaDataType_t scale, bias_type, aux_type;
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    uint32_t reserved0;
    void *bias, *aux;
    int64_t aux_ld, aux_step;
};
struct tn_lt_preference {
    uint64_t workspace;
    uint32_t alignment[4], reductions; /* A, B, C, D */
};
struct tn_lt_algo { /* in the library's own struct of 64 bytes */
    uint64_t magic, problem, workspace;
    uint32_t alignment[4];
};
_Static_assert(sizeof(struct tn_lt_algo) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm");

extern int tn_lt_handles; /* its address is the handle */
cublasStatus_t tn_lt_wrong(cublasStatus_t s, const char *what);
int tn_lt_has_bias(const struct tn_lt_desc *d);
int tn_lt_has_aux(const struct tn_lt_desc *d);
/* CUBLAS_STATUS_INVALID_VALUE: it contradicts itself; NOT_SUPPORTED: the library has no such product. */
cublasStatus_t tn_lt_check(const struct tn_lt_desc *d, const struct tn_lt_layout *a,
                           const struct tn_lt_layout *b, const struct tn_lt_layout *c,
                           const struct tn_lt_layout *out);
/* Of what an algorithm is found for: all but addresses. */
uint64_t tn_lt_hash(const struct tn_lt_desc *d, const struct tn_lt_layout *a, const struct tn_lt_layout *b,
                    const struct tn_lt_layout *c);
#endif
