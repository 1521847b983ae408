/* state.h - what a run is, for run.c, record.c, look.c and trace.c. */
#ifndef TN_RUN_STATE_H
#define TN_RUN_STATE_H
#include "run/collective.h"
#include "run/run.h"

struct call {                                    /* one launch, ready to go */
    tn_status (*launch)(void *state, const struct tn_launch *l);
    void *state;
    struct tn_launch l;
    uint32_t row;
    uint32_t by_slot, once;                      /* a collective, which counts by slots; or has one, and is waited for elsewhere */
};

/* Launches it. What a kernel gives back but 0 is an error, and has a sentence. */
tn_status tn_call_launch(const struct tn_run *run, const struct call *c);

struct move {                                    /* a pointer that differs from task to task */
    void **pointer;
    char *base;
    uint64_t stride;
    uint32_t by_slot;                            /* else by micro-batch */
};

struct segment {                                 /* a part, for its first task or later ones, with or without what is done once */
    struct call *call;
    struct move *move;
    uint32_t n_call, n_move;
};

struct go {                                      /* a task, bound */
    const struct segment *segment;
    uint32_t micro, slot;
};

/* A stretch of the step that may be recorded (record.c). */
#define TN_STRETCH_COMPUTE 0u
#define TN_STRETCH_UPDATE 1u
#define TN_STRETCH_STEP 2u
#define TN_STRETCHES 3
struct record {
    uint32_t seen;                               /* it went launch by launch */
    int channel;                                 /* of the last numbered collective in it */
    const struct tn_device_capture *capture;
    struct tn_recording *recording;
    uint64_t started[TN_AXES + 1];               /* collectives in it */
    double bytes[TN_AXES];
    const char *last;
};

struct tn_run {
    struct tn_arena *arena;
    const struct tn_plan *plan;
    struct tn_memory *memory;
    const struct tn_device_api *api;
    struct tn_queue *queue;
    double seconds;
    void **at;                                   /* of each storage */
    struct segment *segment;                     /* [n_part][4]: bit 0 later, bit 1 last */
    struct go *go;
    uint32_t n_compute, n_go;
    char *uniform_host, *uniform;                /* uniform: on the device */
    double *symbol;
    uint32_t n_symbol;
    uint64_t seed, step;
    struct tn_collectives *collectives;          /* NULL: one rank */
    uint32_t communicates;                       /* some launch is a transfer */
    uint32_t must_record, locked;                /* locked: uniform_host is the device's page-locked memory */
    const struct tn_device_capture *capture;     /* NULL: launch by launch */
    struct record record[TN_STRETCHES];
};

/* Sets what differs between micro-batches. */
static inline void tn_go_bind(const struct go *g)
{
    const struct segment *s = g->segment;

    for (uint32_t i = 0; i < s->n_move; i++)
        *s->move[i].pointer = s->move[i].base + s->move[i].stride * (s->move[i].by_slot ? g->slot : g->micro);
    for (uint32_t i = 0; i < s->n_call; i++)
        s->call[i].l.micro = s->call[i].once ? 0 : s->call[i].by_slot ? g->slot : g->micro;
}

tn_status tn_run_uniforms(struct tn_run *run);
tn_status tn_run_walk(const struct tn_run *run, const struct go *from, const struct go *end);
tn_status tn_run_stretch(struct tn_run *run, uint32_t which, const struct go *from, const struct go *end);
void tn_run_forget(struct tn_run *run);          /* what was recorded */

/* Waits for the device, and learns whether what was begun on its streams went well. */
static inline tn_status tn_run_sync(struct tn_run *run)
{
    return run->collectives ? tn_collectives_sync(run->collectives, run->queue) : run->api->sync(run->queue, run->seconds);
}
#endif
