/* local.h - what the two files of the plugin share: transport here, arithmetic there. */
#ifndef TENON_LOCAL_H
#define TENON_LOCAL_H
#include <tenon/comm.h>

uint64_t local_width(uint32_t dtype);            /* bytes; 0: unknown */
/* What rank gets of the collective all[0 .. n - 1], in memory that the caller frees. */
tn_status local_result(const struct tn_transfer *const *all, uint32_t n, uint32_t rank, void **out);
void local_store(const struct tn_transfer *t, uint32_t n, uint32_t rank, const void *result);
#endif
