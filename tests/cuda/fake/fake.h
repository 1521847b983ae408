/* fake.h - the inside of the fake CUDA runtime, for its own files and for the fake libraries that sit on it.
 *
 * The runtime keeps what real plugins put on streams as a graph of operations and runs it on the host in a
 * random order that streams and events allow; README.md says what is checked. All state is behind one lock,
 * which is held while an operation runs; functions here that say so want it held.
 *
 * What is wrong is said on standard error in one sentence that begins with "fake:", and then the call fails
 * as the real one does (tn_fake_error), or the process ends with 98 where a real GPU would do something
 * undefined (tn_fake_die). A process that would end with 0 ends with 97 if it leaks or has been told of an
 * error. */
#ifndef TN_FAKE_H
#define TN_FAKE_H
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
#define TN_FAKE_DEVICES 16
#define TN_FAKE_API __attribute__((visibility("default")))

/* --- say.c: sentences, the lock, random numbers, planted faults */
TN_FAKE_API void tn_fake_lock(void);
TN_FAKE_API void tn_fake_unlock(void);
/* A fault of the program: counted, so that the process does not end with 0. */
__attribute__((format(printf, 1, 2))) TN_FAKE_API void tn_fake_blame(const char *format, ...);
__attribute__((format(printf, 1, 2), noreturn)) TN_FAKE_API void tn_fake_die(const char *format, ...);
/* Says it and makes e the thread's last error; returns e. */
__attribute__((format(printf, 2, 3))) cudaError_t tn_fake_error(cudaError_t e, const char *format, ...);
/* The thread's last error becomes e, unless it is none; returns e. */
cudaError_t tn_fake_last(cudaError_t e);
TN_FAKE_API uint32_t tn_fake_draw(uint32_t below); /* lock held */
uint64_t tn_fake_seed(void);
/* Is this the call at which TENON_FAKE_FAULT=name:n plants its fault? Counts the calls of each name. */
TN_FAKE_API int tn_fake_planted(const char *name);
int tn_fake_tracing(void); /* TENON_FAKE_TRACE=1 */
extern struct tn_fake_counts {
    uint64_t launches, copies, fills, products, collectives, replays, waits, questions;
} tn_fake_counts;
TN_FAKE_API struct tn_fake_counts *tn_fake_count(void);
/* Objects of the libraries on top that must not be left at the end. */
TN_FAKE_API void tn_fake_library_object(int more);

/* --- memory.c: of devices, and page-locked */
int tn_fake_devices(void);
int *tn_fake_current(void); /* the calling thread's device */
cudaError_t tn_fake_alloc(int device, size_t bytes, void **out);
cudaError_t tn_fake_free(void *p);
cudaError_t tn_fake_pin(size_t bytes, void **out);
cudaError_t tn_fake_unpin(void *p);
void tn_fake_memory_info(int device, size_t *available, size_t *total);
int tn_fake_is_device(const void *p); /* in any device's addresses, live or not; returns number + 1 */
TN_FAKE_API int tn_fake_is_pinned(const void *p, size_t bytes);
/* Room from p to the end of its live allocation; 0: there is none. */
TN_FAKE_API size_t tn_fake_room(const void *p);
/* NULL if these bytes are inside one live allocation of the device, else what is wrong (valid until the next
 * call). */
TN_FAKE_API const char *tn_fake_range(int device, const void *p, size_t bytes);
/* What is wrong with a kernel's parameter, looked through for addresses: NULL if nothing. */
const char *tn_fake_parameter(int device, const void *bytes, size_t size);
/* The device's memory can be touched by this process until tn_fake_close; op is named if something goes
 * wrong. */
TN_FAKE_API void tn_fake_open(int device, const char *op);
void tn_fake_close(void);
void tn_fake_check_margins(int device, const char *op);
uint32_t tn_fake_memory_leaks(void);

/* --- queue.c: operations; stream.c: streams, events */
struct tn_fake_kind {
    const char *name;
    /* All may be NULL. begin: when the operation gets its place on a stream, so once for each replay of a
     * recorded one; its result is given to the others. ready: 0 while something outside of this process is
     * missing. run returns a cudaError_t. The lock is held. */
    uint64_t (*begin)(const void *what);
    int (*ready)(const void *what, uint64_t ticket);
    int (*run)(const void *what, uint64_t ticket);
    const char *(*title)(const void *what);
};
/* Puts an operation on the stream (or into the graph that it records); what is copied. Says what is wrong. */
TN_FAKE_API cudaError_t tn_fake_put(cudaStream_t stream, const struct tn_fake_kind *kind, const void *what,
                                    size_t bytes);
