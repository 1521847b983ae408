/* permute.h - the order of an epoch, computed instead of stored.
 *
 * A permutation of 0 … n-1 for every (seed, epoch): element i of it takes no memory and does not depend on
 * the others, so any rank, and a run that resumes in the middle of any epoch, asks for just what it needs. */
#ifndef TN_DATA_PERMUTE_H
#define TN_DATA_PERMUTE_H
#include <stdint.h>

/* i < n, n at least 1 and at most 2^62; the result is below n, and different for different i. */
uint64_t tn_permute(uint64_t seed, uint32_t stream, uint32_t epoch, uint64_t i, uint64_t n);
#endif
