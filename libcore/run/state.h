/* state.h - what a run is, for run.c and look.c. */
#ifndef TN_RUN_STATE_H
#define TN_RUN_STATE_H
#include "run/run.h"

struct call {                                    /* one launch, ready to go */
    tn_status (*launch)(void *state, const struct tn_launch *l);
    void *state;
    struct tn_launch l;
    uint32_t row;
    uint32_t by_slot, once;                      /* a collective, which counts by slots; or has one, and is waited for elsewhere */
};

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
#endif
