/* launch.cpp - what nvcc's code calls: kernels are made known when a plugin is loaded, and launched.
 *
 * A launch is routed by the kernel's name to its twin (twin.h). Its parameters are copied, and looked through
 * for addresses of the host, of another device, of memory that was freed. */
#include "fake.h"
#include "twin.h"
#include <cxxabi.h>

#define MOST 512

struct kernel {
    const void *host; /* the function that the program knows it by */
    char *name;
    const struct tn_fake_twin *twin;
};
struct launch { /* an operation; its parameters follow, each at a multiple of 64 bytes */
    const struct kernel *kernel;
    uint32_t grid[3], block[3];
};
#define HEAD 64
static_assert(sizeof(launch) <= HEAD, "launch");

static const struct tn_fake_twin *twins[MOST];
static struct kernel kernels[MOST];
static uint32_t n_twin, n_kernel;
extern "C" void tn_emu_seed(uint64_t seed);

/* --- names: "[with auto kernel = copy<1, 2>]" or "void copy<1, 2>(k)" as "copy<1, 2>" */
/* As the compiler prints arguments of templates: 4u is 4, (bool)1 is true. */
static void plain(char *name)
{
    char *to = name;

    for (const char *c = name; *c; c++) {
        if (!strncmp(c, "(bool)", 6)) {
            const char *word = c[6] == '1' ? "true" : "false";

            memcpy(to, word, strlen(word));
            to += strlen(word), c += 6;
        } else if (!(strchr("uUlL", *c) && c > name && c[-1] >= '0' && c[-1] <= '9' && strchr(",>uUlL", c[1])))
            *to++ = *c;
    }
    *to = 0;
}

static void name_of_twin(const char *text, char *out, size_t size)
{
    const char *at = strstr(text, "kernel = ");

    snprintf(out, size, "%s", at ? at + 9 + (at[9] == '&') : text);
    out[strcspn(out, "];")] = 0;
    plain(out);
}

static void name_of_kernel(const char *mangled, char *out, size_t size)
{
    int status;
    char *text = abi::__cxa_demangle(mangled, NULL, NULL, &status);
    const char *from = text && !strncmp(text, "void ", 5) ? text + 5 : text ? text : mangled;

    snprintf(out, size, "%s", from);
    plain(out);
    out[strcspn(out, "(")] = 0;
    free(text);
}

void tn_fake_twin_add(const struct tn_fake_twin *t)
{
    char a[300], b[300];

    name_of_twin(t->text, a, sizeof a);
    for (uint32_t i = 0; i < n_twin; i++) {
        name_of_twin(twins[i]->text, b, sizeof b);
        if (!strcmp(a, b))
            tn_fake_die("two kernels are called %s", a);
    }
    if (n_twin == MOST)
        tn_fake_die("more than %d kernels", MOST);
    twins[n_twin++] = t;
}

static const struct tn_fake_twin *find_twin(const char *name)
{
    char text[300];

    for (uint32_t i = 0; i < n_twin; i++) {
        name_of_twin(twins[i]->text, text, sizeof text);
        if (!strcmp(text, name))
            return twins[i];
    }
    return NULL;
}

/* --- registration, from the plugin's constructors */
extern "C" void **__cudaRegisterFatBinary(void *binary)
{
    return (void **)binary;
}

extern "C" void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

extern "C" void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

extern "C" void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                                       int threads, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid,
                                       int *warp)
{
    char text[300];
    struct kernel *k = &kernels[n_kernel];

    (void)handle, (void)device, (void)threads, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    if (n_kernel == MOST)
        tn_fake_die("more than %d kernels", MOST);
    name_of_kernel(name, text, sizeof text);
    *k = {host, strdup(text), find_twin(text)};
    n_kernel++;
}

static struct kernel *find_kernel(const void *host)
{
    for (uint32_t i = 0; i < n_kernel; i++)
        if (kernels[i].host == host || &kernels[i] == host)
            return &kernels[i];
    return NULL;
}

extern "C" cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host)
{
    *out = (cudaKernel_t)find_kernel(host);
    return *out ? cudaSuccess : tn_fake_error(cudaErrorInvalidDeviceFunction, "%p is no kernel", host);
}

/* --- what <<<>>> says, between its two halves */
static thread_local struct {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} configured;

extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                struct CUstream_st *stream)
{
    configured = {grid, block, shared, stream};
    return 0;
}

extern "C" cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = configured.grid, *block = configured.block, *shared = configured.shared;
    *(cudaStream_t *)stream = configured.stream;
    return cudaSuccess;
}

/* --- a launch */
static size_t up(size_t n)
{
    return (n + 63) / 64 * 64;
}

static int run(const void *what, uint64_t ticket)
{
    const struct launch *l = (const struct launch *)what;
    const struct tn_fake_twin *t = l->kernel->twin;
    void *at[16];
    char *p = (char *)what + HEAD;

    (void)ticket;
    for (uint32_t i = 0; i < t->n_parameter; p += up(t->size[i++]))
        at[i] = p;
    tn_emu_seed(tn_fake_draw(1u << 30));
    t->run(l->kernel->name, l->grid, l->block, at);
    return cudaSuccess;
}

