/* twin.h - compiled programs on the host: their source by the host's compiler, under the emulation. */
#ifndef TN_TEST_TWIN_H
#define TN_TEST_TWIN_H
#include "compile.h"

/* The sources of all programs in the conformance list that prepare does not decline. */
void tn_test_twin_collect(tn_status (*prepare)(const struct tn_problem *p, struct tn_kernel *out));
/* What has been collected, as one shared object; programs that were not are declined. 0: it does not compile. */
int tn_test_twin_build(void);
extern const struct tn_cuda_compiler tn_test_twin;
extern uint32_t tn_test_twin_programs, tn_test_twin_launches;
void tn_test_twin_each(void (*f)(const char *source, const char *name));
#endif
