/* start.c - the beginning of a run: look at everything, then touch the first file. See loop.h. */
#include "train/loop_own.h"

#include "base/file.h"
#include "base/status.h"
#include "train/checkpoint.h"
#include "train/resume.h"

#include <stdlib.h>
#include <unistd.h>

#define SEEN_WITHIN 1.0 /* seconds until a folder that is shared must be seen */

const char *tn_run_folder(struct tn_config *c)
{
    const char *dir = tn_config_text(c, "checkpoint.dir"), *name;

    if (dir || !tn_config_path(c))
        return dir;
    name = tn_path_name(tn_config_path(c));
    size_t n = strlen(name);
    if (n > 4 && !strcmp(name + n - 4, ".ini"))
        n -= 4;
    tn_config_settle(c, "checkpoint.dir", "runs/%.*s", (int)n, name);
    return tn_config_text(c, "checkpoint.dir");
}

/* What only training needs of the configuration; the session's check lists it with the rest. */
static void check_config(struct tn_config *c)
{
    if (!tn_config_text(c, "data.dir"))
        tn_config_problem(c, "data.dir", "name a folder made by tenon prepare");
    if (!tn_run_folder(c))
        tn_config_problem(c, "checkpoint.dir", "name a folder for the run");
    if (tn_config_int(c, "train.trace") > tn_config_int(c, "train.steps"))
        tn_config_problem(c, "train.trace", "there is no such update: train.steps = %lld", (long long)tn_config_int(c, "train.steps"));
    tn_schedule_check(c);
}

static int64_t sequence(const struct tn_config *c)
{
    return tn_config_int(c, tn_config_text(c, "train.seq_len") ? "train.seq_len" : "model.block_size");
}

static tn_status open_data(struct train *t)
{
    uint32_t order = tn_config_is(t->c, "data.order", "shuffle") ? TN_ORDER_SHUFFLE : TN_ORDER_RANDOM;
    uint64_t seed = (uint64_t)tn_config_int(t->c, "train.seed");
    int64_t length = sequence(t->c), batch = tn_config_int(t->c, "train.global_batch");
    tn_status status = tn_dataset_open(tn_config_text(t->c, "data.dir"),
                                       tn_config_int(t->c, "model.vocab_size"), length, &t->data);

    if (status == TN_OK && !tn_config_text(t->c, "model.vocab_size"))
        tn_config_settle(t->c, "model.vocab_size", "%lld", (long long)t->data.vocab_size);
    if (status == TN_OK)
        status = tn_sampler_init(&t->data.train, "train", order, seed, length, batch, &t->sampler);
    if (status == TN_OK)
        status = tn_sampler_init(&t->data.val, "val", order, seed, length, batch, &t->eval);
    return status;
}

static tn_status check_space(const struct train *t)
{
    uint64_t need = tn_checkpoint_bytes(t->session), have;
    tn_status status = tn_folder_space(t->dir, &have);

    if (status < 0 || have >= need)
        return status;
    return tn_error(
        TN_ERR_INPUT,
        "%s is on a disk with %.1f MB free, and one checkpoint takes %.1f MB: make room, or choose another "
        "checkpoint.dir",
        t->dir, (double)have / 1e6, (double)need / 1e6);
}

/* Does every rank see the folder that rank 0 has opened? Whoever does not looks again for a while: a file
 * server may be slow to show it. */
static tn_status compare_folder(struct train *t, int *same)
{
    struct tn_arena *a = tn_arena_new();
    char here[TN_RUNS_MARK];
    const char *mark = "";
    double until = tn_seconds() + SEEN_WITHIN;
    tn_status status =
        tn_world_spread(t->world, "the run directory", t->lead ? tn_runs_mark(t->runs) : "", a, &mark);

    *same = status == TN_OK && !strcmp(tn_runs_look(t->dir, here), mark);
    while (status == TN_OK && !*same && tn_seconds() < until) {
        usleep(50000);
        *same = !strcmp(tn_runs_look(t->dir, here), mark);
    }
    tn_arena_free(a);
    return status;
}

/* Every rank writes its part where they share the folder, unless the user wants one writer. */
static tn_status choose_writers(struct train *t)
{
    int wish = tn_config_text(t->c, "checkpoint.gather") ? tn_config_flag(t->c, "checkpoint.gather") : -1,
        same;
    tn_status status = TN_OK;

    if (tn_session_shape(t->session)->world == 1 || wish == 1)
        return TN_OK;
    if ((status = compare_folder(t, &same)) < 0)
        return status;
    if (wish == 0 && !same)
        status =
            tn_error(TN_ERR_INPUT,
                     "%s is not the folder that rank 0 has: with checkpoint.gather = no every rank writes "
                     "there, so it must be one that they share",
                     t->dir);
    if (wish == 0)
        status = tn_world_settle(t->world, status);
    t->together = status == TN_OK && !tn_session_any(t->session, !same);
    if (status == TN_OK && !t->together && t->lead)
        tn_log(
            TN_LOG_INFO,
            "%s is not shared by all ranks: rank 0 writes the checkpoints, and to go on from one it must lie "
            "on every host",
            t->dir);
    return status;
}

