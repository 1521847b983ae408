/* gemm.c - matrix products through CBLAS, cut into slices for threads.
 *
 * The library runs on one thread in each call (plugin.c sees to that); the threads are the host's. Cuts lie
 * on multiples of 48 rows or columns, a multiple of every micro-kernel's height, and no piece falls under
 * 2^20 multiplications, where OpenBLAS has other kernels. So an element of c is made by the same instructions
 * wherever the cuts are, and the bits do not depend on the number of threads (tested with OpenBLAS; another
 * library may order its sums by the size of the call). */
#include <cblas.h>
#include "cpu.h"

#define UNIT 48
#define WORTH (1 << 20)                          /* multiplications that are worth a call of their own */

void tn_cpu_gemm_rect(const struct tn_cpu_gemm *g, const float *a, const float *b, float *c, int64_t i0,
                      int64_t i1, int64_t j0, int64_t j1, float beta)
{
    cblas_sgemm(CblasRowMajor, g->at ? CblasTrans : CblasNoTrans, g->bt ? CblasTrans : CblasNoTrans,
                (int)(i1 - i0), (int)(j1 - j0), (int)g->k, 1.0f, a + (g->at ? i0 : i0 * g->lda), (int)g->lda,
                b + (g->bt ? j0 * g->ldb : j0), (int)g->ldb, beta, c + i0 * g->ldc + j0, (int)g->ldc);
}

void tn_cpu_cut(const struct tn_cpu_gemm *g, int64_t slices, struct tn_cpu_cut *cut)
{
    int64_t longer = TN_MAX(g->m, g->n), other = TN_MIN(g->m, g->n), unit, units;

    unit = TN_ROUND_UP(TN_MAX(1, WORTH / (other * g->k)), UNIT);
    units = TN_MAX(1, longer / unit);            /* the last one takes the rest */
    cut->by_rows = g->m >= g->n;
    cut->n = TN_MIN(units, slices);
    cut->unit = unit, cut->units = units, cut->length = longer;
}

void tn_cpu_cut_piece(const struct tn_cpu_cut *cut, int64_t i, int64_t *lo, int64_t *hi)
{
    *lo = cut->units * i / cut->n * cut->unit;
    *hi = i == cut->n - 1 ? cut->length : cut->units * (i + 1) / cut->n * cut->unit;
}

struct run {
    const struct tn_cpu_gemm *g;
    const float *a, *b;
    float *c, beta;
    struct tn_cpu_cut cut;
};

static void run_piece(void *arg, uint32_t slot, int64_t i)
{
    const struct run *r = arg;
    int64_t lo, hi;

    (void)slot;
    tn_cpu_cut_piece(&r->cut, i, &lo, &hi);
    if (r->cut.by_rows)
        tn_cpu_gemm_rect(r->g, r->a, r->b, r->c, lo, hi, 0, r->g->n, r->beta);
    else
        tn_cpu_gemm_rect(r->g, r->a, r->b, r->c, 0, r->g->m, lo, hi, r->beta);
}

void tn_cpu_gemm_run(const struct tn_cpu_gemm *g, const float *a, const float *b, float *c, float beta)
{
    uint32_t threads = tn_host->threads();
    struct run r = {g, a, b, c, beta, {0}};

    tn_cpu_cut(g, threads, &r.cut);
    tn_cpu_share(r.cut.n, threads, run_piece, &r);
}
