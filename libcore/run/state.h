/* state.h - what a run is, for run.c and look.c. */
#ifndef TN_RUN_STATE_H
#define TN_RUN_STATE_H
#include "run/run.h"

struct call {                                    /* one launch, ready to go */
    tn_status (*launch)(void *state, const struct tn_launch *l);
    void *state;
    struct tn_launch l;
    uint32_t row;
};

struct move {                                    /* a pointer that differs from micro-batch to micro-batch */
    void **slot;
    char *base;
    uint64_t stride;
};

struct segment {                                 /* a list, for the first micro-batch or for the later ones */
    struct call *call;
    struct move *move;
    uint32_t n_call, n_move;
};

struct go {                                      /* a task, bound */
    const struct segment *segment;
    uint32_t micro;
};

struct tn_run {
    struct tn_arena *arena;
    const struct tn_plan *plan;
    struct tn_memory *memory;
    const struct tn_device_api *api;
    struct tn_queue *queue;
    double seconds;
    void **at;                                   /* of each storage */
    struct segment segment[TN_LISTS][2];
    struct go *go;
    uint32_t n_compute, n_go;
    char *uniform_host, *uniform;                /* uniform: on the device */
    double *symbol;
    uint32_t n_symbol;
    uint64_t seed, step;
};

/* Sets what differs between micro-batches. */
static inline void tn_go_bind(const struct go *g)
{
    const struct segment *s = g->segment;

    for (uint32_t i = 0; i < s->n_move; i++)
        *s->move[i].slot = s->move[i].base + s->move[i].stride * g->micro;
    for (uint32_t i = 0; i < s->n_call; i++)
        s->call[i].l.micro = g->micro;
}

tn_status tn_run_uniforms(struct tn_run *run);
#endif
