/* lt.c - matrix products by cuBLASLt, with their epilogues.
 *
 * The library is opened when the first kernel is prepared, not with the plugin: it is large, and a run on another
 * device should not wait for it. It works column-major: c = a·b there is what we call cᵀ = bᵀ·aᵀ, so its A is our b,
 * and its bias, along its rows, is along our columns. A plan is made once for each problem and shared by those that
 * are the same. It has two algorithms: one for addresses at multiples of 16 bytes, one for any. Sums split over
 * blocks go through the workspace in fp32 only, so that every run has the same bits.
 * TENON_CUDA_TF32=1: fp32 products on tensor cores, with 10 bits of each number. */
#include <cublasLt.h>
#include <dlfcn.h>
#include "device.h"
#include "nest.h"

#define WORKSPACE (UINT64_C(32) << 20)

#define FUNCTIONS(X)                                                                                         \
    X(cublasLtCreate) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy)                               \
    X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy)           \
    X(cublasLtMatrixLayoutSetAttribute) X(cublasLtMatmulPreferenceCreate)                                    \
    X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute)                               \
    X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul) X(cublasLtGetStatusString)
#define MEMBER(name) __typeof__(name) *name;
#define NAME(name) {#name, offsetof(struct library, name)},

static struct library {
    FUNCTIONS(MEMBER)
} lt;
static const struct {
    const char *name;
    size_t at;
} names[] = {FUNCTIONS(NAME)};

static cublasLtHandle_t handle;

struct plan {
    struct tn_cuda_matmul of;
    struct plan *next;
    uint32_t users;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;              /* the library's: our b, a, c */
    cublasLtMatmulAlgo_t algo[2];                /* for addresses at multiples of 16; for any */
    int has[2];
};
static struct plan *plans;

static tn_status failed(cublasStatus_t s, const char *what)
{
    return tn_error(TN_ERR, "cuda: %s: %s (status %d)", what, lt.cublasLtGetStatusString(s), (int)s);
}

static cudaDataType_t type_of(uint32_t dtype)
{
    return dtype == TN_BF16 ? CUDA_R_16BF : dtype == TN_F16 ? CUDA_R_16F : CUDA_R_32F;
}

int tn_cuda_tf32(void)
{
    const char *set = getenv("TENON_CUDA_TF32");

    return set && !strcmp(set, "1");
}

/* --- making a plan */
static int set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, const void *value, size_t size)
{
    return lt.cublasLtMatmulDescSetAttribute(d, what, value, size) == CUBLAS_STATUS_SUCCESS;
}

static int describe(struct plan *p)
{
    static const cublasLtEpilogue_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                                   CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                                   CUBLASLT_EPILOGUE_DGELU};
    const struct tn_cuda_matmul *m = &p->of;
    const cublasComputeType_t compute =
        m->dtype == TN_F32 && tn_cuda_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t ta = m->bt ? CUBLAS_OP_T : CUBLAS_OP_N, tb = m->at ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t bias = type_of(m->dtype_bias), aux = type_of(m->dtype_c);
    const uint32_t has_bias = m->epilogue == TN_CUDA_EPI_BIAS || m->epilogue == TN_CUDA_EPI_BIAS_GELU_AUX;
    const uint32_t has_aux = m->epilogue >= TN_CUDA_EPI_GELU_AUX;

    if (lt.cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F))
        return 0;
    return set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta) &&
           set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb) &&
           set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[m->epilogue], sizeof *epilogues) &&
           (!has_bias || set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias)) &&
           (!has_aux || (set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &m->ldc, sizeof m->ldc) &&
                         set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &aux, sizeof aux)));
}

/* rows, cols: as the library sees it, column-major. */
static int lay_out(cublasLtMatrixLayout_t *out, uint32_t dtype, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                   int64_t step)
{
    const int32_t n = (int32_t)batch;

    if (lt.cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)rows, (uint64_t)cols, ld))
        return 0;
    return batch == 1 ||
           (!lt.cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n) &&
            !lt.cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                                 sizeof step));
}

static int lay_out_all(struct plan *p)
{
    const struct tn_cuda_matmul *m = &p->of;

    return lay_out(&p->a, m->dtype, m->bt ? m->k : m->n, m->bt ? m->n : m->k, m->ldb, m->batch, m->step_b) &&
           lay_out(&p->b, m->dtype, m->at ? m->m : m->k, m->at ? m->k : m->m, m->lda, m->batch, m->step_a) &&
           lay_out(&p->c, m->dtype_c, m->n, m->m, m->ldc, m->batch, m->step_c);
}

