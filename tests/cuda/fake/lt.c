/* lt.c - a matrix product of the fake cuBLASLt, as loops: an operation on its stream.
 *
 * When it is asked for, its algorithm must be one that was found for this very problem, its addresses must
 * have the alignment that it was found for, and there must be room in every operand and in the workspace.
 * When it runs: in double, rounded once; the workspace is written over. Layouts are the library's:
 * column-major, D = alpha op(A) op(B) + beta C. */
#include <math.h>
#include "lt_own.h"

struct tn_lt_product { /* the operation */
    struct tn_lt_desc d;
    struct tn_lt_layout a, b, c, out;
    const void *at_a, *at_b, *at_c;
    void *at_out, *workspace;
    uint64_t workspace_bytes;
    float alpha, beta;
};

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

static void finish(const struct tn_lt_product *p, int64_t batch, int64_t i, int64_t j, double v)
{
    const cudaDataType_t type = p->out.type;
    const int64_t aux = batch * p->d.aux_step + j * p->d.aux_ld + i;

    v *= p->alpha;
    if (p->beta != 0)
        v += p->beta * tn_fake_get(type, p->at_c, batch * p->c.step + j * p->c.ld + i);
    if (tn_lt_has_bias(&p->d))
        v += tn_fake_get(type, p->d.bias, i);
    switch (p->d.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS: break;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: tn_fake_put_number(type, p->d.aux, aux, v); /* fall through */
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS: v = gelu(v); break;
    case CUBLASLT_EPILOGUE_DGELU: v *= slope(tn_fake_get(type, p->d.aux, aux)); break;
    default: tn_fake_die("cublasLt: epilogue %d is not for this fake", (int)p->d.epilogue);
    }
    tn_fake_put_number(type, p->at_out, batch * p->out.step + j * p->out.ld + i, v);
}

/* Both ends of the workspace, as much as is quick. */
static void spoil(char *at, size_t bytes)
{
    const size_t n = bytes < 1 << 16 ? bytes : 1 << 16;

    memset(at, 0xff, n);
    memset(at + bytes - n, 0xff, n);
}

static int run(const void *what, uint64_t ticket)
{
    const struct tn_lt_product *p = what;
    const struct tn_lt_layout *a = &p->a, *b = &p->b;
    const int na = p->d.ta == CUBLAS_OP_N, nb = p->d.tb == CUBLAS_OP_N;
    const int64_t m = (int64_t)p->c.rows, n = (int64_t)p->c.cols, depth = (int64_t)(na ? a->cols : a->rows);

    (void)ticket;
    spoil(p->workspace, p->workspace_bytes);
    for (int64_t batch = 0; batch < a->batch; batch++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                double v = 0;

                for (int64_t k = 0; k < depth; k++)
                    v +=
                        tn_fake_get(a->type, p->at_a,
                                    batch * a->step + (na ? k * a->ld + i : i * a->ld + k)) *
                        tn_fake_get(b->type, p->at_b, batch * b->step + (nb ? j * b->ld + k : k * b->ld + j));
                finish(p, batch, i, j, v);
            }
    return cudaSuccess;
}

static const struct tn_fake_kind kind = {.name = "cublasLtMatmul", .run = run};

static size_t extent(const struct tn_lt_layout *l)
{
    return ((size_t)((l->batch - 1) * l->step) + (l->cols - 1) * (size_t)l->ld + l->rows) *
           tn_fake_width(l->type);
}

static int touch(const void *p, size_t n, const void *q, size_t m)
{
    return (const char *)p < (const char *)q + m && (const char *)q < (const char *)p + n;
}

