/* device.c - a GPU: memory, queues (streams), events, copies.
 *
 * Which GPU is current belongs to a thread; every call here makes its own the current one first. Everything on a
 * queue is asynchronous; copies from and to pageable host memory are the runtime's to stage. The driver is looked
 * for by name before the runtime is asked: without a driver the runtime's answer would be a number. */
#include "device.h"
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

static _Thread_local int current = -1;

tn_status tn_cuda_failed(cudaError_t e, tn_status code, const char *what)
{
    cudaGetLastError();                          /* said here; the next launch is not at fault */
    return tn_error(code, "cuda: %s: %s (error %d, %s)", what, cudaGetErrorString(e), (int)e,
                    cudaGetErrorName(e));
}

tn_status tn_cuda_use(const struct tn_device *d)
{
    cudaError_t e;

    if (current == d->number)
        return TN_OK;
    if ((e = cudaSetDevice(d->number)))
        return tn_cuda_failed(e, TN_ERR, "cudaSetDevice");
    current = d->number;
    return TN_OK;
}

/* --- for kernels */
void *tn_cuda_stream(struct tn_queue *q)
{
    return q && !tn_cuda_use(q->device) ? q->stream : NULL;
}

tn_status tn_cuda_launched(const char *kernel)
{
    cudaError_t e = cudaGetLastError();

    return e ? tn_cuda_failed(e, TN_ERR, kernel) : TN_OK;
}

int tn_cuda_major(void)
{
    int major = 0;

    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, current < 0 ? 0 : current);
    return major;
}

/* --- which GPUs are here */
tn_status tn_cuda_probe(uint32_t *score, char *why, uint64_t why_size)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    int n = 0;
    cudaError_t e;

    *score = 0;
    if (!driver) {
        snprintf(why, why_size, "no driver: libcuda.so.1 is not here");
        return TN_OK;
    }
    e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver)
        snprintf(why, why_size, "no driver, or one that is too old for CUDA %d.%d (error %d)",
                 CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100, (int)e);
    else if (e == cudaErrorNoDevice || (!e && !n))
        snprintf(why, why_size, "no device: the driver is here and sees no GPU (CUDA_VISIBLE_DEVICES?)");
    else if (e)
        snprintf(why, why_size, "%s (error %d)", cudaGetErrorString(e), (int)e);
    else {
        *score = 20;
        snprintf(why, why_size, "%d GPU%s", n, n == 1 ? "" : "s");
    }
    dlclose(driver);
    return TN_OK;
}

static tn_status open_device(uint32_t local_rank, struct tn_device **out)
{
    struct tn_device *d = calloc(1, sizeof *d);
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    tn_status s;

    *out = NULL;
    if (!d)
        return tn_error(TN_ERR_MEMORY, "cuda: no memory for a device");
    if (!e && local_rank >= (uint32_t)n) {
        free(d);
        return tn_error(TN_ERR_CONFIG,
                        "cuda: rank %u of this host wants a GPU of its own, there are %d; start fewer ranks here",
                        local_rank, n);
    }
    d->number = (int)local_rank;
    if (!e)
        e = cudaGetDeviceProperties(&d->properties, d->number);
    if (!e && d->properties.major < 8) {
        s = tn_error(TN_ERR_CONFIG, "cuda: %s is of compute capability %d.%d; these kernels need 8.0 or newer",
                     d->properties.name, d->properties.major, d->properties.minor);
        free(d);
        return s;
    }
    if (e || (s = tn_cuda_use(d))) {
        free(d);
        return e ? tn_cuda_failed(e, TN_ERR, "opening the device") : s;
    }
    *out = d;
    return TN_OK;
}

static void close_device(struct tn_device *d)
{
    free(d);
}

/* --- what it is */

/* Multiply-adds of one multiprocessor in one clock, dense: fp32, and bf16 or fp16 on tensor cores; 0: not known. */
static void rates(int major, int minor, double *f32, double *low)
{
    *f32 = major == 8 && minor == 0 ? 64 : 128;
    *low = major == 10                 ? 4096
           : major == 9                ? 2048
           : major == 8 && minor == 0  ? 1024
           : major == 8 || major == 12 ? 512
                                       : 0;
}

/* What data sheets call the peak. That of 9.0 counts tensor cores at 1830 MHz (989 TFLOP/s of an H100 or H200), though
 * the clock goes up to 1980: shares of it are those that others print. */
