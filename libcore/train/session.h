/* session.h - a configuration made executable on this rank.
 *
 *   configuration -> plugins (engine.c) -> graphs -> plans -> memory and runs (session.c)
 *
 * A session owns some graphs over the same parameters: one that trains, one that evaluates (no dropout, no
 * backward), one that gives the logits of a whole sequence, two that generate. It knows nothing of files, schedules or loops: who uses it says
 * which tokens, which learning rate, which step. Main thread throughout.
 *
 * Order of use: tn_session_configure (finds plugins, completes and checks the configuration), then, once the data are
 * open and the vocabulary is known, tn_session_open. */
#ifndef TENON_TRAIN_SESSION_H
#define TENON_TRAIN_SESSION_H
#include "base/config.h"
#include "graph/graph.h"
#include "model/model.h"
#include "plan/plan.h"
#include "run/run.h"

struct tn_session;

#define TN_SESSION_TRAIN 1u
#define TN_SESSION_EVAL 2u
#define TN_SESSION_LOGITS 4u                     /* of a batch of one sequence of train.seq_len tokens */
#define TN_SESSION_GENERATE 16u                  /* with caches of train.seq_len positions: tn_session_prefill and _decode */
#define TN_SESSION_PREFILL 32u                   /* for tn_session_plan and _graph alone: of GENERATE's two the first */
#define TN_SESSION_STEP 8u                       /* with TRAIN: gradients and the logits of the first micro-batch stay readable */

struct tn_session_options {
    uint32_t use;
    const char *dump_after;                      /* name of a step of the pipeline, or "all"; NULL */
    void (*dump)(void *ctx, const char *step, struct tn_graph *g);
    void *dump_ctx;
    int64_t samples, chunk;                      /* GENERATE: texts at once, 0 is 1; tokens that a prefill reads at once */
    int plan_only;                               /* graphs and plans, no memory, no runs */
};

/* Loads the plugins that the configuration names, adds their options, checks everything: all problems in one error.
 * Starts the threads. Takes nothing; the configuration must outlive the session. */
tn_status tn_session_configure(struct tn_config *c, struct tn_session **out);
/* The same for a rank that is told its place instead of asking a bootstrap plugin. */
struct tn_place;
tn_status tn_session_configure_at(struct tn_config *c, const struct tn_place *place, struct tn_session **out);
tn_status tn_session_open(struct tn_session *s, const struct tn_session_options *o);
/* Of a session that was opened with plan_only: the same as another rank of the mesh would plan it. What
 * graphs and plans gave before is gone. */
tn_status tn_session_look_as(struct tn_session *s, int64_t rank);
void tn_session_close(struct tn_session *s);     /* takes; NULL is fine */

/* --- what came out */
struct tn_session_shape {
    int64_t seq_len, global_batch, micro_batch, n_micro;
    int64_t eval_batch;                          /* sequences of one evaluation: a micro-batch of all data-parallel ranks */
    int64_t world, rank;
    struct tn_mesh mesh;                         /* seen by this rank */
    int64_t n_parameters;                        /* elements, tied ones once, over all ranks */
    int64_t n_parameters_met;                    /* those that a token meets: of experts the chosen ones */
    int64_t n_parameters_no_position;            /* N of 6N + 6LCT: those met, without tables that are only looked up */
    uint32_t dtype;                              /* of what is computed: backend.dtype */
};
const struct tn_session_shape *tn_session_shape(const struct tn_session *s);
const struct tn_model_config *tn_session_model(const struct tn_session *s);
const struct tn_plan *tn_session_plan(const struct tn_session *s, uint32_t use);
const struct tn_graph *tn_session_graph(const struct tn_session *s, uint32_t use);
/* "cpu: host memory" and "cpu, ref": device and kernels in words, for the first line of a run. */
const char *tn_session_device(const struct tn_session *s);
const char *tn_session_kernels(const struct tn_session *s);
uint32_t tn_session_threads(const struct tn_session *s);
/* Device and kernel plugins, for measurements beside the graph. */
struct tn_engine;
const struct tn_engine *tn_session_engine(const struct tn_session *s);

/* --- persistent tensors: parameters, then the optimizer's slots ("NAME:SLOT"), in a fixed order */
struct tn_session_tensor {
    const char *name;
    const struct tn_value *value;                /* of which files have the whole */
    const struct tn_value *here;                 /* what this rank holds of it: value, a copy of it on another stage, or NULL */
    uint32_t is_state, dtype, rank;              /* rank and shape as in files */
    int64_t shape[TN_MAX_RANK];
    uint64_t bytes;                              /* of the whole tensor */
    uint64_t held;                               /* of what this rank holds */
};
uint32_t tn_session_tensors(const struct tn_session *s);
const struct tn_session_tensor *tn_session_tensor(const struct tn_session *s, uint32_t i);
/* The whole tensor i, on rank 0; host is not used on other ranks. All ranks together. */
tn_status tn_session_get(struct tn_session *s, uint32_t i, void *host);
/* From the whole tensor, on each rank. */
tn_status tn_session_set(struct tn_session *s, uint32_t i, const void *host);
/* What this rank holds of it, where it holds anything. */
tn_status tn_session_get_held(struct tn_session *s, uint32_t i, void *host);
/* Do all ranks that hold the same hold the same bits, of parameters and states? TN_ERR names tensor and
 * ranks. All ranks together; done after each update where backend.debug is set. */
tn_status tn_session_replicas(struct tn_session *s);
/* Bytes that this rank holds of a parameter, state or gradient, or of a slice of one. */
uint64_t tn_session_held(const struct tn_session *s, const struct tn_value *v);
/* In place, each the largest of all ranks: the times of the slowest. All ranks together. */
tn_status tn_session_most(struct tn_session *s, double *x, uint32_t n);
/* Bytes that this rank has sent in collectives of the graphs so far, along an axis; counted as a ring would.
 */
