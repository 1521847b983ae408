/* loop_own.h - a run in progress: what start.c sets up and loop.c works with. */
#ifndef TN_TRAIN_LOOP_OWN_H
#define TN_TRAIN_LOOP_OWN_H
#include "ckpt/events.h"
#include "ckpt/metrics.h"
#include "ckpt/rundir.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "train/loop.h"
#include "train/progress.h"
#include "train/schedule.h"
#include "train/session.h"
#include "world/world.h"

struct train {
    struct tn_config *c;                         /* borrowed */
    struct tn_session *session;
    struct tn_world *world;                      /* the session's; NULL before there is one */
    struct tn_dataset data;
    struct tn_sampler sampler, eval;             /* of the training and the validation tokens */
    struct tn_schedule schedule;
    int lead;                                    /* rank 0: writes files, and says what goes on */
    int together;                                /* every rank writes its part of a checkpoint */
    struct tn_runs *runs;                        /* the right to write; NULL on other ranks */
    struct tn_metrics *metrics;
    struct tn_events *events;                    /* NULL: not wanted */
    struct tn_progress progress;
    const char *dir;
    int32_t *tokens, *targets;                   /* [global_batch, seq_len] */
    int64_t step, steps;                         /* completed updates; of the whole run */
    int64_t trace;                               /* the update that is traced, counted from 1; 0: none */
    int64_t saved;                               /* step of the newest checkpoint on the disk, -1: none */
    int done;                                    /* nothing is left to do */
    int metrics_lost, events_lost;               /* said already */
};

/* Everything before the first update. t->done: the run was complete before. */
tn_status train_start(struct tn_config *c, struct train *t);
/* Also what a failed start left. */
void train_end(struct train *t);
#endif
