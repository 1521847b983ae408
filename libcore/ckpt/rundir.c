/* rundir.c - see rundir.h. */
#include "ckpt/rundir.h"

#include "base/file.h"
#include "base/status.h"
#include "ckpt/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

struct tn_runs {
    char *run;
    int lock;                                    /* descriptor; the lock goes with it */
    char mark[TN_RUNS_MARK];                     /* the line in the file .lock: process, random number */
};

char *tn_runs_path(const char *run, int64_t step)
{
    char *path;

    if (asprintf(&path, "%s/step-%08lld", run, (long long)step) < 0) {
        tn_error(TN_ERR_MEMORY, "no memory for a file name");
        return NULL;
    }
    return path;
}

/* The step of "step-00000100"; -1 for every other name, "step-100" too. */
static int64_t step_of(const char *name)
{
    char *end, again[32];

    if (strncmp(name, "step-", 5))
        return -1;
    long long step = strtoll(name + 5, &end, 10);
    snprintf(again, sizeof again, "step-%08lld", step);
    return step >= 0 && !*end && !strcmp(again, name) ? step : -1;
}

/* --- listing */

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Every step-N there is; *steps has room for one more. */
static tn_status list_names(const char *run, int64_t **steps, uint64_t *count)
{
    DIR *d = opendir(run);
    uint64_t room = 16;

    *count = 0;
    if (!(*steps = malloc(room * sizeof **steps)) || (!d && errno != ENOENT)) {
        if (d)
            closedir(d);
        return tn_error(TN_ERR_INPUT, "cannot read directory %s: %s", run, strerror(errno));
    }
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t step = step_of(e->d_name);
        if (step < 0)
            continue;
        if (*count == room) {
            int64_t *more = realloc(*steps, (room *= 2) * sizeof **steps);
            if (!more) {
                closedir(d);
                return tn_error(TN_ERR_MEMORY, "no memory to list %s", run);
            }
            *steps = more;
        }
        (*steps)[(*count)++] = step;
    }
    if (d)
        closedir(d);
    qsort(*steps, (size_t)*count, sizeof **steps, ascending);
    return TN_OK;
}

/* The reason of an incomplete one becomes a notice at this level, it is no error of the caller. */
static int is_complete(const char *run, int64_t step, uint32_t level)
{
    struct tn_saved saved = {0};
    char *path = tn_runs_path(run, step);
    int complete = path && tn_saved_read(path, &saved) == TN_OK;

    if (complete && saved.step != step) {
        tn_error(TN_ERR_INPUT, "its state.json is that of step %" PRId64, saved.step);
        complete = 0;
    }
    if (path && !complete) {
        tn_log(level, "%s is not complete and is ignored (%s)", path, tn_error_text());
        tn_error_clear();
    }
    tn_saved_free(&saved);
    free(path);
    return complete;
}

static tn_status list_complete(const char *run, uint32_t level, int64_t **steps, uint64_t *count)
{
    tn_status status = list_names(run, steps, count);
    uint64_t kept = 0;

    for (uint64_t i = 0; status == TN_OK && i < *count; i++)
        if (is_complete(run, (*steps)[i], level))
            (*steps)[kept++] = (*steps)[i];
    *count = kept;
    if (status < 0) {
        free(*steps);
        *steps = NULL;
    }
    return status;
}

tn_status tn_runs_list(const char *run, int64_t **steps, uint64_t *count)
{
    return list_complete(run, TN_LOG_WARNING, steps, count);
}

tn_status tn_runs_latest(const char *run, int64_t *step)
{
    int64_t *steps;
    uint64_t count;
    tn_status status = tn_runs_list(run, &steps, &count);

    if (status < 0)
        return status;
    *step = count > 0 ? steps[count - 1] : -1;
    free(steps);
    return count > 0 ? TN_OK : TN_DECLINED;
}

/* "20, 40, 60"; of many the last ones. */
static const char *in_words(const int64_t *steps, uint64_t count, char *out, size_t bytes)
{
    uint64_t first = count > 12 ? count - 12 : 0;
    size_t at = (size_t)snprintf(out, bytes, "%s", first ? "…, " : "");

    for (uint64_t i = first; i < count && at < bytes; i++)
        at += (size_t)snprintf(out + at, bytes - at, "%s%" PRId64, i > first ? ", " : "", steps[i]);
    return out;
}

tn_status tn_runs_find(const char *run, int64_t step)
{
    int64_t *steps;
    uint64_t count;
    char words[320];
    tn_status status = tn_runs_list(run, &steps, &count);

    if (status < 0)
        return status;
    if (count == 0)
        status = tn_error(TN_ERR_INPUT,
                          "%s has no complete checkpoint at all, step %" PRId64 " was asked for", run, step);
    else if (!bsearch(&step, steps, (size_t)count, sizeof *steps, ascending))
        status = tn_error(TN_ERR_INPUT, "%s has no complete checkpoint of step %" PRId64 "; there are: %s",
                          run, step, in_words(steps, count, words, sizeof words));
    free(steps);
    return status;
}