/* The folder is made here; if it cannot be used it goes again. */
static tn_status take_folder(struct train *t)
{
    int there = tn_path_exists(t->dir);
    tn_status status = t->lead ? tn_runs_open(t->dir, &t->runs) : TN_OK;

    if (status < 0 && !there)
        rmdir(t->dir);
    status = tn_world_settle(t->world, status);
    return status < 0 ? status : choose_writers(t);
}

/* " on 4 ranks (dp 2, tp 2)", "" on one. */
static const char *mesh_text(const struct train *t, char *out, size_t room)
{
    const struct tn_session_shape *shape = tn_session_shape(t->session);
    const struct tn_mesh *m = &shape->mesh;
    size_t n = (size_t)snprintf(out, room, " on %lld ranks (", (long long)shape->world);

    for (int a = 0, first = 1; a < TN_AXES && n < room; a++)
        if (m->size[a] > 1) {
            n += (size_t)snprintf(out + n, room - n, "%s%s %lld", first ? "" : ", ", tn_axis_name[a],
                                  (long long)m->size[a]);
            first = 0;
        }
    if (n < room)
        snprintf(out + n, room - n, ")");
    return shape->world <= 1 ? "" : out;
}

static void say_what(struct train *t)
{
    const struct tn_session_shape *shape = tn_session_shape(t->session);
    char mesh[120];

    tn_progress_say(&t->progress,
                    "%s: %lld parameters, %lld tokens an update (%lld x %lld sequences of %lld)%s",
                    tn_session_model(t->session)->arch, (long long)shape->n_parameters,
                    (long long)(shape->global_batch * shape->seq_len), (long long)shape->n_micro,
                    (long long)(shape->global_batch / shape->n_micro), (long long)shape->seq_len,
                    mesh_text(t, mesh, sizeof mesh));
    tn_progress_say(&t->progress,
                    "device %s, kernels %s, threads %u; data %s: %llu tokens, %llu to validate; run %s",
                    tn_session_device(t->session), tn_session_kernels(t->session),
                    tn_session_threads(t->session), tn_config_text(t->c, "data.dir"),
                    (unsigned long long)t->data.train.count, (unsigned long long)t->data.val.count, t->dir);
}

static void say_where(struct train *t, const struct tn_resume *from, const struct tn_checkpoint *k)
{
    char changes[600];

    if (!k && from->newest)
        tn_progress_say(&t->progress, "no checkpoint in %s, starting fresh", t->dir);
    if (!k)
        return;
    tn_progress_say(&t->progress, "going on from %s", from->path);
    if (t->trace && t->trace <= from->step)
        tn_progress_say(&t->progress, "train.trace = %lld: that update is over, none is traced", (long long)t->trace);
    if (*tn_checkpoint_changes(k, t->c, changes, sizeof changes))
        tn_progress_say(&t->progress, "changed since then: %s", changes);
    if (!tn_checkpoint_has_slots(k))
        tn_progress_say(&t->progress, "there are weights alone: %s begins anew", tn_config_text(t->c, "optimizer.name"));
}

static tn_status set_aside(struct train *t, const struct tn_resume *from)
{
    char to[1024];
    int64_t moved;
    tn_status status = tn_resume_set_aside(t->dir, from, &moved, to, sizeof to);

    if (status == TN_OK && moved > 0)
        tn_log(TN_LOG_WARNING, "moved %lld checkpoints to %s: this run goes on from %s instead",
               (long long)moved, to, from->path ? from->path : "nothing");
    return status;
}

static tn_status open_session(struct train *t)
{
    const struct tn_session_options use = {
        .use = TN_SESSION_TRAIN | (tn_config_int(t->c, "train.eval_interval") ? TN_SESSION_EVAL : 0)};

    return tn_session_open(t->session, &use);
}

