/* lt.c - libcublasLt.so.13 as loops: what plugin cuda asks of it, checked as the library does and a little more.
 *
 * A product is an operation on its stream. When it is asked for: leading dimensions, types that go together, epilogues
 * with what they need, an algorithm that was found for this very problem, addresses with the alignment that it was found
 * for, room in every operand and in the workspace. When it runs: in double, rounded once; the workspace that the
 * algorithm takes is overwritten. Sizes and layouts are the library's: column-major, D = alpha op(A) op(B) + beta C. */
#include <cublasLt.h>
#include <math.h>
#include "fake.h"
#include "number.h"

#define MAGIC 0x616c676fu

struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld, step;
    int32_t batch, reserved0;                    /* no padding: compared as bytes */
};
struct desc {
    cublasComputeType_t compute;
    cudaDataType_t scale, bias_type, aux_type;
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    uint32_t reserved0;
    void *bias, *aux;
    int64_t aux_ld, aux_step;
};
struct preference {
    uint64_t workspace;
    uint32_t alignment[4], reductions;           /* A, B, C, D */
};
struct algo {                                    /* in the library's own struct of 64 bytes */
    uint64_t magic, problem, workspace;
    uint32_t alignment[4];
};
_Static_assert(sizeof(struct algo) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm");

struct product {                                 /* the operation */
    struct desc d;
    struct layout a, b, c, out;
    const void *at_a, *at_b, *at_c;
    void *at_out, *workspace;
    uint64_t workspace_bytes;
    float alpha, beta;
};
static int handles;

static cublasStatus_t wrong(cublasStatus_t s, const char *what)
{
    tn_fake_blame("cublasLt: %s", what);
    return s;
}

/* --- handles and descriptions */
cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    int n = 0;

    if (cudaGetDeviceCount(&n))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *out = (cublasLtHandle_t)&handles;
    handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    (void)handle;
    handles--;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 130100;
}

const char *cublasLtGetStatusString(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS         ? "the operation completed successfully"
           : s == CUBLAS_STATUS_INVALID_VALUE ? "an unsupported value or parameter was passed to the function"
           : s == CUBLAS_STATUS_NOT_SUPPORTED ? "the functionality requested is not supported"
                                              : "the library was not initialized, or an internal operation failed";
}

const char *cublasLtGetStatusName(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_*";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    struct desc *d = calloc(1, sizeof *d);

    if (!d)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *d = (struct desc){.compute = compute, .scale = scale, .bias_type = (cudaDataType_t)-1,
                       .aux_type = (cudaDataType_t)-1, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    *out = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

/* A table of attributes: where each is kept, and its size. */
struct attribute {
    int which;
    size_t at, size;
};

static cublasStatus_t set(const struct attribute *all, size_t n, void *object, int which, const void *value, size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].which == which) {
            if (all[i].size != size)
                return wrong(CUBLAS_STATUS_INVALID_VALUE, "an attribute of another size");
            memcpy((char *)object + all[i].at, value, size);
            return CUBLAS_STATUS_SUCCESS;
        }
    tn_fake_blame("cublasLt: attribute %d is not for this fake", which);
    return CUBLAS_STATUS_INVALID_VALUE;
}
#define ATTRIBUTE(which, type, member) {which, offsetof(type, member), sizeof(((type *)0)->member)}
#define SET(table, object, which, value, size) set(table, sizeof table / sizeof *table, object, (int)(which), value, size)

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t size)
{
    static const struct attribute all[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, struct desc, ta),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, struct desc, tb),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, struct desc, epilogue),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, struct desc, bias),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, struct desc, bias_type),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, struct desc, aux),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, struct desc, aux_ld),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, struct desc, aux_step),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, struct desc, aux_type),
    };

    return SET(all, d, which, value, size);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld)
{
    struct layout *l = calloc(1, sizeof *l);

    if (!l)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *l = (struct layout){.type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t which,
                                                const void *value, size_t size)
{
    static const struct attribute all[] = {
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, struct layout, batch),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, struct layout, step),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_LD, struct layout, ld),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ROWS, struct layout, rows),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_COLS, struct layout, cols),
    };

    return SET(all, l, which, value, size);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference *p = calloc(1, sizeof *p);

    if (!p)
        return CUBLAS_STATUS_ALLOC_FAILED;
    for (int i = 0; i < 4; i++)
        p->alignment[i] = 256;
    p->reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    *out = (cublasLtMatmulPreference_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void *value,
                                                    size_t size)
{
    static const struct attribute all[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, struct preference, workspace),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, struct preference, reductions),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, struct preference, alignment[0]),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, struct preference, alignment[1]),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, struct preference, alignment[2]),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, struct preference, alignment[3]),
    };

    return SET(all, p, which, value, size);
}

