/* copy.c - memory by the runtime's calls: allocation, copies, fills, functions of the host.
 *
 * A copy from pageable memory takes its source before the call returns, one from page-locked memory when it
 * runs; a copy to pageable memory returns when it is done. Both ends are looked up when the call is made. */
#include "fake.h"

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int embedded, byte; /* the source follows this struct; a fill's value */
};

/* --- allocation */
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    cudaError_t e;

    tn_fake_lock();
    *out = NULL;
    e = tn_fake_forbidden(NULL, "cudaMalloc");
    if (!e)
        e = tn_fake_alloc(*tn_fake_current(), bytes, out);
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaFree(void *p)
{
    cudaError_t e;

    if (!p)
        return cudaSuccess;
    tn_fake_lock();
    e = tn_fake_forbidden(NULL, "cudaFree");
    if (!e && !tn_fake_planted("leak")) {
        tn_fake_wait_device(*tn_fake_current());
        e = tn_fake_free(p);
    }
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    cudaError_t e;

    (void)flags;
    tn_fake_lock();
    *out = NULL;
    e = tn_fake_forbidden(NULL, "cudaHostAlloc");
    if (!e)
        e = tn_fake_pin(bytes, out);
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaHostAlloc(out, bytes, 0);
}

cudaError_t cudaFreeHost(void *p)
{
    cudaError_t e;

    if (!p)
        return cudaSuccess;
    tn_fake_lock();
    e = tn_fake_forbidden(NULL, "cudaFreeHost");
    if (!e) {
        tn_fake_wait_device(*tn_fake_current());
        e = tn_fake_unpin(p);
    }
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    tn_fake_lock();
    tn_fake_memory_info(*tn_fake_current(), available, total);
    tn_fake_unlock();
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
    memset(out, 0, sizeof *out);
    tn_fake_lock();
    if (tn_fake_room(p) && tn_fake_is_device(p))
        out->type = cudaMemoryTypeDevice, out->device = tn_fake_is_device(p) - 1,
        out->devicePointer = (void *)p;
    else if (tn_fake_is_pinned(p, 1))
        out->type = cudaMemoryTypeHost, out->hostPointer = out->devicePointer = (void *)p;
    else
        out->type = cudaMemoryTypeUnregistered, out->device = -1, out->hostPointer = (void *)p;
    tn_fake_unlock();
    return cudaSuccess;
}

/* --- copies */
static int run_copy(const void *what, uint64_t ticket)
{
    const struct copy *c = what;

    (void)ticket;
    memcpy(c->to, c->embedded ? (const void *)(c + 1) : c->from, c->bytes);
    return cudaSuccess;
}

static int run_fill(const void *what, uint64_t ticket)
{
    const struct copy *c = what;

    (void)ticket;
    memset(c->to, c->byte, c->bytes);
    return cudaSuccess;
}

static const struct tn_fake_kind copies[] = {
    [cudaMemcpyHostToDevice] = {.name = "cudaMemcpyAsync to the device", .run = run_copy},
    [cudaMemcpyDeviceToHost] = {.name = "cudaMemcpyAsync to the host", .run = run_copy},
    [cudaMemcpyDeviceToDevice] = {.name = "cudaMemcpyAsync within the device", .run = run_copy},
};
static const struct tn_fake_kind fills = {.name = "cudaMemsetAsync", .run = run_fill};

/* Is this end of a copy where its kind says? */
static cudaError_t check_end(const char *which, int on_device, const void *p, size_t bytes)
{
    const char *wrong = on_device ? tn_fake_range(*tn_fake_current(), p, bytes) : NULL;

    if (wrong)
        return tn_fake_error(cudaErrorInvalidValue, "cudaMemcpyAsync: its %s: %s", which, wrong);
    if (!on_device && (tn_fake_is_device(p) || !p))
        return tn_fake_error(cudaErrorInvalidValue, "cudaMemcpyAsync: its %s, %p, is no memory of the host",
                             which, p);
    return cudaSuccess;
}

static enum cudaMemcpyKind kind_of(const void *to, const void *from, enum cudaMemcpyKind kind)
{
    if (kind != cudaMemcpyDefault)
        return kind;
    return tn_fake_is_device(to) ? tn_fake_is_device(from) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
                                 : cudaMemcpyDeviceToHost;
}

