/* lt_describe.c - libcublasLt.so.13, for plugin cuda: what products are described by, and which there are.
 * What the library's documents refuse is refused: leading dimensions, types that do not go together,
 * epilogues without what they need. An algorithm remembers the problem and the alignment that it was found
 * for. */
#include "lt_own.h"

int tn_lt_handles;

cublasStatus_t tn_lt_wrong(cublasStatus_t s, const char *what)
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
    *out = (cublasLtHandle_t)&tn_lt_handles;
    tn_lt_handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    (void)handle;
    tn_lt_handles--;
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
           : s == CUBLAS_STATUS_NOT_SUPPORTED
               ? "the functionality requested is not supported"
               : "the library was not initialized, or an internal operation failed";
}

const char *cublasLtGetStatusName(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_*";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    struct tn_lt_desc *d = calloc(1, sizeof *d);

    if (!d)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *d = (struct tn_lt_desc){.compute = compute,
                             .scale = scale,
                             .bias_type = (cudaDataType_t)-1,
                             .aux_type = (cudaDataType_t)-1,
                             .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
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

static cublasStatus_t set(const struct attribute *all, size_t n, void *object, int which, const void *value,
                          size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].which == which) {
            if (all[i].size != size)
                return tn_lt_wrong(CUBLAS_STATUS_INVALID_VALUE, "an attribute of another size");
            memcpy((char *)object + all[i].at, value, size);
            return CUBLAS_STATUS_SUCCESS;
        }
    tn_fake_blame("cublasLt: attribute %d is not for this fake", which);
    return CUBLAS_STATUS_INVALID_VALUE;
}
#define ATTRIBUTE(which, type, member)                                                                       \
    {                                                                                                        \
        which, offsetof(type, member), sizeof(((type *)0)->member)                                           \
    }
#define SET(table, object, which, value, size)                                                               \
    set(table, sizeof table / sizeof *table, object, (int)(which), value, size)

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t size)
{
    static const struct attribute all[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, struct tn_lt_desc, ta),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, struct tn_lt_desc, tb),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, struct tn_lt_desc, epilogue),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, struct tn_lt_desc, bias),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, struct tn_lt_desc, bias_type),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, struct tn_lt_desc, aux),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, struct tn_lt_desc, aux_ld),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, struct tn_lt_desc, aux_step),
        ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, struct tn_lt_desc, aux_type),
    };

    return SET(all, d, which, value, size);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    struct tn_lt_layout *l = calloc(1, sizeof *l);

    if (!l)
        return CUBLAS_STATUS_ALLOC_FAILED;
    *l = (struct tn_lt_layout){.type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
    *out = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t which, const void *value,
                                                size_t size)
{
    static const struct attribute all[] = {
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, struct tn_lt_layout, batch),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, struct tn_lt_layout, step),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_LD, struct tn_lt_layout, ld),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ROWS, struct tn_lt_layout, rows),
        ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_COLS, struct tn_lt_layout, cols),
    };

    return SET(all, l, which, value, size);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct tn_lt_preference *p = calloc(1, sizeof *p);

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
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t size)
{
    static const struct attribute all[] = {
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, struct tn_lt_preference, workspace),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, struct tn_lt_preference, reductions),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, struct tn_lt_preference, alignment[0]),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, struct tn_lt_preference, alignment[1]),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, struct tn_lt_preference, alignment[2]),
        ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, struct tn_lt_preference, alignment[3]),
    };

    return SET(all, p, which, value, size);
}

/* --- which problems there are */
int tn_lt_has_bias(const struct tn_lt_desc *d)
{
    return (d->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

int tn_lt_has_aux(const struct tn_lt_desc *d)
{
    return (d->epilogue & 128) != 0; /* CUBLASLT_EPILOGUE_*_AUX and the gradients that read it */
}

static int is_type(cudaDataType_t t)
{
    return t == CUDA_R_32F || t == CUDA_R_16BF || t == CUDA_R_16F;
}

cublasStatus_t tn_lt_check(const struct tn_lt_desc *d, const struct tn_lt_layout *a,
                           const struct tn_lt_layout *b, const struct tn_lt_layout *c,
                           const struct tn_lt_layout *out)
{
    const uint64_t m = d->ta == CUBLAS_OP_N ? a->rows : a->cols,
                   ka = d->ta == CUBLAS_OP_N ? a->cols : a->rows;
    const uint64_t n = d->tb == CUBLAS_OP_N ? b->cols : b->rows,
                   kb = d->tb == CUBLAS_OP_N ? b->rows : b->cols;
    const struct tn_lt_layout *all[] = {a, b, c, out};

    for (int i = 0; i < 4; i++)
        if (all[i]->ld < (int64_t)all[i]->rows || all[i]->batch != a->batch || !all[i]->rows || !all[i]->cols)
            return tn_lt_wrong(CUBLAS_STATUS_INVALID_VALUE,
                               "a leading dimension or a batch that does not fit");
    if (ka != kb || c->rows != m || c->cols != n || memcmp(c, out, sizeof *c))
        return tn_lt_wrong(CUBLAS_STATUS_INVALID_VALUE, "matrices whose sizes do not fit each other");
    if ((d->compute != CUBLAS_COMPUTE_32F && d->compute != CUBLAS_COMPUTE_32F_FAST_TF32) ||
        d->scale != CUDA_R_32F || a->type != b->type || !is_type(a->type) || !is_type(c->type) ||
        (c->type != a->type && c->type != CUDA_R_32F) ||
        (d->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (tn_lt_has_bias(d) && d->bias_type != (cudaDataType_t)-1 && d->bias_type != c->type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (tn_lt_has_aux(d) && ((d->aux_type != (cudaDataType_t)-1 && d->aux_type != c->type) || d->aux_ld % 8 ||
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

uint64_t tn_lt_hash(const struct tn_lt_desc *d, const struct tn_lt_layout *a, const struct tn_lt_layout *b,
                    const struct tn_lt_layout *c)
{
    struct tn_lt_desc e = *d;

    e.bias = e.aux = NULL;
    return mix(mix(mix(mix(14695981039346656037u, &e, sizeof e), a, sizeof *a), b, sizeof *b), c, sizeof *c);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t pref, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *n)
{
    const struct tn_lt_preference *p = (const struct tn_lt_preference *)pref;
    const struct tn_lt_desc *d = (const struct tn_lt_desc *)desc;
    struct tn_lt_algo x = {.magic = MAGIC};
    cublasStatus_t s;

    *n = 0;
    if (handle != (cublasLtHandle_t)&tn_lt_handles || wanted < 1 || !p)
        return tn_lt_wrong(CUBLAS_STATUS_INVALID_VALUE, "a search without a handle, a preference or room");
    s = tn_lt_check(d, (void *)a, (void *)b, (void *)c, (void *)out);
    if (s)
        return s;
    x.problem = tn_lt_hash(d, (void *)a, (void *)b, (void *)c);
    x.workspace = tn_fake_draw(2) ? p->workspace / 2 : 0;
    memcpy(x.alignment, p->alignment, sizeof x.alignment);
    memset(results, 0, sizeof *results);
    memcpy(&results->algo, &x, sizeof x);
    results->workspaceSize = x.workspace, results->state = CUBLAS_STATUS_SUCCESS, results->wavesCount = 1;
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}
