/* conform.h - is a set of kernels right? The list of problems, and the comparison with the oracle. */
#ifndef TN_CONFORM_H
#define TN_CONFORM_H
#include "bench.h"

extern const struct tn_bench_case tn_conform_cases[];        /* ends with {NULL} */

struct tn_conform_result {
    uint32_t ran, declined;                      /* variants */
    double worst;                                /* largest error, as a part of what is allowed */
    char what[700];                              /* the first failure: variant and fault */
};

/* One case, with the loops as they are and merged, on one thread with its buffers in front of a page that may not be
 * touched and on three with them behind one; device NULL: host memory. The oracle runs in host memory always.
 * Returns whether something is wrong. */
int tn_conform_case(const struct tn_bench_case *c, const struct tn_kernels *mine, const struct tn_kernels *ref,
                    const struct tn_bench_device *device, struct tn_conform_result *out);
/* "einsum (b3 c17) bc c -> b", with all that makes the case. Returns out. */
const char *tn_conform_text(const struct tn_bench_case *c, char *out, size_t room);
int tn_conform_claims(const struct tn_kernels *k, const char *op);

struct tn_conform_report {
    uint32_t checked, declined, absent, failed;  /* absent: of operations that it does not claim */
};

/* Every case in host memory. Prints what is wrong and, if say is set, what was declined. Returns the number of
 * failures. */
int tn_conform(const struct tn_kernels *mine, const struct tn_kernels *ref, int say,
               struct tn_conform_report *out);
#endif