TN_FAKE_API int tn_fake_stream_device(cudaStream_t stream); /* -1: no such stream */
/* Runs some operations, as the device may at any time. */
TN_FAKE_API void tn_fake_progress(void);

struct tn_fake_op;
struct tn_fake_capture;
struct tn_fake_set { /* nodes of a graph */
    uint32_t n, room, *node;
};
struct CUstream_st {
    struct CUstream_st *next;
    int device, blocking, number;
    struct tn_fake_op *last;
    struct tn_fake_capture *capture; /* that it records into */
    struct tn_fake_set heads;        /* what its next node comes after */
};
struct CUevent_st {
    struct CUevent_st *next;
    int device, number, timing;
    struct tn_fake_op *op; /* of its last record */
    uint64_t captured;     /* id of the capture that it was last recorded in, or 0 */
    struct tn_fake_set heads;
};

/* Lock held, all of them. */
struct tn_fake_op *tn_fake_op_new(int device, const struct tn_fake_kind *kind, const void *what,
                                  size_t bytes);
void tn_fake_op_after(struct tn_fake_op *op, struct tn_fake_op *before); /* before may be NULL or done */
void tn_fake_op_submit(struct tn_fake_op *op); /* all that it comes after was said */
struct tn_fake_op *tn_fake_op_hold(struct tn_fake_op *op);
void tn_fake_op_drop(struct tn_fake_op *op);      /* NULL: nothing */
int tn_fake_op_done(const struct tn_fake_op *op); /* NULL is done */
double tn_fake_op_time(const struct tn_fake_op *op);
void tn_fake_run_some(uint32_t n);
void tn_fake_wait(struct tn_fake_op *op); /* gives up the lock in between */
void tn_fake_wait_device(int device);
cudaError_t tn_fake_failed(void); /* the error that ended the device, or none */
struct CUstream_st *tn_fake_stream(cudaStream_t stream, const char *call); /* NULL: said that there is none */
struct CUevent_st *tn_fake_event(cudaEvent_t event, const char *call);
/* Makes op come after all that its stream must wait for, submits it, and makes it the stream's last. */
void tn_fake_append(struct CUstream_st *s, struct tn_fake_op *op);
extern struct CUstream_st *tn_fake_streams;
extern const struct tn_fake_kind tn_fake_nothing;
void tn_fake_queue_leaks(uint32_t *streams, uint32_t *events);

/* --- capture.c: recording */
void tn_fake_set_copy(struct tn_fake_set *to, const struct tn_fake_set *from);
void tn_fake_set_clear(struct tn_fake_set *s);
cudaError_t tn_fake_capture_put(struct CUstream_st *s, const struct tn_fake_kind *kind, const void *what,
                                size_t bytes);
cudaError_t tn_fake_capture_record(struct CUstream_st *s, struct CUevent_st *e);
/* s waits for e, one of which belongs to a capture. */
cudaError_t tn_fake_capture_wait(struct CUstream_st *s, struct CUevent_st *e);
/* A call that must not be made while something is recorded. stream NULL: any recording that this thread may
 * disturb. */
cudaError_t tn_fake_forbidden(const struct CUstream_st *s, const char *call);
/* The legacy stream is used: an error if a recording would have to wait for it. */
cudaError_t tn_fake_forbidden_legacy(const char *call);
uint64_t tn_fake_capture_of(const struct CUstream_st *s); /* its id, 0: none */

/* --- graph.c */
struct tn_fake_node {
    const struct tn_fake_kind *kind;
    void *what;
    size_t bytes;
    int device;
    struct tn_fake_set before;
};
struct tn_fake_body {
    struct tn_fake_node *node;
    uint32_t n, refs;
};
uint32_t tn_fake_body_add(struct tn_fake_body *b, const struct tn_fake_node *x); /* copies what; its number */
void tn_fake_body_drop(struct tn_fake_body *b);
struct CUgraph_st *tn_fake_graph_new(struct tn_fake_body *b); /* takes b */
uint32_t tn_fake_graph_leaks(void);
#ifdef __cplusplus
}
#endif
#endif
