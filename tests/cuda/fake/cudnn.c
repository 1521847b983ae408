/* cudnn.c - a libcudnn.so.9 for tests: the backend interface, with an engine that computes any graph on the
 * host.
 *
 * Descriptors keep their attributes as they were set and are checked when they are finalized. The engine says
 * what a graph means, naively and in double (cudnn_graph.c), so it is what real engines are to agree with.
 * Four configurations are offered, and only the last one is what a careful program takes: the first has no
 * plan, the second says that its sums have no order, the third wants more workspace than there is memory.
 * What is executed goes on the handle's stream: through the fake CUDA runtime if it is in the
 * process, else at once. Everything that is used must be alive and whole, also what the real library may have
 * copied. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cudnn_fake.h"
#include "fake.h"

#define API __attribute__((visibility("default")))
#define LIVE 0x746e2064
#define ALIGNMENT 16

struct attribute {
    struct attribute *next;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    char value[];
};
struct tn_fake_descriptor {
    uint32_t live;
    int finalized, number;                       /* number: of a configuration */
    cudnnBackendDescriptorType_t type;
    struct attribute *attributes;
    const struct tn_fake_descriptor *graph;      /* of a configuration */
};
struct cudnnContext {
    cudaStream_t stream;
};
enum { NO_PLAN, ANY_ORDER, TOO_LARGE, GOOD, CONFIGURATIONS };

static char last[300];
API uint64_t tn_fake_cudnn_executed, tn_fake_cudnn_any_order, tn_fake_cudnn_live;

cudnnStatus_t tn_fake_wrong(cudnnStatus_t s, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(last, sizeof last, format, ap);
    va_end(ap);
    return s;
}

/* --- descriptors */
static struct tn_fake_descriptor *known(cudnnBackendDescriptor_t d)
{
    struct tn_fake_descriptor *x = d;

    return x && x->live == LIVE ? x : NULL;
}

static size_t width(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    default: return 4;                           /* enums, float, int32 */
    }
}

static const struct attribute *find(const struct tn_fake_descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct attribute *a = d->attributes;

    while (a && a->name != name)
        a = a->next;
    return a;
}

const void *tn_fake_get(const struct tn_fake_descriptor *d, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t *n)
{
    const struct attribute *a = find(d, name);

    if (n)
        *n = a && a->type == type ? a->n : 0;
    return a && a->type == type ? a->value : NULL;
}

const struct tn_fake_descriptor *tn_fake_under(const struct tn_fake_descriptor *d,
                                               cudnnBackendAttributeName_t name)
{
    void *const *value = tn_fake_get(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, NULL);
    const struct tn_fake_descriptor *x = value ? known(*value) : NULL;

    return x && x->finalized ? x : NULL;
}

cudnnBackendDescriptorType_t tn_fake_type(const struct tn_fake_descriptor *d)
{
    return d->type;
}

API cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                               cudnnBackendDescriptor_t *out)
{
    struct tn_fake_descriptor *d = calloc(1, sizeof *d);

    *out = d;
    if (!d)
        return tn_fake_wrong(CUDNN_STATUS_ALLOC_FAILED, "no memory");
    d->live = LIVE, d->type = type;
    tn_fake_cudnn_live++;
    return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t p)
{
    struct tn_fake_descriptor *d = known(p);

    if (!d)
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "destroying what is no descriptor");
    while (d->attributes) {
        struct attribute *a = d->attributes;

        d->attributes = a->next;
        free(a);
    }
    d->live = 0;
    tn_fake_cudnn_live--;
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t p, cudnnBackendAttributeName_t name,
                                           cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    struct tn_fake_descriptor *d = known(p);
    struct attribute *a;

    if (!d || d->finalized || n < 0 || (n && !value))
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "attribute %d of a descriptor that takes none",
                             (int)name);
    if (find(d, name))
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "attribute %d is there already", (int)name);
    if (!(a = malloc(sizeof *a + (size_t)n * width(type))))
        return tn_fake_wrong(CUDNN_STATUS_ALLOC_FAILED, "no memory");
    *a = (struct attribute){d->attributes, name, type, n};
    memcpy(a->value, value, (size_t)n * width(type));
    d->attributes = a;
    return CUDNN_STATUS_SUCCESS;
}

