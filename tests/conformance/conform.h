/* conform.h - is a set of kernels right? The list of problems, and the comparison with the oracle. */
#ifndef TN_CONFORM_H
#define TN_CONFORM_H
#include "bench.h"

extern const struct tn_bench_case tn_conform_cases[];        /* ends with {NULL} */

struct tn_conform_report {
    uint32_t checked, declined, absent, failed;  /* absent: of operations that it does not claim */
};

/* Every case, with the loops as they are and merged, on one thread and on three. Prints what is wrong and, if
 * say is set, what was declined. Returns the number of failures. */
int tn_conform(const struct tn_kernels *mine, const struct tn_kernels *ref, int say,
               struct tn_conform_report *out);
#endif
