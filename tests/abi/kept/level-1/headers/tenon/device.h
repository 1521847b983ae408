/* device.h - memory, copies, queues, events. Nothing here knows what is computed.
 *
 * A queue runs what is put on it in order; only wait and sync block the caller. On a CPU device everything may
 * happen at once inside the call. Handles are the plugin's; the host only hands them back. */
#ifndef TENON_DEVICE_H
#define TENON_DEVICE_H
#include <tenon/abi.h>
struct tn_device;
struct tn_queue;
struct tn_event;

struct tn_device_info {                          /* the host sets struct_size; the plugin fills what fits */
    uint32_t struct_size;
    uint32_t dtypes;                             /* bit 1 << TN_F32, ... */
    uint64_t memory_free, memory_total, alignment;            /* bytes; alignment of what alloc gives */
    char name[64];                               /* of the model, for people; UTF-8 */
    uint32_t host_access;                        /* 1: pointers are valid on the host */
    uint32_t queues;                             /* how many run at once */
    /* Peaks of this device, dense: operations per second in fp32, in bf16 or fp16; bytes of memory per second. 0: not
     * known, and then rates are measured. */
    double peak_fp32, peak_low, peak_memory;
};

#define TN_DEVICE_ID "tenon.device/1"
/* Where nothing else is said: main thread, before the first step or after the last; a pointer that comes out is owned by
 * the host until the function that closes it; a negative status leaves *out NULL. */
struct tn_device_api {
    uint32_t struct_size;
    uint32_t reserved0;
    const char *kind;                            /* "cpu", "cuda": kernels and communicators name it */
    /* Is there one here? No side effects, any thread, before everything. score 0: no, and why says it. */
    tn_status (*probe)(uint32_t *score, char *why, uint64_t why_size);
    /* The device of a rank: the local_rank-th of this host. TN_ERR_CONFIG where there are fewer. */
    tn_status (*open)(uint32_t local_rank, struct tn_device **out);
    void (*close)(struct tn_device *d);          /* after all that was made of it; NULL: nothing */
    tn_status (*info)(struct tn_device *d, struct tn_device_info *out);          /* memory_free is that of now */
    /* Memory of the device: of any content, aligned to info's alignment, the same place until free.
     * TN_ERR_MEMORY with the bytes in the sentence. Before step 0 only. */
    tn_status (*alloc)(struct tn_device *d, uint64_t bytes, void **out);
    void (*free)(struct tn_device *d, void *p);  /* nothing on a queue uses it any more; NULL: nothing */
    tn_status (*queue)(struct tn_device *d, struct tn_queue **out);              /* in order, beside the others */
    void (*queue_close)(struct tn_queue *q);     /* nothing is on it any more; NULL: nothing */
    /* way: 0 within the device, 1 from the host, 2 to the host. Asynchronous on q; memory of the host is borrowed until
     * the queue is past it. The two do not overlap. Executor's thread, like all of the queue below. */
    tn_status (*copy)(struct tn_queue *q, void *to, const void *from, uint64_t bytes, uint32_t way);
    tn_status (*fill)(struct tn_queue *q, void *to, uint32_t byte, uint64_t bytes);              /* the low 8 bits of byte */
    tn_status (*event)(struct tn_device *d, struct tn_event **out);              /* one that has happened */
    void (*event_close)(struct tn_event *e);     /* no queue waits for it any more; NULL: nothing */
    tn_status (*record)(struct tn_event *e, struct tn_queue *q);                 /* happens when q is done with what is on it now */
    tn_status (*wait)(struct tn_queue *q, struct tn_event *e);                   /* the queue waits, not the caller */
    /* The caller waits for all that is on q, at most these seconds: TN_ERR_TIMEOUT. What failed on the queue before is
     * returned here. */
    tn_status (*sync)(struct tn_queue *q, double seconds);
    /* All below may be NULL. */
    /* Host memory that a queue copies from and to without waiting for the caller (page-locked). Both or neither;
     * without them copy may block, or takes what it needs of host memory before it returns. Main thread. */
    tn_status (*host_alloc)(struct tn_device *d, uint64_t bytes, void **out);
    void (*host_free)(struct tn_device *d, void *p);          /* no queue uses it any more; NULL: nothing */
    /* The queue as libraries of this kind of device know it: a cudaStream_t. Communicators that take the device's
     * memory get it. Borrowed, as long as the queue; makes the device the calling thread's. */
    void *(*native)(struct tn_queue *q);
};

/* Optional: launches recorded once and replayed as one. Between begin and end, what the calling thread puts on q is
 * written down and not done: launches of kernels, copies within the device, fills, and what communicators put on
 * the native stream. The host calls neither sync nor host copies meanwhile. Kernels of this kind of device must
 * therefore put all they do on the queue, with nothing but their launch's fixed addresses. Executor's thread. */
#define TN_DEVICE_CAPTURE_ID "tenon.device.capture/1"
struct tn_recording;
struct tn_device_capture {
    uint32_t struct_size;
    uint32_t reserved0;
    const char *kind;                            /* as the device's */
    tn_status (*begin)(struct tn_queue *q);      /* q is written down from here on, and nothing of it done */
    /* Always follows begin, also when a launch between failed. *out is owned; NULL after an error. */
    tn_status (*end)(struct tn_queue *q, struct tn_recording **out);
    tn_status (*replay)(struct tn_recording *r, struct tn_queue *q);             /* asynchronous, any number of times */
    void (*close)(struct tn_recording *r);       /* nothing of it is on a queue any more; NULL: nothing */
};
#endif
