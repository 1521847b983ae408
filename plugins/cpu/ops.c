/* ops.c - the table of one CPU level. */
#include "cpu.h"

#define ENTRY(op) tn_cpu_prepare_##op,
static tn_cpu_prepare_fn *const prepare[] = {TN_CPU_OPS(ENTRY)};
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

extern const struct tn_cpu_level tn_cpu_level;
const struct tn_cpu_level tn_cpu_level = {.name = TEXT(TN_LEVEL), .prepare = prepare,
                                          .through_f32 = tn_cpu_through_f32};