/* --- from a graph to a plan */
static cudnnStatus_t finalize_heuristics(const struct tn_fake_descriptor *d)
{
    const struct tn_fake_descriptor *graph = tn_fake_under(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);

    if (!graph || !tn_fake_get(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, NULL))
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "engines for no graph, or in no mode");
    if (!tn_fake_get(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, NULL))
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "a graph for no handle");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_plan(const struct tn_fake_descriptor *d)
{
    const struct tn_fake_descriptor *config = tn_fake_under(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

    if (!config || !tn_fake_get(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, NULL))
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "a plan for no configuration, or no handle");
    if (config->number == NO_PLAN)
        return tn_fake_wrong(CUDNN_STATUS_NOT_SUPPORTED, "the first configuration never has a plan");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_pack(const struct tn_fake_descriptor *d)
{
    int64_t ids, addresses;

    if (!tn_fake_get(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, &ids) ||
        !tn_fake_get(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, &addresses) ||
        ids != addresses || ids > 32)
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "addresses that are not as many as tensors");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check(const struct tn_fake_descriptor *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return tn_fake_check_tensor(d);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return tn_fake_check_operation(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return tn_fake_check_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return finalize_heuristics(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finalize_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return finalize_pack(d);
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR: return CUDNN_STATUS_SUCCESS;
    default: return tn_fake_wrong(CUDNN_STATUS_NOT_SUPPORTED, "a descriptor of kind %d", (int)d->type);
    }
}

API cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t p)
{
    struct tn_fake_descriptor *d = known(p);
    cudnnStatus_t s =
        d && !d->finalized ? check(d) : tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "finalizing what cannot be");

    if (!s)
        d->finalized = 1;
    return s;
}

static uint64_t workspace_of(const struct tn_fake_descriptor *config)
{
    return config->number == TOO_LARGE ? UINT64_C(1) << 44
                                       : (uint64_t)(2 * tn_fake_largest(config->graph) + 256);
}

static cudnnStatus_t give_configurations(const struct tn_fake_descriptor *d, int64_t most, int64_t *n,
                                         void *const *out)
{
    *n = CONFIGURATIONS;
    for (int i = 0; i < CONFIGURATIONS && i < most; i++) {
        struct tn_fake_descriptor *c = known(out[i]);

        if (!c || c->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "no room for a configuration");
        c->finalized = 1, c->number = i, c->graph = tn_fake_under(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    }
    return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const p, cudnnBackendAttributeName_t name,
                                           cudnnBackendAttributeType_t type, int64_t most, int64_t *n,
                                           void *out)
{
    const struct tn_fake_descriptor *d = known(p), *config;

    if (!d || !d->finalized || width(type) * (size_t)most == 0)
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "asking what has no answer");
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
        return give_configurations(d, most, n, out);
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        struct tn_fake_descriptor *engine = known(*(void **)out);

        if (!engine || engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR)
            return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "no room for an engine");
        engine->finalized = 1, engine->number = d->number, *n = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        const cudnnBackendNumericalNote_t notes[2] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                      CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};

        *n = d->number == ANY_ORDER ? 2 : 1;
        memcpy(out, notes, (size_t)(most < *n ? most : *n) * sizeof *notes);
        return CUDNN_STATUS_SUCCESS;
    }
    config = tn_fake_under(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (name != CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE || !config)
        return tn_fake_wrong(CUDNN_STATUS_NOT_SUPPORTED, "nobody knows attribute %d", (int)name);
    *(int64_t *)out = (int64_t)workspace_of(config), *n = 1;
    return CUDNN_STATUS_SUCCESS;
}

/* --- execution */
struct execution {
    const struct tn_fake_descriptor *config;
    struct tn_fake_binding at;
    void *workspace;
};

static int run(const void *what, uint64_t ticket)
{
    const struct execution *e = what;

    (void)ticket;
    memset(e->workspace, 0xff, workspace_of(e->config)); /* all of it is the engine's, and has to be there */
    tn_fake_compute(e->config->graph, &e->at);
    return 0;
}

/* The fake CUDA runtime's, if it is in the process. */
static struct {
    int asked;
    __typeof__(tn_fake_put) *put;
    __typeof__(tn_fake_range) *range;
    __typeof__(tn_fake_stream_device) *device;
    __typeof__(tn_fake_blame) *blame;
} runtime;

