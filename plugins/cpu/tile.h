/* tile.h - the micro-kernel of attention: up to 6 rows by two vectors of columns, held in registers.
 *
 * b is packed in panels of TN_NR columns, panel[k][TN_NR], zero beyond the last column. a is read where it lies:
 * element p of row r is a[r·rs + p·ks], so that rows (ks = 1) and columns (rs = 1) are the same to it. BLAS is
 * no match for it on tiles of this size. It is no inline function: within the loops around it the compiler has
 * not enough registers for its pointers. */
#ifndef TENON_CPU_TILE_H
#define TENON_CPU_TILE_H
#include "vec.h"

#define TN_MR 6
#define TN_NR (2 * TN_W)

static inline __attribute__((always_inline)) void tn_tile_of(const int m, int64_t k, const float *a, int64_t rs,
                                                             int64_t ks, const float *panel, tn_vec acc[][2])
{
    tn_vec c[TN_MR][2];

#pragma GCC unroll 6
    for (int r = 0; r < m; r++)
        c[r][0] = c[r][1] = (tn_vec){0};
    for (; k > 0; k--, a += ks, panel += TN_NR) {
        tn_vec b0 = tn_load(panel), b1 = tn_load(panel + TN_W);

#pragma GCC unroll 6
        for (int r = 0; r < m; r++) {
            tn_vec x = tn_splat(a[r * rs]);

            c[r][0] = tn_fma(x, b0, c[r][0]);
            c[r][1] = tn_fma(x, b1, c[r][1]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < m; r++)
        acc[r][0] = c[r][0], acc[r][1] = c[r][1];
}

/* acc = a[0..m][0..k] · panel, 1 <= m <= TN_MR */
__attribute__((noinline, unused)) static void tn_tile(int64_t m, int64_t k, const float *a, int64_t rs, int64_t ks,
                                                      const float *panel, tn_vec acc[TN_MR][2])
{
    switch (m) {
    case 6: tn_tile_of(6, k, a, rs, ks, panel, acc); break;
    case 5: tn_tile_of(5, k, a, rs, ks, panel, acc); break;
    case 4: tn_tile_of(4, k, a, rs, ks, panel, acc); break;
    case 3: tn_tile_of(3, k, a, rs, ks, panel, acc); break;
    case 2: tn_tile_of(2, k, a, rs, ks, panel, acc); break;
    default: tn_tile_of(1, k, a, rs, ks, panel, acc); break;
    }
}
#endif
