/* numbers.h - rows of numbers from one dtype to another, and matrices turned. */
#ifndef TN_HF_NUMBERS_H
#define TN_HF_NUMBERS_H
#include <tenon/abi.h>

int hf_is_number(uint32_t dtype);                /* fp32, bf16 or fp16: what weights are kept in */
/* n elements; neither need be aligned. fp32 to fp32 keeps the bits, others round once to nearest even. */
void hf_convert(uint32_t from, const void *x, uint32_t to, void *y, uint64_t n);
/* [rows, columns] as [columns, rows], width bytes an element. */
void hf_turn(const void *x, uint64_t rows, uint64_t columns, uint64_t width, void *y);
#endif
