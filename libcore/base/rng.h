/* rng.h - random numbers as functions of where they are used.
 *
 * tenon/philox.h makes 32 bits of (seed, stream, step, index); here are the shapes that the core draws: a
 * uniform double, a normal double, an integer below n. There is no state: element i of a stream can be made
 * alone, so a rank that holds a shard of a tensor makes exactly the numbers of its own elements. A use has a
 * stream of its own (one for each tensor, one for the order of data, …). */
#ifndef TN_BASE_RNG_H
#define TN_BASE_RNG_H
#include <tenon/philox.h>

/* [0, 1), 53 random bits. */
double tn_random_uniform(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index);
/* Mean 0, deviation 1 (Box and Muller: elements 2k and 2k+1 are one pair; |result| < 8.6). */
double tn_random_normal(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index);
/* 0 … n-1, all equally likely; n of at least 1 and below 2^63. */
uint64_t tn_random_below(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index, uint64_t n);
/* A stream of its own for each name, such as that of a parameter. */
uint32_t tn_random_stream(const char *name);
#endif