double tn_session_sent(const struct tn_session *s, int axis);
/* Bytes that were allocated on the device. */
uint64_t tn_session_allocated(const struct tn_session *s);
/* All ranks of the run, for phases, troubles and texts between them. */
struct tn_world;
struct tn_world *tn_session_world(const struct tn_session *s);
/* Is it so on any rank? All ranks together: for signals, and for failures of one. A rank that cannot ask says yes. */
int tn_session_any(struct tn_session *s, int here);

/* Initial weights from the seed, slots zero. Every element is a function of (seed, parameter, its global index). */
tn_status tn_session_initialize(struct tn_session *s, uint64_t seed);

/* --- work */
struct tn_session_result {
    double loss;                                 /* token mean over the update, before it */
    double gnorm;                                /* before clipping */
    uint32_t skipped;                            /* 1: not finite, and nothing was changed */
    uint32_t overflow;                           /* with skipped: the loss is finite, the scale was too large and is half
                                                    of it now; to be told, not to be stopped for */
    double scale;                                /* of the loss, in this update; 1 without one */
};
/* Update number step (0 is the first). tokens, targets: [global_batch, seq_len] of this update; targets -1 do not count.
 * Where loss or norm is not finite the parameters are left as they were, skipped is 1 and the status TN_OK: what to do
 * then is the caller's policy. */
tn_status tn_session_update(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                            struct tn_session_result *out);
/* The same with a clock (run.h): seconds are added to times. A skipped update has no times of its second half. */
struct tn_session_times {
    double feed;                                 /* tokens and targets to the device */
    struct tn_run_times run;
};
tn_status tn_session_update_timed(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                                  struct tn_session_times *times, struct tn_session_result *out);
/* The same with a note of every launch, wait and collective (run/trace.h), in a trace for one update that _trace makes. */
struct tn_trace;
struct tn_arena;
struct tn_trace *tn_session_trace(const struct tn_session *s, struct tn_arena *arena);
tn_status tn_session_update_traced(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                                   struct tn_trace *trace, struct tn_session_result *out);
/* The same, and see(ctx, moment) is called at four moments, on every rank; FORWARD is the one where others may be
 * elsewhere, so what ranks do together has no place in it. A skipped update has no UPDATED. */
#define TN_SESSION_BEFORE 0u
#define TN_SESSION_FORWARD 1u                    /* before the first backward of this rank */
#define TN_SESSION_BACKWARD 2u
#define TN_SESSION_UPDATED 3u
tn_status tn_session_update_seen(struct tn_session *s, uint64_t step, const int32_t *tokens, const int32_t *targets, double lr,
                                 tn_status (*see)(void *ctx, uint32_t moment), void *ctx, struct tn_session_result *out);
/* Forward and backward of tokens none of which counts, without an update: gradients begin anew with nothing to add. */
tn_status tn_session_clear(struct tn_session *s, uint64_t step, const int32_t *tokens);
/* Under backend.dtype = fp16 the loss is scaled by a power of two, so that small gradients do not vanish: 65536 at first,
 * halved when the gradient norm is not finite, doubled after 2000 updates without that. All ranks see the same norm, so
 * all do the same. What the next update will use, and the updates since the scale last changed; 0: there is no scale.
 * A checkpoint must keep both. */
int tn_session_scale_get(const struct tn_session *s, double *scale, uint64_t *good);
/* Nothing happens where there is no scale. TN_ERR_INPUT: a scale that cannot have been saved. */
tn_status tn_session_scale_set(struct tn_session *s, double scale, uint64_t good);
/* The update that was skipped, after all. */
tn_status tn_session_apply(struct tn_session *s);
/* Which tensor of the last update was the first that is not finite, as a sentence's part: "block3 mlp_fc einsum". */
const char *tn_session_nonfinite(struct tn_session *s);
/* Sum of token losses and number of valid tokens of [eval_batch, seq_len]. */
tn_status tn_session_evaluate(struct tn_session *s, const int32_t *tokens, const int32_t *targets, double *sum, double *count);
/* logits [seq_len, vocab] of one sequence; the tokens behind the last one that matters may be anything valid. */
tn_status tn_session_logits(struct tn_session *s, const int32_t *tokens, float *logits);
/* --- GENERATE. Is there a kernel for it? Asked before opening. */
int tn_session_can_cache(const struct tn_session *s);
int64_t tn_session_seq_len(const struct tn_session *s);              /* before opening, too */
/* Keys and values of n tokens at the positions at, at + 1, ... of each sample; those of sample b are at tokens + b·stride. */
tn_status tn_session_prefill(struct tn_session *s, const int32_t *tokens, int64_t stride, int64_t n, int64_t at);
/* One more token of each sample, [samples], all at this position; logits [samples, vocab] of what follows it. */
tn_status tn_session_decode(struct tn_session *s, const int32_t *tokens, int64_t position, float *logits);
/* After an update of a session opened for STEP: the gradient of parameter tensor i (not a state) before clipping and
 * without the loss' scale, whole on rank 0, all ranks together; and as this rank holds it, in the layout of the value that
 * _value gives, NULL where it holds none. */
tn_status tn_session_gradient(struct tn_session *s, uint32_t i, void *host);
tn_status tn_session_gradient_held(struct tn_session *s, uint32_t i, void *host);
const struct tn_value *tn_session_gradient_value(const struct tn_session *s, uint32_t i);
/* [sequences, seq_len, vocab] on rank 0: of the first sequences of the update. All ranks together. */
tn_status tn_session_step_logits(struct tn_session *s, int64_t sequences, void *host);
#endif