/* --- pruning */

/* Out of sight first: a removal that is cut short leaves no step-N that is half there. */
static tn_status forget(const char *run, int64_t step)
{
    struct tn_arena *a = tn_arena_new();
    char *path = tn_runs_path(run, step);
    char *hidden = tn_text(a, "%s/" TN_RUNS_TEMP, run, (long long)step, (long)getpid());
    tn_status status = path ? tn_file_rename(path, hidden) : TN_ERR_MEMORY;

    if (status == TN_OK)
        status = tn_path_remove(hidden);
    free(path);
    tn_arena_free(a);
    return status;
}

tn_status tn_runs_prune(struct tn_runs *r, int64_t keep, int64_t current)
{
    int64_t *steps;
    uint64_t count;

    if (keep <= 0)
        return TN_OK;
    tn_status status = list_complete(r->run, TN_LOG_DEBUG, &steps, &count);
    if (status < 0)
        return status;
    for (uint64_t i = 0; i + (uint64_t)keep < count && status == TN_OK; i++)
        if (steps[i] != current)
            status = forget(r->run, steps[i]);
    free(steps);
    return status;
}

/* --- the lock, and what others left */

/* ".step-00000100.old-7" is a whole checkpoint whose successor did not come: it gets its name back. */
static void clear_one(struct tn_arena *a, const char *run, const char *name)
{
    char *path = tn_path_join(a, run, name);
    char *plain = tn_text(a, "%.*s", (int)strcspn(name + 1, "."), name + 1),
         *home = tn_path_join(a, run, plain);

    if (strstr(name, ".old-") && step_of(plain) >= 0 && !tn_path_exists(home)) {
        tn_log(TN_LOG_WARNING, "%s gets its name back: an earlier run was stopped while it replaced it",
               home);
        tn_file_rename(path, home);
    } else {
        tn_log(TN_LOG_WARNING, "removing %s, left by a run that was stopped while it saved", path);
        tn_path_remove(path);
    }
}

static void clear_leftovers(const char *run)
{
    struct tn_arena *a = tn_arena_new();
    DIR *d = opendir(run);

    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, ".step-", 6))
            clear_one(a, run, e->d_name);
    if (d)
        closedir(d);
    tn_arena_free(a);
}

static tn_status in_use(const char *run, int lock)
{
    char pid[24] = "";
    ssize_t n = pread(lock, pid, sizeof pid - 1, 0);

    pid[n > 0 ? n : 0] = 0;
    pid[strspn(pid, "0123456789")] = 0;
    return tn_error(TN_ERR, "%s is in use by %s%s; wait for it, or choose another checkpoint.dir", run,
                    *pid ? "process " : "another process", pid);
}

static tn_status take_lock(struct tn_runs *r)
{
    uint64_t number = 0;
    int n;

    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint64_t)time(NULL);
    n = snprintf(r->mark, sizeof r->mark, "%ld %016" PRIx64 "\n", (long)getpid(), number);
    if (flock(r->lock, LOCK_EX | LOCK_NB)) {
        if (errno == EWOULDBLOCK)
            return in_use(r->run, r->lock);
        tn_log(TN_LOG_WARNING, "cannot lock %s (%s): make sure that no other run writes there", r->run,
               strerror(errno));
    }
    if (ftruncate(r->lock, 0) || pwrite(r->lock, r->mark, (size_t)n, 0) != n)
        return tn_error(TN_ERR_INPUT, "cannot write %s/.lock: %s", r->run, strerror(errno));
    return TN_OK;
}

tn_status tn_runs_open(const char *run, struct tn_runs **out)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_runs *r = calloc(1, sizeof *r);
    tn_status status =
        r && (r->run = strdup(run)) ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory to open %s", run);

    *out = NULL;
    if (r)
        r->lock = -1;
    if (status == TN_OK && tn_folder_make(run) < 0)
        status = TN_ERR_INPUT;                   /* the sentence is said; the path is the user's */
    if (status == TN_OK &&
        (r->lock = open(tn_path_join(a, run, ".lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        status = tn_error(TN_ERR_INPUT, "cannot write %s/.lock: %s", run, strerror(errno));
    tn_arena_free(a);
    if (status == TN_OK)
        status = take_lock(r);
    if (status < 0) {
        tn_runs_close(r);
        return status;
    }
    clear_leftovers(run);
    *out = r;
    return TN_OK;
}

const char *tn_runs_mark(const struct tn_runs *r)
{
    return r->mark;
}

const char *tn_runs_look(const char *run, char out[TN_RUNS_MARK])
{
    struct tn_arena *a = tn_arena_new();
    int fd = open(tn_path_join(a, run, ".lock"), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, TN_RUNS_MARK - 1);

    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = 0;
    tn_arena_free(a);
    return out;
}

void tn_runs_close(struct tn_runs *r)
{
    if (!r)
        return;
    if (r->lock >= 0)
        close(r->lock);
    free(r->run);
    free(r);
}
