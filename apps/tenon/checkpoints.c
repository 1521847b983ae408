/* checkpoints.c - see checkpoints.h. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/file.h"
#include "checkpoints.h"
#include "ckpt/rundir.h"

static int is_one(const char *run)
{
    struct tn_arena *a = tn_arena_new();
    int there = tn_path_exists(tn_path_join(a, run, "state.json"));

    tn_arena_free(a);
    return there;
}

tn_status checkpoint_find(const struct options *o, const char *run, char **out)
{
    int64_t step = options_int(o, "step");
    tn_status status;

    if (is_one(run) && !options_given(o, "step")) {
        *out = strdup(run);
        return *out ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for a file name");
    }
    if (!tn_path_is_folder(run))
        return tn_error(TN_ERR_INPUT, "there is no run directory %s", run);
    status = options_given(o, "step") ? tn_runs_find(run, step) : tn_runs_latest(run, &step);
    if (status == TN_DECLINED)
        return tn_error(TN_ERR_INPUT, "%s has no complete checkpoint to %s", run, strcmp(o->command->name, "sample") ? o->command->name : "sample from");
    if (status < 0)
        return status;
    *out = tn_runs_path(run, step);
    return *out ? TN_OK : TN_ERR_MEMORY;
}
