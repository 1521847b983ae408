/* blas.c - the matrix library that plugin cuda asks, as loops on the host.
 *
 * With it the conformance list goes the ways that contractions take when cuBLASLt is there: which operand is the left
 * one, what is transposed, which loops are the batch, which programs are an epilogue. In fp32, rounded once. It refuses
 * what the library would: leading dimensions that are too short. */
#include <math.h>
#include "blas.h"
#include "bench_inside.h"

static double get(uint32_t dtype, const void *base, int64_t at)
{
    return tn_number_read(dtype, (const char *)base + at * (int64_t)tn_number_width(dtype));
}

static void put(uint32_t dtype, void *base, int64_t at, double v)
{
    tn_number_write(dtype, (char *)base + at * (int64_t)tn_number_width(dtype), v);
}

static tn_status plan(const struct tn_cuda_matmul *m, void **out, uint64_t *workspace)
{
    struct tn_cuda_matmul *p = malloc(sizeof *p);

    if (m->lda < (m->at ? m->m : m->k) || m->ldb < (m->bt ? m->k : m->n) || m->ldc < m->n)
        tn_bench_stop("a product of %lld by %lld by %lld with leading dimensions %lld, %lld, %lld", (long long)m->m,
                      (long long)m->n, (long long)m->k, (long long)m->lda, (long long)m->ldb, (long long)m->ldc);
    *p = *m;
    *out = p, *workspace = 64;
    return TN_OK;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

static void finish(const struct tn_cuda_matmul *m, const struct tn_cuda_pointers *at, int64_t c, int64_t j, double v)
{
    if (m->beta != 0)
        v += m->beta * get(m->dtype_c, at->add, c);
    if (m->epilogue == TN_CUDA_EPI_BIAS || m->epilogue == TN_CUDA_EPI_BIAS_GELU_AUX)
        v += get(m->dtype_bias, at->bias, j);
    if (m->epilogue == TN_CUDA_EPI_DGELU)
        v *= slope(get(m->dtype_c, at->aux, c));
    if (m->epilogue == TN_CUDA_EPI_GELU_AUX || m->epilogue == TN_CUDA_EPI_BIAS_GELU_AUX) {
        put(m->dtype_c, at->aux, c, v);
        v = gelu(v);
    }
    put(m->dtype_c, at->c, c, v);
}

static tn_status run(void *state, const struct tn_cuda_pointers *at, void *workspace, struct tn_queue *q)
{
    const struct tn_cuda_matmul *m = state;

    (void)workspace, (void)q;
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t i = 0; i < m->m; i++)
            for (int64_t j = 0; j < m->n; j++) {
                double v = 0;

                for (int64_t k = 0; k < m->k; k++)
                    v += get(m->dtype, at->a, b * m->step_a + (m->at ? k * m->lda + i : i * m->lda + k)) *
                         get(m->dtype, at->b, b * m->step_b + (m->bt ? j * m->ldb + k : k * m->ldb + j));
                finish(m, at, b * m->step_c + i * m->ldc + j, j, v);
                tn_test_blas_elements++;
            }
    return TN_OK;
}

uint64_t tn_test_blas_elements;
const struct tn_cuda_blas tn_test_blas = {.plan = plan, .run = run, .release = free};