static void find_peaks(const struct tn_device *d, struct tn_device_info *out)
{
    int clock = 0, memory_clock = 0, width = 0;  /* kHz, kHz, bits */
    double f32, low;

    cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, d->number);
    cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, d->number);
    cudaDeviceGetAttribute(&width, cudaDevAttrGlobalMemoryBusWidth, d->number);
    rates(d->properties.major, d->properties.minor, &f32, &low);
    out->peak_fp32 = 2e3 * f32 * d->properties.multiProcessorCount * clock;
    out->peak_low = 2e3 * low * d->properties.multiProcessorCount *
                    (d->properties.major == 9 && clock > 1830000 ? 1830000 : clock);
    if (tn_cuda_tf32())
        out->peak_fp32 = out->peak_low / 2;
    out->peak_memory = 2e3 * memory_clock * (width / 8);
}

/* Once for each device. */
static void say(struct tn_device *d, const struct tn_device_info *i)
{
    char text[600];

    if (d->said)
        return;
    d->said = 1;
    snprintf(text, sizeof text,
             "cuda: %.100s, compute capability %d.%d, %d multiprocessors; peak %.1f TFLOP/s in fp32, %.0f in bf16, "
             "%.2f TB/s of memory",
             d->properties.name, d->properties.major, d->properties.minor,
             d->properties.multiProcessorCount, i->peak_fp32 / 1e12, i->peak_low / 1e12, i->peak_memory / 1e12);
    tn_host->log(2, text);
}

static tn_status info(struct tn_device *d, struct tn_device_info *out)
{
    struct tn_device_info all = {
        .struct_size = out->struct_size,
        .dtypes = 1u << TN_F32 | 1u << TN_BF16 | 1u << TN_F16 | 1u << TN_I32,
        .alignment = 256,
        .queues = (uint32_t)TN_CUDA_MAX(1, d->properties.asyncEngineCount + 1),
    };
    size_t available, total;
    cudaError_t e;
    tn_status s = tn_cuda_use(d);

    if (s)
        return s;
    if ((e = cudaMemGetInfo(&available, &total)))
        return tn_cuda_failed(e, TN_ERR, "cudaMemGetInfo");
    all.memory_free = available, all.memory_total = total;
    snprintf(all.name, sizeof all.name, "%.*s", (int)sizeof all.name - 1, d->properties.name);
    find_peaks(d, &all);
    memcpy(out, &all, out->struct_size < sizeof all ? out->struct_size : sizeof all);
    say(d, &all);
    return TN_OK;
}

/* --- memory */
static tn_status alloc(struct tn_device *d, uint64_t bytes, void **out)
{
    cudaError_t e;
    tn_status s = tn_cuda_use(d);

    *out = NULL;
    if (s)
        return s;
    if ((e = cudaMalloc(out, bytes))) {
        size_t available = 0, total = 0;

        cudaGetLastError();                      /* said here; the next launch is not at fault */
        cudaMemGetInfo(&available, &total);
        return tn_error(TN_ERR_MEMORY,
                        "cuda: no room for %.1f MiB, %.1f of %.1f MiB are free (%s); a smaller "
                        "train.micro_batch needs less",
                        (double)bytes / 1048576, (double)available / 1048576, (double)total / 1048576,
                        cudaGetErrorName(e));
    }
    return TN_OK;
}

static void free_memory(struct tn_device *d, void *p)
{
    if (!tn_cuda_use(d))
        cudaFree(p);
}

static tn_status host_alloc(struct tn_device *d, uint64_t bytes, void **out)
{
    cudaError_t e;
    tn_status s = tn_cuda_use(d);

    *out = NULL;
    if (s)
        return s;
    if ((e = cudaHostAlloc(out, bytes, cudaHostAllocDefault))) {
        cudaGetLastError();
        *out = NULL;
        return tn_error(TN_ERR_MEMORY, "cuda: no %.1f MiB of page-locked host memory (%s)", (double)bytes / 1048576,
                        cudaGetErrorName(e));
    }
    return TN_OK;
}

static void host_free(struct tn_device *d, void *p)
{
    if (!tn_cuda_use(d))
        cudaFreeHost(p);
}

/* --- queues and events */
static void queue_close(struct tn_queue *q)
{
    if (!tn_cuda_use(q->device)) {
        if (q->done)
            cudaEventDestroy(q->done);
        if (q->stream)
            cudaStreamDestroy(q->stream);
    }
    free(q);
}

