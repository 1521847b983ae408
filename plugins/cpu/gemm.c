/* gemm.c - matrix products through CBLAS, cut for threads.
 *
 * The library runs on one thread in each call (plugin.c sees to that); the threads are the host's. The bits must
 * not depend on their number. Rows may be cut anywhere at a multiple of 48, a multiple of every micro-kernel's
 * height, if no piece falls under 2^20 multiplications, where OpenBLAS has other kernels: an element is then made
 * by the same instructions wherever the cuts are (tried with its kernels for Sandy Bridge, Haswell, Zen and
 * Skylake-X). Columns have no such freedom, so products with few rows are cut into blocks of columns that depend
 * on their sizes alone. */
#include <cblas.h>
#include "cpu.h"

#define UNIT 48
#define MANY_ROWS 768                            /* enough to cut rows, however many the columns are */
#define BLOCK_MIN 192
#define BLOCK_MAX 960
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
    int64_t other, block = TN_MAX(BLOCK_MIN, TN_MIN(BLOCK_MAX, g->n / 4));

    cut->by_rows = g->m >= g->n || g->m >= MANY_ROWS;
    cut->length = cut->by_rows ? g->m : g->n, other = cut->by_rows ? g->n : g->m;
    cut->unit = TN_ROUND_UP(TN_MAX(cut->by_rows ? 1 : block, WORTH / (other * g->k) + 1), UNIT);
    cut->units = TN_MAX(1, cut->length / cut->unit);     /* the last one takes the rest */
    cut->n = cut->by_rows ? TN_MIN(cut->units, slices) : cut->units;
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
