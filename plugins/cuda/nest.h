/* nest.h - loops with strides, as the GPU walks them.
 *
 * A nest is simplified on the host: loops of one turn go, the loop along which the key operand is contiguous
 * becomes the last one, neighbours that are one loop in every operand are merged. On the device a turn's number
 * is taken apart into one count per loop, and an operand's offset is their sum times its strides. */
#ifndef TENON_CUDA_NEST_H
#define TENON_CUDA_NEST_H
#include "cuda.h"

#define TN_CUDA_LOOPS 8

struct tn_cuda_nest {
    uint32_t n, n_op;
    uint32_t size[TN_CUDA_LOOPS];
    int64_t stride[TN_CUDA_LOOPS][TN_MAX_OPERANDS];
};

/* One dim of a matrix that is really several: offset of number i along it. */
struct tn_cuda_axis {
    uint32_t n, total;
    uint32_t size[TN_CUDA_LOOPS];
    int64_t stride[TN_CUDA_LOOPS];
};

/* An operand as rows and columns. The kernel's copy has the address. */
struct tn_cuda_view {
    char *base;
    uint32_t dtype, add;                         /* add: this output is added to */
    uint32_t wide;                               /* elements that rows may be read and written at once: 8, 4 or 0 */
    uint32_t slot;                               /* in launch->buffer */
    struct tn_cuda_axis row, col;
};

/* Global indices of the local positions along one dim, in runs of consecutive ones. */
#define TN_CUDA_RUNS 4
struct tn_cuda_map {
    uint32_t n, size;
    int64_t start[TN_CUDA_RUNS], global[TN_CUDA_RUNS];
};

#ifdef __cplusplus
extern "C" {
#endif
/* 0: more loops than fit, or longer ones. Loops first..first+n of the problem. */
int tn_cuda_nest_load(struct tn_cuda_nest *nest, const struct tn_problem *p, uint32_t first, uint32_t n);
void tn_cuda_nest_simplify(struct tn_cuda_nest *nest, uint32_t key);
int64_t tn_cuda_nest_count(const struct tn_cuda_nest *nest);
/* Takes the last loop off; size 1 and no strides if there is none. */
void tn_cuda_nest_pop(struct tn_cuda_nest *nest, uint32_t *size, int64_t *stride);
/* Dims from..to-1 of an operand, in their order. 0: they do not fit. */
int tn_cuda_axis_load(struct tn_cuda_axis *axis, const struct tn_operand *o, uint32_t from, uint32_t to);
/* Operand i of the problem, inputs first; rows are the dims before split. 0: it does not fit. */
int tn_cuda_view_load(struct tn_cuda_view *v, const struct tn_problem *p, uint32_t i, uint32_t split);
/* The address, and what follows from its alignment. */
void tn_cuda_view_bind(struct tn_cuda_view *v, const struct tn_launch *l);
int tn_cuda_map_load(struct tn_cuda_map *map, const struct tn_operand *o, uint32_t dim);
uint32_t tn_cuda_width(uint32_t dtype);
uint32_t tn_cuda_threshold(double p);           /* of dropout */
#ifdef __cplusplus
}
#endif
#endif