static const char *title(const void *what)
{
    return ((const struct launch *)what)->kernel->name;
}

static const struct tn_fake_kind kind = {
    .name = "a launch", .begin = NULL, .ready = NULL, .run = run, .title = title};

static cudaError_t check(const struct kernel *k, dim3 g, dim3 b, size_t shared)
{
    const uint64_t threads = (uint64_t)b.x * b.y * b.z;

    if (!k->twin)
        tn_fake_die("the kernel %s has no twin", k->name);
    if (k->twin->n_parameter > 16)
        tn_fake_die("the kernel %s has more than 16 parameters", k->name);
    if (!threads || threads > 1024 || b.z > 64 || !g.x || !g.y || !g.z || g.x > 2147483647u || g.y > 65535 ||
        g.z > 65535 || shared)
        return tn_fake_error(cudaErrorInvalidConfiguration,
                             "%s: %u %u %u blocks of %u %u %u threads, %zu bytes", k->name, g.x, g.y, g.z,
                             b.x, b.y, b.z, shared);
    return cudaSuccess;
}

/* The faults that a test plants in launches. */
static cudaError_t put(cudaStream_t stream, const void *what, size_t bytes)
{
    cudaStream_t other;
    cudaError_t e;

    if (tn_fake_planted("null-stream"))
        return tn_fake_put(NULL, &kind, what, bytes);
    if (!tn_fake_planted("other-stream"))
        return tn_fake_put(stream, &kind, what, bytes);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    e = tn_fake_put(other, &kind, what, bytes);
    cudaStreamDestroy(other); /* what is on it runs nevertheless */
    return e;
}

/* Replaces the first address of the device in the parameters by one of the host. */
static void give_host_address(char *bytes, size_t size)
{
    static float memory[1024];
    void *word, *host = memory;

    for (size_t i = HEAD; i + 8 <= size; i += 8)
        if (memcpy(&word, bytes + i, 8), tn_fake_is_device(word)) {
            memcpy(bytes + i, &host, 8);
            return;
        }
}

static void free_what_it_reads(const char *bytes, size_t size)
{
    void *word;

    for (size_t i = HEAD; i + 8 <= size; i += 8)
        if (memcpy(&word, bytes + i, 8), tn_fake_room(word)) {
            while (tn_fake_room((char *)word - 1) > tn_fake_room(word))
                word = (char *)word - 1;
            cudaFree(word);
            return;
        }
}

static cudaError_t launch(const struct kernel *k, dim3 g, dim3 b, void **parameters, size_t shared,
                          cudaStream_t stream)
{
    cudaError_t e = check(k, g, b, shared);
    size_t bytes = HEAD;
    const char *wrong;
    char *what;

    for (uint32_t i = 0; i < k->twin->n_parameter; i++)
        bytes += up(k->twin->size[i]);
    if (e || !(what = (char *)calloc(1, bytes)))
        return e ? e : cudaErrorMemoryAllocation;
    *(struct launch *)what = {k, {g.x, g.y, g.z}, {b.x, b.y, b.z}};
    for (uint32_t i = 0, at = HEAD; i < k->twin->n_parameter; at += (uint32_t)up(k->twin->size[i++]))
        memcpy(what + at, parameters[i], k->twin->size[i]);
    if (tn_fake_planted("host-pointer"))
        give_host_address(what, bytes);
    if (tn_fake_planted("use-after-free"))
        free_what_it_reads(what, bytes);
    wrong = tn_fake_parameter(*tn_fake_current(), what + HEAD, bytes - HEAD);
    if (wrong)
        e = tn_fake_error(cudaErrorIllegalAddress, "%s is launched with a parameter in which, %s", k->name,
                          wrong);
    else
        e = put(stream, what, bytes);
    free(what);
    return e;
}

extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 g, dim3 b, void **parameters,
                                          size_t shared, cudaStream_t stream)
{
    const struct kernel *k = find_kernel(handle);
    cudaError_t e = tn_fake_failed();

    if (e || !k)
        return e ? e : tn_fake_error(cudaErrorInvalidDeviceFunction, "%p is no kernel", (void *)handle);
    tn_fake_lock();
    tn_fake_counts.launches++;
    e = launch(k, g, b, parameters, shared, stream);
    tn_fake_unlock();
    return tn_fake_last(e);
}

extern "C" cudaError_t cudaLaunchKernel(const void *function, dim3 g, dim3 b, void **parameters,
                                        size_t shared, cudaStream_t stream)
{
    return __cudaLaunchKernel((cudaKernel_t)find_kernel(function), g, b, parameters, shared, stream);
}

extern "C" cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *function,
                                           void **parameters)
{
    return cudaLaunchKernel(function, c->gridDim, c->blockDim, parameters, c->dynamicSmemBytes, c->stream);
}
