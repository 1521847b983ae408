/* resume.c - see resume.h. */
#include "train/resume.h"

#include "base/file.h"
#include "ckpt/rundir.h"

#include <stdlib.h>
#include <sys/stat.h>

static int all_digits(const char *text)
{
    return *text && !text[strspn(text, "0123456789")];
}

/* The N of ".../step-000N"; -1 for another name. */
static int64_t step_of(const char *path)
{
    const char *name = tn_path_name(path);

    return strncmp(name, "step-", 5) || !all_digits(name + 5) || strlen(name) > 20
               ? -1
               : (int64_t)strtoll(name + 5, NULL, 10);
}

/* The step is known to be there. */
static tn_status take(const char *run, int64_t step, struct tn_resume *out)
{
    out->path = tn_runs_path(run, step);
    out->step = step;
    return out->path ? TN_OK : TN_ERR_MEMORY;
}

static tn_status take_step(const char *run, int64_t step, struct tn_resume *out)
{
    tn_status status = tn_runs_find(run, step);

    return status < 0 ? status : take(run, step, out);
}

static tn_status take_latest(const struct tn_config *c, const char *run, struct tn_resume *out)
{
    int64_t step;
    tn_status status = tn_runs_latest(run, &step);

    if (status == TN_DECLINED)
        return tn_config_fail(c, "checkpoint.resume",
                              "this folder is no checkpoint and has no complete one in it");
    return status < 0 ? status : take(run, step, out);
}

static int same_folder(const char *a, const char *b)
{
    struct stat x, y;

    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* path without slashes at its end. */
static tn_status take_path(const struct tn_config *c, const char *path, struct tn_arena *a,
                           struct tn_resume *out)
{
    const char *parent = tn_path_folder(a, path);

    if (step_of(path) >= 0 && tn_path_is_folder(parent))
        return take_step(parent, step_of(path), out);
    if (!tn_path_is_folder(path))
        return tn_config_fail(c, "checkpoint.resume",
                              "there is no such folder; auto, none, a step of checkpoint.dir, or the "
                              "path of a checkpoint is expected");
    return take_latest(c, path, out);
}

static tn_status take_auto(const char *run, struct tn_resume *out)
{
    int64_t step;
    tn_status status = tn_path_exists(run) ? tn_runs_latest(run, &step) : TN_DECLINED;

    if (status == TN_DECLINED)
        return TN_OK;
    return status < 0 ? status : take(run, step, out);
}

static char *without_slashes(struct tn_arena *a, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return tn_text(a, "%.*s", (int)n, path);
}

tn_status tn_resume_find(const struct tn_config *c, const char *run, struct tn_resume *out)
{
    const char *from = tn_config_text(c, "checkpoint.resume");
    struct tn_arena *a = tn_arena_new();
    tn_status status = TN_OK;

    *out = (struct tn_resume){0};
    if ((out->newest = !strcmp(from, "auto")))
        status = take_auto(run, out);
    else if (all_digits(from) && strlen(from) <= 15)
        status = take_step(run, (int64_t)strtoll(from, NULL, 10), out);
    else if (strcmp(from, "none"))
        status = take_path(c, without_slashes(a, from), a, out);
    out->own = status == TN_OK && out->path && same_folder(tn_path_folder(a, out->path), run);
    tn_arena_free(a);
    if (status < 0)
        tn_resume_free(out);
    return status;
}

void tn_resume_free(struct tn_resume *r)
{
    free(r->path);
    *r = (struct tn_resume){0};
}

/* The first RUN/abandoned-N that is not there. */
static void name_free(const char *run, char *to, size_t bytes)
{
    int n = 1;

    do
        snprintf(to, bytes, "%s/abandoned-%d", run, n++);
    while (tn_path_exists(to));
}

static tn_status move(struct tn_arena *a, const char *run, int64_t step, const char *to)
{
    char *from = tn_runs_path(run, step);
    tn_status status = from ? tn_file_rename(from, tn_path_join(a, to, tn_path_name(from))) : TN_ERR_MEMORY;

    free(from);
    return status;
}

tn_status tn_resume_set_aside(const char *run, const struct tn_resume *r, int64_t *moved, char *to,
                              size_t bytes)
{
    struct tn_arena *a;
    int64_t *steps;
    uint64_t count;
    tn_status status;

    *moved = 0;
    if (r->newest)
        return TN_OK;
    if ((status = tn_runs_list(run, &steps, &count)) < 0)
        return status;
    a = tn_arena_new();
    for (uint64_t i = 0; i < count && status == TN_OK; i++) {
        if (r->own && steps[i] <= r->step)
            continue;
        if (!(*moved)++) {
            name_free(run, to, bytes);
            status = tn_folder_make(to);
        }
        if (status == TN_OK)
            status = move(a, run, steps[i], to);
    }
    free(steps);
    tn_arena_free(a);
    return status;
}
