/* number.h - numbers of every dtype as double, and back, rounded once to the nearest one. */
#ifndef TN_NUMBER_H
#define TN_NUMBER_H
#include <stddef.h>
#include <stdint.h>

size_t tn_number_width(uint32_t dtype);          /* bytes; 0: there is no such dtype */
void tn_number_write(uint32_t dtype, void *at, double v);
double tn_number_read(uint32_t dtype, const void *at);
/* Element i of an array. */
void tn_number_set(uint32_t dtype, void *array, uint64_t i, double v);
double tn_number_get(uint32_t dtype, const void *array, uint64_t i);
#endif
