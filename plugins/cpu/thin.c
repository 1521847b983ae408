/* thin.c - products with a few rows: y[i][j] = x row i · w row j, for generation and small batches.
 *
 * Each weight is read once and used a few times, so memory decides: w is read as it lies, row after row, by all
 * threads at once, and nothing is packed. An element is one sum in an order that its length alone decides, so its
 * bits depend neither on the threads, nor on the cut, nor on how many rows there are. */
#include "cpu.h"
#include "vec.h"
#include "vexp.h"

#define LANES 4                                  /* sums of one element that run beside each other */

/* y[i·step] = x row i · w, in this order: LANES vectors at a time, then single vectors, then numbers. */
static inline __attribute__((always_inline)) void dots(const int m, int64_t k, const float *x, int64_t lda, const float *w,
                                                       float *y, int64_t step, float beta)
{
    tn_vec sum[TN_CPU_THIN][LANES];
    float rest[TN_CPU_THIN];
    int64_t at = 0;

#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
        rest[i] = 0;
        for (int l = 0; l < LANES; l++)
            sum[i][l] = (tn_vec){0};
    }
    for (; at + LANES * TN_W <= k; at += LANES * TN_W)
#pragma GCC unroll 4
        for (int l = 0; l < LANES; l++) {
            tn_vec b = tn_load(w + at + l * TN_W);

#pragma GCC unroll 8
            for (int i = 0; i < m; i++)
                sum[i][l] = tn_fma(tn_load(x + i * lda + at + l * TN_W), b, sum[i][l]);
        }
    for (; at + TN_W <= k; at += TN_W)
#pragma GCC unroll 8
        for (int i = 0; i < m; i++)
            sum[i][0] = tn_fma(tn_load(x + i * lda + at), tn_load(w + at), sum[i][0]);
    for (; at < k; at++)
#pragma GCC unroll 8
        for (int i = 0; i < m; i++)
            rest[i] += x[i * lda + at] * w[at];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
        float all = tn_lanes_sum((sum[i][0] + sum[i][1]) + (sum[i][2] + sum[i][3])) + rest[i];

        y[i * step] = beta != 0 ? y[i * step] + all : all;
    }
}

/* Up to four rows at a time: more sums than there are registers. */
static void some_rows(const struct tn_cpu_gemm *g, int64_t m, const float *x, const float *w, float *y, float beta)
{
    for (; m > 0; m -= 4, x += 4 * g->lda, y += 4 * g->ldc)
        switch (m) {
        case 1: dots(1, g->k, x, g->lda, w, y, g->ldc, beta); break;
        case 2: dots(2, g->k, x, g->lda, w, y, g->ldc, beta); break;
        case 3: dots(3, g->k, x, g->lda, w, y, g->ldc, beta); break;
        default: dots(4, g->k, x, g->lda, w, y, g->ldc, beta);
        }
}

void tn_cpu_thin_rect(const struct tn_cpu_gemm *g, const float *a, const float *b, float *c, int64_t i0, int64_t i1,
                      int64_t j0, int64_t j1, float beta)
{
    for (int64_t j = j0; j < j1; j++)
        some_rows(g, i1 - i0, a + i0 * g->lda, b + j * g->ldb, c + i0 * g->ldc + j, beta);
}