/* --- which problems there are */
static int has_bias(const struct desc *d)
{
    return (d->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

static int has_aux(const struct desc *d)
{
    return (d->epilogue & 128) != 0;             /* CUBLASLT_EPILOGUE_*_AUX and the gradients that read it */
}

static int is_type(cudaDataType_t t)
{
    return t == CUDA_R_32F || t == CUDA_R_16BF || t == CUDA_R_16F;
}

/* CUBLAS_STATUS_INVALID_VALUE: it contradicts itself; NOT_SUPPORTED: the library has no such product. */
static cublasStatus_t check(const struct desc *d, const struct layout *a, const struct layout *b, const struct layout *c,
                            const struct layout *out)
{
    const uint64_t m = d->ta == CUBLAS_OP_N ? a->rows : a->cols, ka = d->ta == CUBLAS_OP_N ? a->cols : a->rows;
    const uint64_t n = d->tb == CUBLAS_OP_N ? b->cols : b->rows, kb = d->tb == CUBLAS_OP_N ? b->rows : b->cols;
    const struct layout *all[] = {a, b, c, out};

    for (int i = 0; i < 4; i++)
        if (all[i]->ld < (int64_t)all[i]->rows || all[i]->batch != a->batch || !all[i]->rows || !all[i]->cols)
            return wrong(CUBLAS_STATUS_INVALID_VALUE, "a leading dimension or a batch that does not fit");
    if (ka != kb || c->rows != m || c->cols != n || memcmp(c, out, sizeof *c))
        return wrong(CUBLAS_STATUS_INVALID_VALUE, "matrices whose sizes do not fit each other");
    if ((d->compute != CUBLAS_COMPUTE_32F && d->compute != CUBLAS_COMPUTE_32F_FAST_TF32) || d->scale != CUDA_R_32F ||
        a->type != b->type || !is_type(a->type) || !is_type(c->type) || (c->type != a->type && c->type != CUDA_R_32F) ||
        (d->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has_bias(d) && d->bias_type != (cudaDataType_t)-1 && d->bias_type != c->type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has_aux(d) && ((d->aux_type != (cudaDataType_t)-1 && d->aux_type != c->type) || d->aux_ld % 8 ||
                       d->aux_step % 8 || d->aux_ld < (int64_t)m || (a->batch > 1 && !d->aux_step)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return h;
}

/* Of what an algorithm is found for: all but addresses. */
static uint64_t hash(const struct desc *d, const struct layout *a, const struct layout *b, const struct layout *c)
{
    struct desc e = *d;

    e.bias = e.aux = NULL;
    return mix(mix(mix(mix(14695981039346656037u, &e, sizeof e), a, sizeof *a), b, sizeof *b), c, sizeof *c);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t pref, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *n)
{
    const struct preference *p = (const struct preference *)pref;
    const struct desc *d = (const struct desc *)desc;
    struct algo x = {.magic = MAGIC};
    cublasStatus_t s;

    *n = 0;
    if (handle != (cublasLtHandle_t)&handles || wanted < 1 || !p)
        return wrong(CUBLAS_STATUS_INVALID_VALUE, "a search without a handle, a preference or room");
    s = check(d, (void *)a, (void *)b, (void *)c, (void *)out);
    if (s)
        return s;
    x.problem = hash(d, (void *)a, (void *)b, (void *)c);
    x.workspace = tn_fake_draw(2) ? p->workspace / 2 : 0;
    memcpy(x.alignment, p->alignment, sizeof x.alignment);
    memset(results, 0, sizeof *results);
    memcpy(&results->algo, &x, sizeof x);
    results->workspaceSize = x.workspace, results->state = CUBLAS_STATUS_SUCCESS, results->wavesCount = 1;
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- a product */
static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

static void finish(const struct product *p, int64_t batch, int64_t i, int64_t j, double v)
{
    const cudaDataType_t type = p->out.type;
    const int64_t aux = batch * p->d.aux_step + j * p->d.aux_ld + i;

    v *= p->alpha;
    if (p->beta != 0)
        v += p->beta * tn_fake_get(type, p->at_c, batch * p->c.step + j * p->c.ld + i);
    if (has_bias(&p->d))
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
    const struct product *p = what;
    const struct layout *a = &p->a, *b = &p->b;
    const int na = p->d.ta == CUBLAS_OP_N, nb = p->d.tb == CUBLAS_OP_N;
    const int64_t m = (int64_t)p->c.rows, n = (int64_t)p->c.cols, depth = (int64_t)(na ? a->cols : a->rows);

    (void)ticket;
    spoil(p->workspace, p->workspace_bytes);
    for (int64_t batch = 0; batch < a->batch; batch++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                double v = 0;

                for (int64_t k = 0; k < depth; k++)
                    v += tn_fake_get(a->type, p->at_a, batch * a->step + (na ? k * a->ld + i : i * a->ld + k)) *
                         tn_fake_get(b->type, p->at_b, batch * b->step + (nb ? j * b->ld + k : k * b->ld + j));
                finish(p, batch, i, j, v);
            }
    return cudaSuccess;
}

static const struct tn_fake_kind kind = {.name = "cublasLtMatmul", .run = run};

static size_t extent(const struct layout *l)
{
    return ((size_t)((l->batch - 1) * l->step) + (l->cols - 1) * (size_t)l->ld + l->rows) * tn_fake_width(l->type);
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
        tn_fake_blame("cublasLtMatmul: %s, %p, is not at a multiple of %u, for which its algorithm was found", name, p,
                      alignment);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* Are all addresses of the device, large enough, apart from each other? */
static cublasStatus_t check_addresses(const struct product *p, const struct algo *x, int device)
{
    const size_t width = tn_fake_width(p->c.type), out = extent(&p->out);
    const size_t aux = has_aux(&p->d) ? ((size_t)(p->c.batch - 1) * (size_t)p->d.aux_step +
                                         (p->c.cols - 1) * (size_t)p->d.aux_ld + p->c.rows) * width : 0;
    cublasStatus_t s;

    if ((s = operand(device, "A", p->at_a, extent(&p->a), x->alignment[0])) ||
        (s = operand(device, "B", p->at_b, extent(&p->b), x->alignment[1])) ||
        (s = operand(device, "D", p->at_out, out, x->alignment[3])) ||
        (p->beta != 0 && (s = operand(device, "C", p->at_c, extent(&p->c), x->alignment[2]))) ||
        (has_bias(&p->d) && (s = operand(device, "its bias", p->d.bias, p->c.rows * width, (uint32_t)width))) ||
        (aux && (s = operand(device, "its second result", p->d.aux, aux, 16))) ||
        (x->workspace && (s = operand(device, "its workspace", p->workspace, x->workspace, 256))))
        return s;
    if (touch(p->at_out, out, p->at_a, extent(&p->a)) || touch(p->at_out, out, p->at_b, extent(&p->b)) ||
        (x->workspace && touch(p->at_out, out, p->workspace, x->workspace)) ||
        (aux && touch(p->at_out, out, p->d.aux, aux)) ||
        (p->beta != 0 && p->at_c != p->at_out && touch(p->at_out, out, p->at_c, extent(&p->c))))
        return wrong(CUBLAS_STATUS_INVALID_VALUE, "the result overlaps what is read");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *at_a,
                              cublasLtMatrixLayout_t a, const void *at_b, cublasLtMatrixLayout_t b, const void *beta,
                              const void *at_c, cublasLtMatrixLayout_t c, void *at_out, cublasLtMatrixLayout_t out,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes, cudaStream_t stream)
{
    struct product p = {.at_a = at_a, .at_b = at_b, .at_c = at_c, .at_out = at_out, .workspace = workspace};
    struct algo x;
    cublasStatus_t s;

    if (handle != (cublasLtHandle_t)&handles || !algo)
        return wrong(CUBLAS_STATUS_INVALID_VALUE, "a product without a handle or an algorithm");
    memcpy(&x, algo, sizeof x);
    memcpy(&p.d, desc, sizeof p.d);
    memcpy(&p.a, a, sizeof p.a), memcpy(&p.b, b, sizeof p.b), memcpy(&p.c, c, sizeof p.c), memcpy(&p.out, out, sizeof p.out);
    memcpy(&p.alpha, alpha, sizeof p.alpha), memcpy(&p.beta, beta, sizeof p.beta);
    p.workspace_bytes = x.workspace;
    if (x.magic != MAGIC || x.problem != hash(&p.d, &p.a, &p.b, &p.c) || x.workspace > bytes)
        return wrong(CUBLAS_STATUS_INVALID_VALUE, "an algorithm that was not found for this product, or too small a workspace");
    tn_fake_lock();
    tn_fake_count()->products++;
    if (tn_fake_planted("leading-dimension"))
        p.a.ld++;
    s = check(&p.d, &p.a, &p.b, &p.c, &p.out);
    if (!s)
        s = check_addresses(&p, &x, tn_fake_stream_device(stream));
    if (!s && tn_fake_put(stream, &kind, &p, sizeof p))
        s = CUBLAS_STATUS_EXECUTION_FAILED;
    tn_fake_unlock();
    return s;
}
