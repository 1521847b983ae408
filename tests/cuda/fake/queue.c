/* queue.c - operations in an order: what comes after what must be kept, all else is drawn.
 *
 * An operation counts those before it that have not run; at none it is ready. One of those that are ready
 * runs, drawn anew each time, whenever a call waits, and now and then at others: a device does not wait for
 * its host. */
#include "fake.h"
#include <time.h>
#include <unistd.h>

struct tn_fake_op {
    const struct tn_fake_kind *kind;
    const void *what;
    struct tn_fake_op **then;     /* those that come after it */
    uint32_t n_then, waits, refs; /* waits: before it, and 1 until it is submitted */
    int device, done;
    uint64_t ticket;
    double time;
};

static struct tn_fake_op **ready;
static uint32_t n_ready, room_ready, pending[TN_FAKE_DEVICES];
static cudaError_t failed;
const struct tn_fake_kind tn_fake_nothing = {.name = "event"};

/* --- an operation */
struct tn_fake_op *tn_fake_op_new(int device, const struct tn_fake_kind *kind, const void *what, size_t bytes)
{
    struct tn_fake_op *op = calloc(1, sizeof *op);
    void *copy = bytes ? malloc(bytes) : NULL;

    if (!op || (bytes && !copy))
        tn_fake_die("no memory for an operation");
    if (bytes)
        memcpy(copy, what, bytes);
    *op = (struct tn_fake_op){.kind = kind, .what = copy, .device = device, .waits = 1, .refs = 1};
    return op;
}

struct tn_fake_op *tn_fake_op_hold(struct tn_fake_op *op)
{
    if (op)
        op->refs++;
    return op;
}

void tn_fake_op_drop(struct tn_fake_op *op)
{
    if (!op || --op->refs)
        return;
    free(op->then);
    free((void *)op->what);
    free(op);
}

int tn_fake_op_done(const struct tn_fake_op *op)
{
    return !op || op->done;
}

double tn_fake_op_time(const struct tn_fake_op *op)
{
    return op ? op->time : 0;
}

void tn_fake_op_after(struct tn_fake_op *op, struct tn_fake_op *first)
{
    if (tn_fake_op_done(first))
        return;
    first->then = realloc(first->then, (first->n_then + 1) * sizeof *first->then);
    if (!first->then)
        tn_fake_die("no memory for an operation");
    first->then[first->n_then++] = op;
    op->waits++;
}

static void less(struct tn_fake_op *op)
{
    if (--op->waits)
        return;
    if (n_ready == room_ready) {
        room_ready = room_ready * 2 + 64;
        ready = realloc(ready, room_ready * sizeof *ready);
        if (!ready)
            tn_fake_die("no memory for operations");
    }
    ready[n_ready++] = op;
}

void tn_fake_op_submit(struct tn_fake_op *op)
{
    tn_fake_op_hold(op);
    pending[op->device]++;
    if (op->kind->begin)
        op->ticket = op->kind->begin(op->what);
    less(op);
}

/* --- running */
static const char *title(const struct tn_fake_op *op)
{
    return op->kind->title ? op->kind->title(op->what) : op->kind->name;
}

static void execute(struct tn_fake_op *op)
{
    struct timespec t;
    cudaError_t e = failed;

    if (op->kind->run && !failed) {
        if (tn_fake_tracing())
            fprintf(stderr, "fake: runs %s\n", title(op));
        tn_fake_open(op->device, title(op));
        e = (cudaError_t)op->kind->run(op->what, op->ticket);
        tn_fake_check_margins(op->device, title(op));
    }
    failed = e;
    clock_gettime(CLOCK_MONOTONIC, &t);
    op->time = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    op->done = 1;
    pending[op->device]--;
    for (uint32_t i = 0; i < op->n_then; i++)
        less(op->then[i]);
    op->n_then = 0;
    tn_fake_op_drop(op);
}

/* One that is ready, at random; 0: there is none. */
static int run_one(void)
{
    const uint32_t n = n_ready, from = n ? tn_fake_draw(n) : 0;

    for (uint32_t i = 0; i < n; i++) {
        struct tn_fake_op *op = ready[(from + i) % n];

        if (op->kind->ready && !op->kind->ready(op->what, op->ticket))
            continue;
        ready[(from + i) % n] = ready[--n_ready];
        execute(op);
        return 1;
    }
    return 0;
}

void tn_fake_run_some(uint32_t n)
{
    while (n-- && run_one())
        ;
    tn_fake_close();
}

/* Gives the others their turn while nothing can run: peers, or a thread that aborts what is waited for. */
static void nap(void)
{
    tn_fake_close();
    tn_fake_unlock();
    usleep(50);
    tn_fake_lock();
}

void tn_fake_wait(struct tn_fake_op *op)
{
    if (!op)
        return;
    tn_fake_op_hold(op);
    while (!op->done)
        if (!run_one())
            nap();
    tn_fake_close();
    tn_fake_op_drop(op);
}

void tn_fake_wait_device(int device)
{
    while (pending[device])
        if (!run_one())
            nap();
    tn_fake_close();
}

void tn_fake_progress(void)
{
    tn_fake_lock();
    tn_fake_run_some(1 + tn_fake_draw(32));
    tn_fake_unlock();
}

cudaError_t tn_fake_failed(void)
{
    return failed ? tn_fake_last(failed) : cudaSuccess;
}
