/* test_plans.c - does the real cuDNN have engines for our graphs of attention? Asked without a GPU.
 *
 * The library plans and compiles for a GPU of which it gets the properties as text, if it finds a driver, for
 * which one that does nothing will do (fake/no_device.c). The graphs are the plugin's own. Nothing is run: a
 * plan says that the library knows the graph, takes its types, sizes and strides, and how much workspace it
 * wants. So that a plan means something, what must be refused is tried too. What the text of the properties
 * must be is not documented; a library that does not understand it is no failure. usage: test_plans [WORD]:
 * only what has WORD in its title */
#include <dlfcn.h>
#include <time.h>
#include "bench.h"
#include "dnn.h"

#define PROPERTIES(sm, name, count, shared, clock, l2)                                                       \
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"      \
    "\"multiProcessorCount\":" count ",\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"                   \
    "\"maxSharedMemoryPerBlockOptin\":" shared ",\"reservedSharedMemoryPerBlock\":1024,"                     \
    "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"  \
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":80000000000,"            \
    "\"smClockRateKHz\":" clock ",\"memClockRateKHz\":1593000,\"l2CacheSize\":" l2 ",\"cudaDeviceId\":0,"    \
    "\"deviceVer\":" sm ",\"driverVer\":13000,\"deviceName\":\"" name "\"}"

enum { SM80, SM90, GPUS };
static const char *const properties[GPUS] = {
    [SM80] = PROPERTIES("800", "NVIDIA A100", "108", "166912", "1410000", "41943040"),
    [SM90] = PROPERTIES("900", "NVIDIA H200", "132", "232448", "1980000", "62914560"),
};
static const char *const gpu_names[GPUS] = {"sm_80", "sm_90"};
static cudnnBackendDescriptor_t gpus[GPUS];

#ifdef __SANITIZE_ADDRESS__                      /* what NVIDIA's libraries keep is theirs */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}
#endif

/* qkv: q, k and v are one projection's; else each lies alone. most: MiB of workspace. */
struct entry {
    const char *title;
    uint32_t gpu, dtype, back, any_order, qkv;
    int64_t batch, heads, rep, time, width, most;
};

static const struct entry accepted[] = {
    {"gpt2 124M", SM90, TN_BF16, 0, 0, 1, 8, 12, 1, 1024, 64, 16},
    {"gpt2 124M", SM90, TN_BF16, 1, 0, 1, 8, 12, 1, 1024, 64, 200},
    {"gpt2 124M", SM90, TN_BF16, 1, 1, 1, 8, 12, 1, 1024, 64, 30},
    {"gpt2 124M", SM80, TN_BF16, 0, 0, 1, 8, 12, 1, 1024, 64, 16},
    {"gpt2 124M", SM80, TN_BF16, 1, 0, 1, 8, 12, 1, 1024, 64, 200},
    {"gpt2 1558M", SM90, TN_BF16, 0, 0, 1, 4, 25, 1, 1024, 64, 16},
    {"gpt2 1558M", SM90, TN_BF16, 1, 0, 1, 4, 25, 1, 1024, 64, 220},
    {"odd", SM90, TN_F16, 0, 0, 0, 2, 3, 1, 37, 16, 16},
    {"odd", SM90, TN_F16, 1, 0, 0, 2, 3, 1, 37, 16, 16},
    {"odd", SM80, TN_F16, 0, 0, 0, 2, 3, 1, 37, 128, 16},
    {"odd", SM80, TN_F16, 1, 0, 0, 2, 3, 1, 37, 128, 16},
    {"grouped", SM90, TN_BF16, 0, 0, 0, 2, 2, 4, 200, 128, 16},
    {"grouped", SM90, TN_BF16, 1, 0, 0, 2, 2, 4, 200, 128, 16},
    {"grouped", SM80, TN_BF16, 1, 0, 0, 2, 2, 4, 200, 128, 16},
};
static const struct entry refused[] = {
    {"width 63", SM90, TN_BF16, 0, 0, 0, 2, 3, 1, 128, 63, 1000},
    {"width 63", SM80, TN_BF16, 1, 0, 0, 2, 3, 1, 128, 63, 1000},
    {"too little workspace", SM90, TN_BF16, 1, 0, 1, 8, 12, 1, 1024, 64, 100},
};

static struct tn_dnn_attention describe(const struct entry *e)
{
    const int64_t D = e->width, keys = e->heads * D, all = keys * e->rep;
    const int64_t queries = e->qkv ? all + 2 * keys : all, other = e->qkv ? queries : keys;
    struct tn_dnn_attention a = {
        .batch = e->batch,
        .heads = e->heads,
        .rep = e->rep,
        .time = e->time,
        .width = D,
        .dtype = e->dtype,
        .back = e->back,
        .any_order = e->any_order,
        .q = {e->time * queries, D, queries},
        .k = {e->time * other, D, other},
        .o = {e->time * all, D, all},
    };

