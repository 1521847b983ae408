/* session_own.h - a session from inside, for the files that make it up: session.c sets it up, session_tensors.c
 * moves its tensors, session_work.c uses it, generate.c too. */
#ifndef TENON_TRAIN_SESSION_OWN_H
#define TENON_TRAIN_SESSION_OWN_H
#include "run/collective.h"
#include "run/run.h"
#include "train/engine.h"
#include "train/session.h"

enum { TRAIN, EVAL, LOGITS, DECODE, PREFILL, PARTS };

/* An input of the graph and what this rank holds of it. */
struct feed {
    const struct tn_value *value;                /* NULL: the graph has none of this name, or not on this rank */
    struct tn_local local;
};

struct part {
    struct tn_graph *graph;
    struct tn_plan *plan;
    struct tn_run *run;
    const struct tn_value *loss, *count, *gnorm, *logits, *positions;
    struct feed tokens, targets, targets_all;
    uint32_t lr, t, scale;                       /* numbers of the symbols */
};

struct tn_session {
    struct tn_config *config;
    struct tn_engine engine;
    struct tn_arena *arena;
    struct tn_model_config model;
    struct tn_mesh mesh;
    struct tn_session_shape shape;
    struct tn_session_options options;
    struct part part[PARTS];
    struct tn_memory *memory;
    struct tn_collectives collectives;
    const struct tn_device_capture *capture; /* NULL: steps are not recorded */
    struct tn_session_tensor *tensor;
    uint32_t n_tensor;
    uint64_t seed;
    uint32_t changed;                            /* states may be anything but the zeros that they begin as */
    double scale, used_scale;                    /* of the loss: for the next update, in the last one; 1: none */
    uint64_t good;                               /* updates since the scale changed */
    int32_t *staged;                             /* this rank's part of an input, all micro-batches */
    int32_t *ids, *places;                       /* generate.c: what a prefill feeds */
    char bad[256];
};

#define SCALE_FIRST 65536.0                      /* of the loss, under fp16 */

tn_status generate_open(struct tn_session *s);
uint32_t session_dtype(const struct tn_config *c);           /* of backend.dtype */
const struct tn_plan *session_plan(const struct tn_session *s);     /* any that there is */
/* Reads v, as held, by read(), and makes it whole on rank 0. All ranks together; read() is not called where v is not. */
tn_status session_gather(struct tn_session *s, const struct tn_value *v, uint64_t held, void *whole,
                         tn_status (*read)(struct tn_session *s, uint32_t i, void *host), uint32_t i);
#endif
