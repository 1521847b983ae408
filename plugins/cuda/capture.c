/* capture.c - launches recorded once and replayed as one: CUDA graphs.
 *
 * The recording is of the calling thread alone, so that threads that look after other streams - a communicator's -
 * may go on asking for events. What is forbidden meanwhile, kernels here do not do: they allocate nothing,
 * synchronise nothing, and have the workspace and every parameter in their launch. */
#include "device.h"

struct tn_recording {
    struct tn_device *device;
    cudaGraphExec_t exec;
};

static tn_status begin(struct tn_queue *q)
{
    cudaError_t e;
    tn_status s = tn_cuda_use(q->device);

    if (s)
        return s;
    e = cudaStreamBeginCapture(q->stream, cudaStreamCaptureModeThreadLocal);
    return e ? tn_cuda_failed(e, TN_ERR, "cudaStreamBeginCapture") : TN_OK;
}

/* An error of a launch between begin and end ends the recording; it is said again here, without the launch's name. */
static tn_status end(struct tn_queue *q, struct tn_recording **out)
{
    struct tn_recording *r = calloc(1, sizeof *r);
    cudaGraph_t graph = NULL;
    cudaError_t e;
    tn_status s = tn_cuda_use(q->device);

    *out = NULL;
    if (s) {
        free(r);
        return s;
    }
    e = cudaStreamEndCapture(q->stream, &graph);
    if (!e && r)
        e = cudaGraphInstantiate(&r->exec, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (e || !r) {
        free(r);
        return e ? tn_cuda_failed(e, TN_ERR, "recording launches")
                 : tn_error(TN_ERR_MEMORY, "cuda: no memory for a recording");
    }
    r->device = q->device;
    *out = r;
    return TN_OK;
}

static tn_status replay(struct tn_recording *r, struct tn_queue *q)
{
    cudaError_t e;
    tn_status s = tn_cuda_use(r->device);

    if (s)
        return s;
    e = cudaGraphLaunch(r->exec, q->stream);
    return e ? tn_cuda_failed(e, TN_ERR, "cudaGraphLaunch") : TN_OK;
}

static void close_recording(struct tn_recording *r)
{
    if (!r)
        return;
    if (!tn_cuda_use(r->device))
        cudaGraphExecDestroy(r->exec);
    free(r);
}

const struct tn_device_capture tn_cuda_capture = {
    .struct_size = sizeof tn_cuda_capture,
    .kind = "cuda",
    .begin = begin,
    .end = end,
    .replay = replay,
    .close = close_recording,
};