    memcpy(a.v, a.k, sizeof a.v);
    memcpy(a.grad, a.o, sizeof a.grad), memcpy(a.dq, a.q, sizeof a.dq);
    memcpy(a.dk, a.k, sizeof a.dk), memcpy(a.dv, a.k, sizeof a.dv);
    return a;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 1: there is a plan. */
static int has_plan(const struct entry *e, char *why, size_t size)
{
    const struct tn_dnn_attention a = describe(e);
    struct tn_dnn_graph g = {.device = gpus[e->gpu]};
    struct tn_dnn_plan plan;
    const double start = now();
    tn_status s;

    *why = 0;
    tn_dnn_attention_graph(&g, &a);
    s = tn_dnn_graph_plan(&g, (uint64_t)e->most << 20, (int)e->any_order, &plan, why, size);
    printf("%-20s %s %s %-8s %s %4.1f s ", e->title, gpu_names[e->gpu], e->dtype == TN_BF16 ? "bf16" : "fp16",
           e->back ? e->any_order ? "fast bwd" : "backward" : "forward", s ? "refused" : "planned",
           now() - start);
    if (s)
        printf("(%.90s)\n", why);
    else
        printf("(%.1f MiB of workspace)\n", (double)plan.workspace / 1048576);
    tn_dnn_plan_free(&plan);
    tn_dnn_graph_free(&g);
    return !s;
}

static int run(const char *word, const struct entry *e, size_t n, int planned)
{
    char why[400];
    int failed = 0;

    for (size_t i = 0; i < n; i++) {
        if (word && !strstr(e[i].title, word))
            continue;
        if (has_plan(&e[i], why, sizeof why) == planned)
            continue;
        failed++;
        fprintf(stderr, "FAIL %s: should%s have a plan: %s\n", e[i].title, planned ? "" : " not", why);
    }
    return failed;
}

/* --- planted mistakes: attributes changed on their way to the library */
static enum { NONE, K_NOT_TRANSPOSED, NO_ROW_SUMS, NO_DQ, PLANTED } planted;
static const char *const planted_names[PLANTED] = {
    [K_NOT_TRANSPOSED] = "K not transposed", [NO_ROW_SUMS] = "row sums given", [NO_DQ] = "without dq"};
static __typeof__(cudnnBackendSetAttribute) *set_attribute;

static cudnnStatus_t set_wrongly(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    static int64_t id;                           /* of the tensor that is being described */
    int64_t x[4];

    if (name == CUDNN_ATTR_TENSOR_UNIQUE_ID)
        id = *(const int64_t *)value;
    if (planted == K_NOT_TRANSPOSED && id == TN_DNN_K &&
        (name == CUDNN_ATTR_TENSOR_DIMENSIONS || name == CUDNN_ATTR_TENSOR_STRIDES)) {
        memcpy(x, value, sizeof x);
        value = memcpy(x, (int64_t[]){x[0], x[1], x[3], x[2]}, sizeof x);
    }
    if (planted == NO_ROW_SUMS && name == CUDNN_ATTR_OPERATIONGRAPH_OPS)
        value = (const cudnnBackendDescriptor_t *)value + 3, n -= 3; /* what makes them comes first */
    if (planted == NO_DQ && name == CUDNN_ATTR_OPERATIONGRAPH_OPS)
        n -= 1;
    return set_attribute(d, name, type, n, value);
}

static int run_planted(const char *word)
{
    int failed = 0;

    set_attribute = tn_dnn.cudnnBackendSetAttribute, tn_dnn.cudnnBackendSetAttribute = set_wrongly;
    for (planted = NONE + 1; planted < PLANTED; planted++) {
        const struct entry e = {planted_names[planted], SM90, TN_BF16, 1, 0, 1, 8, 12, 1, 1024, 64, 1000};

        failed += run(word, &e, 1, 0);
    }
    tn_dnn.cudnnBackendSetAttribute = set_attribute;
    return failed;
}

static int describe_gpu(const char *text, cudnnBackendDescriptor_t *out)
{
    return !tn_dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, out) &&
           !tn_dnn.cudnnBackendSetAttribute(*out, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                            (int64_t)strlen(text), text) &&
           !tn_dnn.cudnnBackendFinalize(*out);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL, *why;
    char text[400];
    int failed;

    if (!dlopen(NO_DEVICE, RTLD_NOW | RTLD_GLOBAL))
        return fprintf(stderr, "FAIL %s\n", dlerror()), 1;
    if ((why = tn_dnn_load())) {
        printf("skipped: cuDNN is not here: %s\n", why);
        return 77;
    }
    for (int i = 0; i < GPUS; i++)
        if (!describe_gpu(properties[i], &gpus[i])) {
            printf("skipped: this cuDNN (%zu) does not understand the properties of a GPU as we write them\n",
                   tn_dnn.cudnnGetVersion());
            return 77;
        }
    if (!has_plan(&accepted[0], text, sizeof text) &&
        (strstr(text, "DRIVER") || strstr(text, "COMPILATION"))) {
        printf("skipped: this cuDNN (%zu) does not compile without a driver that works\n",
               tn_dnn.cudnnGetVersion());
        return 77;
    }
    failed = run(word, accepted, sizeof accepted / sizeof *accepted, 1);
    failed += run(word, refused, sizeof refused / sizeof *refused, 0);
    failed += run_planted(word);
    printf("%d failures\n", failed);
    return failed > 0;
}