static cudaError_t check_copy(const struct copy *c, enum cudaMemcpyKind kind)
{
    cudaError_t e;

    if (kind < cudaMemcpyHostToDevice || kind > cudaMemcpyDeviceToDevice)
        return tn_fake_error(cudaErrorInvalidMemcpyDirection, "cudaMemcpyAsync: direction %d", (int)kind);
    if ((e = check_end("destination", kind != cudaMemcpyDeviceToHost, c->to, c->bytes)) ||
        (e = check_end("source", kind != cudaMemcpyHostToDevice, c->from, c->bytes)))
        return e;
    if ((const char *)c->to < (const char *)c->from + c->bytes &&
        (const char *)c->from < (const char *)c->to + c->bytes)
        return tn_fake_error(cudaErrorInvalidValue, "cudaMemcpyAsync: source and destination overlap");
    return cudaSuccess;
}

static cudaError_t put_from_host(struct copy *c, const struct tn_fake_kind *kind, cudaStream_t stream)
{
    struct copy *with;
    cudaError_t e;

    if (tn_fake_is_pinned(c->from, c->bytes))
        return tn_fake_put(stream, kind, c, sizeof *c);
    with = malloc(sizeof *c + c->bytes);
    if (!with)
        tn_fake_die("no memory for a copy");
    c->embedded = 1;
    *with = *c;
    memcpy(with + 1, c->from, c->bytes);
    e = tn_fake_put(stream, kind, with, sizeof *c + c->bytes);
    free(with);
    return e;
}

/* What of it may not be recorded. */
static cudaError_t check_recorded(const struct copy *c, enum cudaMemcpyKind kind, const struct CUstream_st *s)
{
    const void *host = kind == cudaMemcpyHostToDevice   ? c->from
                       : kind == cudaMemcpyDeviceToHost ? c->to
                                                        : NULL;

    return s->capture && host && !tn_fake_is_pinned(host, c->bytes)
               ? tn_fake_forbidden(s, "cudaMemcpyAsync of pageable memory")
               : cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct copy c = {.to = to, .from = from, .bytes = bytes};
    struct CUstream_st *s;
    cudaError_t e = tn_fake_failed();

    if (e || !bytes)
        return e;
    tn_fake_lock();
    tn_fake_counts.copies++;
    kind = kind_of(to, from, kind);
    if (tn_fake_planted("copy-past-end"))
        c.bytes = tn_fake_room(kind == cudaMemcpyDeviceToHost ? from : to) + 1;
    s = tn_fake_stream(stream, "cudaMemcpyAsync");
    e = !s ? cudaErrorInvalidResourceHandle : check_copy(&c, kind);
    if (!e)
        e = check_recorded(&c, kind, s);
    if (!e)
        e = kind == cudaMemcpyHostToDevice ? put_from_host(&c, &copies[kind], stream)
                                           : tn_fake_put(stream, &copies[kind], &c, sizeof c);
    if (!e && kind == cudaMemcpyDeviceToHost && !tn_fake_is_pinned(to, bytes))
        tn_fake_wait(s->last);
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t e;

    tn_fake_lock();
    e = tn_fake_forbidden(NULL, "cudaMemcpy");
    tn_fake_unlock();
    if (!e)
        e = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return e ? e : cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
    const struct copy c = {.to = to, .bytes = bytes, .byte = byte};
    const char *wrong;
    cudaError_t e = tn_fake_failed();

    if (e || !bytes)
        return e;
    tn_fake_lock();
    tn_fake_counts.fills++;
    wrong = tn_fake_range(*tn_fake_current(), to, bytes);
    e = wrong ? tn_fake_error(cudaErrorInvalidValue, "cudaMemsetAsync: %s", wrong)
              : tn_fake_put(stream, &fills, &c, sizeof c);
    tn_fake_unlock();
    return tn_fake_last(e);
}

cudaError_t cudaMemset(void *to, int byte, size_t bytes)
{
    const cudaError_t e = cudaMemsetAsync(to, byte, bytes, NULL);

    return e ? e : cudaStreamSynchronize(NULL);
}

/* --- functions of the host on a stream */
struct call {
    cudaHostFn_t function;
    void *data;
};

static int run_call(const void *what, uint64_t ticket)
{
    const struct call *c = what;

    (void)ticket;
    c->function(c->data);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    static const struct tn_fake_kind kind = {.name = "cudaLaunchHostFunc", .run = run_call};
    const struct call c = {function, data};

    return function ? tn_fake_put(stream, &kind, &c, sizeof c)
                    : tn_fake_error(cudaErrorInvalidValue, "cudaLaunchHostFunc: no function");
}