static cublasStatus_t operand(int device, const char *name, const void *p, size_t bytes, uint32_t alignment)
{
    const char *why = tn_fake_range(device, p, bytes);

    if (!why && (uintptr_t)p % alignment == 0)
        return CUBLAS_STATUS_SUCCESS;
    if (why)
        tn_fake_blame("cublasLtMatmul: %s: %s", name, why);
    else
        tn_fake_blame("cublasLtMatmul: %s, %p, is not at a multiple of %u, for which its algorithm was found",
                      name, p, alignment);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* Are all addresses of the device, large enough, apart from each other? */
static cublasStatus_t check_addresses(const struct tn_lt_product *p, const struct tn_lt_algo *x, int device)
{
    const size_t width = tn_fake_width(p->c.type), out = extent(&p->out);
    const size_t aux = tn_lt_has_aux(&p->d) ? ((size_t)(p->c.batch - 1) * (size_t)p->d.aux_step +
                                               (p->c.cols - 1) * (size_t)p->d.aux_ld + p->c.rows) *
                                                  width
                                            : 0;
    cublasStatus_t s;

    if ((s = operand(device, "A", p->at_a, extent(&p->a), x->alignment[0])) ||
        (s = operand(device, "B", p->at_b, extent(&p->b), x->alignment[1])) ||
        (s = operand(device, "D", p->at_out, out, x->alignment[3])) ||
        (p->beta != 0 && (s = operand(device, "C", p->at_c, extent(&p->c), x->alignment[2]))) ||
        (tn_lt_has_bias(&p->d) &&
         (s = operand(device, "its bias", p->d.bias, p->c.rows * width, (uint32_t)width))) ||
        (aux && (s = operand(device, "its second result", p->d.aux, aux, 16))) ||
        (x->workspace && (s = operand(device, "its workspace", p->workspace, x->workspace, 256))))
        return s;
    if (touch(p->at_out, out, p->at_a, extent(&p->a)) || touch(p->at_out, out, p->at_b, extent(&p->b)) ||
        (x->workspace && touch(p->at_out, out, p->workspace, x->workspace)) ||
        (aux && touch(p->at_out, out, p->d.aux, aux)) ||
        (p->beta != 0 && p->at_c != p->at_out && touch(p->at_out, out, p->at_c, extent(&p->c))))
        return tn_lt_wrong(CUBLAS_STATUS_INVALID_VALUE, "the result overlaps what is read");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *at_a, cublasLtMatrixLayout_t a, const void *at_b,
                              cublasLtMatrixLayout_t b, const void *beta, const void *at_c,
                              cublasLtMatrixLayout_t c, void *at_out, cublasLtMatrixLayout_t out,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    struct tn_lt_product p = {
        .at_a = at_a, .at_b = at_b, .at_c = at_c, .at_out = at_out, .workspace = workspace};
    struct tn_lt_algo x;
    cublasStatus_t s;

    if (handle != (cublasLtHandle_t)&tn_lt_handles || !algo)
        return tn_lt_wrong(CUBLAS_STATUS_INVALID_VALUE, "a product without a handle or an algorithm");
    memcpy(&x, algo, sizeof x);
    memcpy(&p.d, desc, sizeof p.d);
    memcpy(&p.a, a, sizeof p.a), memcpy(&p.b, b, sizeof p.b), memcpy(&p.c, c, sizeof p.c),
        memcpy(&p.out, out, sizeof p.out);
    memcpy(&p.alpha, alpha, sizeof p.alpha), memcpy(&p.beta, beta, sizeof p.beta);
    p.workspace_bytes = x.workspace;
    if (x.magic != MAGIC || x.problem != tn_lt_hash(&p.d, &p.a, &p.b, &p.c) || x.workspace > bytes)
        return tn_lt_wrong(CUBLAS_STATUS_INVALID_VALUE,
                           "an algorithm that was not found for this product, or too small a workspace");
    tn_fake_lock();
    tn_fake_count()->products++;
    if (tn_fake_planted("leading-dimension"))
        p.a.ld++;
    s = tn_lt_check(&p.d, &p.a, &p.b, &p.c, &p.out);
    if (!s)
        s = check_addresses(&p, &x, tn_fake_stream_device(stream));
    if (!s && tn_fake_put(stream, &kind, &p, sizeof p))
        s = CUBLAS_STATUS_EXECUTION_FAILED;
    tn_fake_unlock();
    return s;
}