static void find_runtime(void)
{
    char name[32];
    void *so;

    runtime.asked = 1;
    snprintf(name, sizeof name, "libcudart.so.%d", CUDART_VERSION / 1000);
    if (!(so = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)))
        return;
    *(void **)&runtime.put = dlsym(so, "tn_fake_put"), *(void **)&runtime.range = dlsym(so, "tn_fake_range");
    *(void **)&runtime.device = dlsym(so, "tn_fake_stream_device"),
           *(void **)&runtime.blame = dlsym(so, "tn_fake_blame");
    dlclose(so);
}

/* Every tensor and the workspace inside one allocation of the stream's device. */
static const char *misplaced(cudaStream_t stream, const struct execution *e)
{
    const int device = runtime.device(stream);
    const char *why =
        device < 0 ? "no such stream" : runtime.range(device, e->workspace, workspace_of(e->config));

    for (int64_t i = 0; i < e->at.n && !why; i++)
        if (e->at.bytes[i])
            why = runtime.range(device, e->at.at[i], (size_t)e->at.bytes[i]);
    return why;
}

static cudnnStatus_t put(cudaStream_t stream, const struct execution *e)
{
    static const struct tn_fake_kind kind = {.name = "cuDNN", .run = run};
    const char *why;

    if (!runtime.asked)
        find_runtime();
    if (!runtime.put) {
        run(e, 0);
        return CUDNN_STATUS_SUCCESS;
    }
    if ((why = misplaced(stream, e))) {
        runtime.blame("cudnnBackendExecute: %s", why);
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "%s", why);
    }
    return runtime.put(stream, &kind, e, sizeof *e)
               ? tn_fake_wrong(CUDNN_STATUS_EXECUTION_FAILED, "the runtime does not take it")
               : CUDNN_STATUS_SUCCESS;
}

__attribute__((destructor)) static void summary(void)
{
    const char *asked = getenv("TENON_FAKE_SUMMARY");

    if (asked && !strcmp(asked, "1"))
        fprintf(stderr, "fake: cuDNN was given %llu graphs\n", (unsigned long long)tn_fake_cudnn_executed);
}

API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t p, cudnnBackendDescriptor_t v)
{
    const struct tn_fake_descriptor *plan = known(p), *pack = known(v);
    struct execution e = {0};
    void *const *workspace, *const *at;
    const int64_t *ids;
    const char *wrong;

    if (!h || !plan || !pack || !plan->finalized || !pack->finalized)
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "executing what is not whole");
    e.config = tn_fake_under(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (!e.config || !known((void *)e.config->graph))
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "the plan's configuration or graph is gone");
    workspace = tn_fake_get(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, NULL);
    if (!workspace || !*workspace || (uintptr_t)*workspace % ALIGNMENT)
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "no workspace, or at an odd address");
    e.workspace = *workspace;
    ids = tn_fake_get(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, &e.at.n);
    at = tn_fake_get(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, NULL);
    memcpy(e.at.id, ids, (size_t)e.at.n * sizeof *ids);
    memcpy(e.at.at, at, (size_t)e.at.n * sizeof *at);
    if ((wrong = tn_fake_check_binding(e.config->graph, &e.at)))
        return tn_fake_wrong(CUDNN_STATUS_BAD_PARAM, "%s", wrong);
    tn_fake_cudnn_executed++, tn_fake_cudnn_any_order += e.config->number == ANY_ORDER;
    return put(h->stream, &e);
}

/* --- handles and words */
API cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    *out = calloc(1, sizeof **out);
    return *out ? CUDNN_STATUS_SUCCESS : tn_fake_wrong(CUDNN_STATUS_ALLOC_FAILED, "no memory");
}

API cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    free(h);
    return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t stream)
{
    h->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

API size_t cudnnGetVersion(void)
{
    const char *other = getenv("TENON_FAKE_CUDNN_VERSION");

    return other ? strtoul(other, NULL, 10) : CUDNN_VERSION;
}

API const char *cudnnGetErrorString(cudnnStatus_t s)
{
    return s ? "fake cuDNN" : "no error";
}

API void cudnnGetLastErrorString(char *out, size_t size)
{
    snprintf(out, size, "%s", last);
    *last = 0;
}
