/* tile.h - the micro-kernel of attention: 6 rows by two vectors of columns, held in registers.
 *
 * b is packed in panels of TN_NR columns, panel[k][TN_NR], zero beyond the last column. a is read where it
 * lies, either along rows (unit stride in k) or, for products with a transposed matrix, down columns (the six
 * rows side by side, stride cs in k). Fewer than six rows: the row pointers repeat the last one and the
 * caller stores what it wants. BLAS is no match for it on tiles of this size. */
#ifndef TENON_CPU_TILE_H
#define TENON_CPU_TILE_H
#include "vec.h"

#define TN_MR 6
#define TN_NR (2 * TN_W)

/* acc += a[0..6][0..k] · panel */
static inline __attribute__((always_inline)) void tn_tile_rows(int64_t k, const float *const a[TN_MR],
                                                               const float *panel, tn_vec acc[TN_MR][2])
{
    const float *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3], *a4 = a[4], *a5 = a[5];
    tn_vec c00 = acc[0][0], c01 = acc[0][1], c10 = acc[1][0], c11 = acc[1][1], c20 = acc[2][0],
           c21 = acc[2][1];
    tn_vec c30 = acc[3][0], c31 = acc[3][1], c40 = acc[4][0], c41 = acc[4][1], c50 = acc[5][0],
           c51 = acc[5][1];

#define TN_ROW(r, value)                                                                                     \
    x = tn_splat(value);                                                                                     \
    c##r##0 = tn_fma(x, b0, c##r##0);                                                                        \
    c##r##1 = tn_fma(x, b1, c##r##1)
    for (int64_t p = 0; p < k; p++, panel += TN_NR) {
        tn_vec b0 = tn_load(panel), b1 = tn_load(panel + TN_W), x;

        TN_ROW(0, a0[p]);
        TN_ROW(1, a1[p]);
        TN_ROW(2, a2[p]);
        TN_ROW(3, a3[p]);
        TN_ROW(4, a4[p]);
        TN_ROW(5, a5[p]);
    }
#define TN_TILE_PUT                                                                                          \
    acc[0][0] = c00, acc[0][1] = c01, acc[1][0] = c10, acc[1][1] = c11, acc[2][0] = c20, acc[2][1] = c21;    \
    acc[3][0] = c30, acc[3][1] = c31, acc[4][0] = c40, acc[4][1] = c41, acc[5][0] = c50, acc[5][1] = c51
    TN_TILE_PUT;
}

/* acc += aᵀ · panel, where a[p·cs + r] is row r of the product */
static inline __attribute__((always_inline)) void tn_tile_columns(int64_t k, const float *a, int64_t cs,
                                                                  const float *panel, tn_vec acc[TN_MR][2])
{
    tn_vec c00 = acc[0][0], c01 = acc[0][1], c10 = acc[1][0], c11 = acc[1][1], c20 = acc[2][0],
           c21 = acc[2][1];
    tn_vec c30 = acc[3][0], c31 = acc[3][1], c40 = acc[4][0], c41 = acc[4][1], c50 = acc[5][0],
           c51 = acc[5][1];

    for (int64_t p = 0; p < k; p++, panel += TN_NR, a += cs) {
        tn_vec b0 = tn_load(panel), b1 = tn_load(panel + TN_W), x;

        TN_ROW(0, a[0]);
        TN_ROW(1, a[1]);
        TN_ROW(2, a[2]);
        TN_ROW(3, a[3]);
        TN_ROW(4, a[4]);
        TN_ROW(5, a[5]);
    }
    TN_TILE_PUT;
}
#undef TN_ROW
#undef TN_TILE_PUT
#endif
