/* rng.h - random numbers as functions of where they are used.
 *
 * tenon/philox.h makes 32 bits of (seed, stream, step, index); here are the shapes that the core draws: a
 * uniform double, a normal double, an integer below n. There is no state: element i of a stream can be made
 * alone, so a rank that holds a shard of a tensor makes exactly the numbers of its own elements. A use has a
 * stream of its own (one for each tensor, one for the order of data, …). */
#ifndef TN_BASE_RNG_H
#define TN_BASE_RNG_H
#include <stddef.h>
#include <tenon/philox.h>

/* [0, 1), 53 random bits. */
double tn_random_uniform(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index);
/* Mean 0, deviation 1 (Box and Muller; |result| < 6.8). The second makes elements first … first+n-1, times
 * scale: the same numbers, in groups of 128 that begin at multiples of it, so many are much cheaper together. */
float tn_random_normal(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index);
void tn_random_normals(uint64_t seed, uint32_t stream, uint32_t step, uint64_t first, size_t n, float scale,
                       float *out);
/* 0 … n-1, all equally likely; index below 2^56, n from 1 to 2^63. */
uint64_t tn_random_below(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index, uint64_t n);
/* The stream of a name, such as that of a parameter: 2^31 and up, so small numbers are free for other uses.
 */
uint32_t tn_random_stream(const char *name);
#endif