static tn_status queue(struct tn_device *d, struct tn_queue **out)
{
    struct tn_queue *q = calloc(1, sizeof *q);
    cudaError_t e;
    tn_status s = tn_cuda_use(d);

    *out = NULL;
    if (!q || s) {
        free(q);
        return s ? s : tn_error(TN_ERR_MEMORY, "cuda: no memory for a queue");
    }
    q->device = d;
    e = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);
    if (!e)
        e = cudaEventCreateWithFlags(&q->done, cudaEventDisableTiming);
    if (e) {
        queue_close(q);
        return tn_cuda_failed(e, TN_ERR, "making a queue");
    }
    *out = q;
    return TN_OK;
}

static tn_status copy(struct tn_queue *q, void *to, const void *from, uint64_t bytes, uint32_t way)
{
    static const enum cudaMemcpyKind kind[] = {cudaMemcpyDeviceToDevice, cudaMemcpyHostToDevice,
                                               cudaMemcpyDeviceToHost};
    cudaError_t e;
    tn_status s = tn_cuda_use(q->device);

    if (s || !bytes)
        return s;
    if (way > 2)
        return tn_error(TN_ERR, "cuda: a copy of kind %u", way);
    e = cudaMemcpyAsync(to, from, bytes, kind[way], q->stream);
    return e ? tn_cuda_failed(e, TN_ERR, "cudaMemcpyAsync") : TN_OK;
}

static tn_status fill(struct tn_queue *q, void *to, uint32_t byte, uint64_t bytes)
{
    cudaError_t e;
    tn_status s = tn_cuda_use(q->device);

    if (s || !bytes)
        return s;
    e = cudaMemsetAsync(to, (int)byte, bytes, q->stream);
    return e ? tn_cuda_failed(e, TN_ERR, "cudaMemsetAsync") : TN_OK;
}

static tn_status event(struct tn_device *d, struct tn_event **out)
{
    struct tn_event *v = calloc(1, sizeof *v);
    cudaError_t e;
    tn_status s = tn_cuda_use(d);

    *out = NULL;
    if (!v || s) {
        free(v);
        return s ? s : tn_error(TN_ERR_MEMORY, "cuda: no memory for an event");
    }
    v->device = d;
    if ((e = cudaEventCreateWithFlags(&v->event, cudaEventDisableTiming))) {
        free(v);
        return tn_cuda_failed(e, TN_ERR, "cudaEventCreate");
    }
    *out = v;
    return TN_OK;
}

static void event_close(struct tn_event *v)
{
    if (!tn_cuda_use(v->device))
        cudaEventDestroy(v->event);
    free(v);
}

static tn_status record(struct tn_event *v, struct tn_queue *q)
{
    cudaError_t e;
    tn_status s = tn_cuda_use(q->device);

    if (s)
        return s;
    e = cudaEventRecord(v->event, q->stream);
    return e ? tn_cuda_failed(e, TN_ERR, "cudaEventRecord") : TN_OK;
}

static tn_status wait_event(struct tn_queue *q, struct tn_event *v)
{
    cudaError_t e;
    tn_status s = tn_cuda_use(q->device);

    if (s)
        return s;
    e = cudaStreamWaitEvent(q->stream, v->event, 0);
    return e ? tn_cuda_failed(e, TN_ERR, "cudaStreamWaitEvent") : TN_OK;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Asks again and again: spinning for the first millisecond, then with short sleeps, so that a limit can be kept. An
 * error of a kernel shows here. */
static tn_status sync_queue(struct tn_queue *q, double seconds)
{
    const double start = now();
    cudaError_t e;
    tn_status s = tn_cuda_use(q->device);

    if (s)
        return s;
    if ((e = cudaEventRecord(q->done, q->stream)))
        return tn_cuda_failed(e, TN_ERR, "cudaEventRecord");
    while ((e = cudaEventQuery(q->done)) == cudaErrorNotReady) {
        const double waited = now() - start;

        cudaGetLastError();                      /* "not ready" counts as one: the next launch is not at fault */
        if (waited > seconds)
            return tn_error(TN_ERR_TIMEOUT, "cuda: device %d is not done after %.1f s", q->device->number, waited);
        if (waited > 1e-3)
            usleep(20);
    }
    return e ? tn_cuda_failed(e, TN_ERR, "what was on the queue failed") : TN_OK;
}

const struct tn_device_api tn_cuda_device = {
    .struct_size = sizeof tn_cuda_device,
    .kind = "cuda",
    .probe = tn_cuda_probe,
    .open = open_device,
    .close = close_device,
    .info = info,
    .alloc = alloc,
    .free = free_memory,
    .queue = queue,
    .queue_close = queue_close,
    .copy = copy,
    .fill = fill,
    .event = event,
    .event_close = event_close,
    .record = record,
    .wait = wait_event,
    .sync = sync_queue,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .native = tn_cuda_stream,
};