/* The best algorithm for addresses at multiples of so many bytes. */
static int choose(struct plan *p, uint32_t alignment, cublasLtMatmulAlgo_t *out)
{
    static const cublasLtMatmulPreferenceAttributes_t which[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = WORKSPACE;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t result;
    int n = 0, ok;

    if (lt.cublasLtMatmulPreferenceCreate(&pref))
        return 0;
    ok = !lt.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                  sizeof workspace) &&
         !lt.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                  sizeof reductions);
    for (size_t i = 0; i < sizeof which / sizeof *which && ok; i++)
        ok = !lt.cublasLtMatmulPreferenceSetAttribute(pref, which[i], &alignment, sizeof alignment);
    ok = ok &&
         !lt.cublasLtMatmulAlgoGetHeuristic(handle, p->desc, p->a, p->b, p->c, p->c, pref, 1, &result, &n) &&
         n == 1 && result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= WORKSPACE;
    lt.cublasLtMatmulPreferenceDestroy(pref);
    if (ok)
        *out = result.algo;
    return ok;
}

static void destroy(struct plan *p)
{
    if (p->desc)
        lt.cublasLtMatmulDescDestroy(p->desc);
    if (p->a)
        lt.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        lt.cublasLtMatrixLayoutDestroy(p->b);
    if (p->c)
        lt.cublasLtMatrixLayoutDestroy(p->c);
    free(p);
}

static tn_status plan(const struct tn_cuda_matmul *m, void **out, uint64_t *workspace)
{
    struct plan *p = plans;

    while (p && memcmp(&p->of, m, sizeof *m))
        p = p->next;
    if (!p) {
        if (!(p = calloc(1, sizeof *p)))
            return tn_error(TN_ERR_MEMORY, "cuda: no memory for a matrix product's plan");
        p->of = *m;
        if (describe(p) && lay_out_all(p)) {
            p->has[0] = choose(p, 16, &p->algo[0]);
            p->has[1] = choose(p, tn_cuda_width(m->dtype), &p->algo[1]);
        }
        if (!p->has[1]) {
            destroy(p);
            return TN_DECLINED;
        }
        p->next = plans, plans = p;
    }
    p->users++;
    *out = p, *workspace = WORKSPACE + 256;
    return TN_OK;
}

static void release(void *state)
{
    struct plan *p = state, **at = &plans;

    if (--p->users)
        return;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    destroy(p);
}

/* --- running it */
static tn_status run(void *state, const struct tn_cuda_pointers *at, void *workspace, struct tn_queue *q)
{
    const struct plan *p = state;
    const float one = 1, beta = p->of.beta;
    const uintptr_t all = (uintptr_t)at->a | (uintptr_t)at->b | (uintptr_t)at->c | (uintptr_t)at->add |
                          (uintptr_t)at->aux;
    const int which = p->has[0] && all % 16 == 0 ? 0 : 1;
    char *work = (char *)(((uintptr_t)workspace + 255) / 256 * 256);
    cublasStatus_t s;

    if (at->bias && !set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at->bias, sizeof at->bias))
        return tn_error(TN_ERR, "cuda: cuBLASLt takes no bias for this product");
    if (at->aux && !set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &at->aux, sizeof at->aux))
        return tn_error(TN_ERR, "cuda: cuBLASLt takes no second result for this product");
    s = lt.cublasLtMatmul(handle, p->desc, &one, at->b, p->a, at->a, p->b, &beta, at->add, p->c, at->c, p->c,
                          &p->algo[which], work, WORKSPACE, tn_cuda_stream(q));
    return s ? failed(s, "cublasLtMatmul") : TN_OK;
}

/* --- opening it */
static const struct tn_cuda_blas blas = {.plan = plan, .run = run, .release = release};

static const struct tn_cuda_blas *without(const char *why)
{
    char text[400];

    snprintf(text, sizeof text, "cuda: without cuBLASLt, so matrix products are slow: %s", why);
    tn_host->log(1, text);
    return NULL;
}

const struct tn_cuda_blas *tn_cuda_lt(void)
{
    char name[40];
    void *so;
    cublasStatus_t s;

    snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    if (!(so = dlopen(name, RTLD_NOW | RTLD_LOCAL)))
        return without(dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(so, names[i].name);

        if (!f)
            return without(dlerror());
        memcpy((char *)&lt + names[i].at, &f, sizeof f);
    }
    s = lt.cublasLtCreate(&handle);
    return s ? without(lt.cublasLtGetStatusString(s)) : &blas;
}