/* The folder is ours, now files change. */
static tn_status begin(struct train *t, const struct tn_resume *from, struct tn_checkpoint *k)
{
    struct tn_arena *a = tn_arena_new();
    int64_t last = k && from->own ? from->step : -1;
    tn_status status;

    say_what(t);
    say_where(t, from, k);
    status = k ? tn_checkpoint_load(k, t->session, tn_checkpoint_has_slots(k))
               : tn_session_initialize(t->session, (uint64_t)tn_config_int(t->c, "train.seed"));
    if (status == TN_OK && t->lead)
        status = set_aside(t, from);
    if (status == TN_OK && t->lead)
        status = tn_metrics_open(tn_path_join(a, t->dir, "metrics.jsonl"), last, &t->metrics);
    if (status == TN_OK && t->lead && tn_config_flag(t->c, "train.tensorboard"))
        status = tn_events_open(tn_path_join(a, t->dir, TN_EVENTS_NAME), last, &t->events);
    tn_arena_free(a);
    t->step = from->step;
    t->saved = k && from->own ? from->step : -1;
    return tn_world_settle(t->world, status);
}

static tn_status buffers_new(struct train *t)
{
    const struct tn_session_shape *shape = tn_session_shape(t->session);
    size_t n = (size_t)shape->global_batch * (size_t)shape->seq_len;

    t->tokens = calloc(n, sizeof *t->tokens);
    t->targets = calloc(n, sizeof *t->targets);
    return t->tokens && t->targets ? TN_OK
                                   : tn_error(TN_ERR_MEMORY, "no memory for a batch of %zu tokens", n);
}

static tn_status start_at(struct train *t, const struct tn_resume *from, struct tn_checkpoint *k)
{
    tn_status status = TN_OK;

    if (k && from->step >= t->steps) { /* on all ranks */
        t->done = 1;
        tn_progress_say(&t->progress, "%s is at step %lld and train.steps = %lld: nothing is left to do",
                        from->path, (long long)from->step, (long long)t->steps);
        return TN_OK;
    }
    if ((status = open_session(t)) < 0)
        return status;
    tn_world_phase(t->world, "load", 1);
    status = buffers_new(t);
    if (status == TN_OK && k)
        status = tn_checkpoint_match(k, t->session, tn_checkpoint_has_slots(k));
    if (status == TN_OK && t->lead)
        status = check_space(t);
    status = tn_world_settle(t->world, status);
    if (status == TN_OK)
        status = take_folder(t);
    return status < 0 ? status : begin(t, from, k);
}

/* What this rank reads, where it may lie on a disk of its own: data and checkpoint. */
static tn_status look_here(struct train *t, struct tn_resume *from, struct tn_checkpoint **k)
{
    tn_status status = open_data(t);

    if (status == TN_OK)
        status = tn_resume_find(t->c, t->dir, from);
    if (status < 0 || !from->path)
        return status;
    if ((status = tn_checkpoint_open(from->path, k)) == TN_OK &&
        (status = tn_checkpoint_match_config(*k, t->c)) == TN_OK)
        status = tn_checkpoint_match_data(*k, &t->data);
    return status;
}

/* And it must be the same on all of them. */
static tn_status look(struct train *t, struct tn_resume *from, struct tn_checkpoint **k)
{
    char step[40] = "none";
    struct tn_fact fact[2] = {{"data", NULL}, {"the checkpoint to go on from", step}};
    tn_status status;

    tn_world_phase(t->world, "load", 1);
    status = tn_world_settle(t->world, look_here(t, from, k));
    if (status < 0)
        return status;
    fact[0].value = t->data.fingerprint;
    if (*k)
        snprintf(step, sizeof step, "step %lld", (long long)from->step);
    return tn_world_agree(t->world, "files", fact, 2);
}

tn_status train_start(struct tn_config *c, struct train *t)
{
    struct tn_resume from = {0};
    struct tn_checkpoint *k = NULL;
    tn_status status;

    *t = (struct train){.c = c, .saved = -1};
    check_config(c);
    if ((status = tn_session_configure(c, &t->session)) < 0)
        return status;
    t->dir = tn_run_folder(c);
    t->steps = tn_config_int(c, "train.steps");
    t->trace = tn_config_int(c, "train.trace");
    tn_schedule_read(c, &t->schedule);
    t->lead = tn_session_shape(t->session)->rank == 0;
    tn_progress_start(t->lead ? stdout : NULL, t->steps, tn_config_int(c, "train.log_interval"),
                      &t->progress);
    t->world = tn_session_world(t->session);
    status = look(t, &from, &k);
    if (status == TN_OK)
        status = start_at(t, &from, k);
    tn_checkpoint_close(k);
    tn_resume_free(&from);
    return status;
}

void train_end(struct train *t)
{
    tn_progress_end(&t->progress);
    tn_metrics_close(t->metrics);
    tn_events_close(t->events);
    tn_runs_close(t->runs);
    free(t->tokens);
    free(t->targets);
    tn_dataset_close(&t->data);
    tn_session_close(t->session);
}
