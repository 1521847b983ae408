/* save.c - see save.h. The replacement of a checkpoint that exists is an exchange of names where the file
 * system can do that. Where it cannot, the old one moves aside first, and tn_runs_open brings it back if the
 * process dies between the two renames. */
#include "ckpt/save.h"

#include "base/file.h"
#include "base/status.h"
#include "ckpt/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

struct tn_save {
    struct tn_arena *arena;
    int64_t step;
    const char *run, *temp, *home;
    struct tn_saved_file *file;                  /* [count], in the arena */
    uint64_t count;
};

tn_status tn_save_begin(const char *run, int64_t step, struct tn_save **out)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_save *s = tn_alloc(a, sizeof *s);

    s->arena = a;
    s->step = step;
    s->run = tn_text(a, "%s", run);
    s->temp = tn_text(a, "%s/" TN_RUNS_TEMP, run, (long long)step, (long)getpid());
    s->home = tn_text(a, "%s/step-%08lld", run, (long long)step);
    *out = NULL;
    tn_status status = tn_path_remove(s->temp);
    if (status == TN_OK)
        status = tn_folder_make(s->temp);
    if (status < 0)
        tn_save_abort(s);
    else
        *out = s;
    return status;
}

const char *tn_save_folder(const struct tn_save *s)
{
    return s->temp;
}

const char *tn_save_path(struct tn_save *s, const char *name)
{
    return tn_path_join(s->arena, s->temp, name);
}

void tn_save_add(struct tn_save *s, const char *name, uint64_t bytes, uint64_t hash)
{
    s->file = tn_alloc_grow(s->arena, s->file, s->count, sizeof *s->file);
    s->file[s->count++] = (struct tn_saved_file){tn_text(s->arena, "%s", name), bytes, hash};
}

tn_status tn_save_put(struct tn_save *s, const char *name, const void *data, uint64_t bytes)
{
    tn_status status = tn_file_write(tn_save_path(s, name), data, (size_t)bytes);

    if (status == TN_OK)
        tn_save_add(s, name, bytes, XXH64(data, (size_t)bytes, 0));
    return status;
}

/* temp gets the name home, which is taken; what had it is then at temp, or gone. */
static tn_status replace(struct tn_save *s)
{
    if (!renameat2(AT_FDCWD, s->temp, AT_FDCWD, s->home, RENAME_EXCHANGE))
        return TN_OK;
    if (errno != EINVAL && errno != ENOSYS)
        return tn_error(TN_ERR_IO, "cannot replace %s: %s", s->home, strerror(errno));
    char *old = tn_text(s->arena, "%s/" TN_RUNS_OLD, s->run, (long long)s->step, (long)getpid());
    tn_status status = tn_file_rename(s->home, old);
    if (status == TN_OK && (status = tn_file_rename(s->temp, s->home)) < 0)
        tn_file_rename(old, s->home);
    else if (status == TN_OK)
        tn_path_remove(old);
    return status;
}

static tn_status publish(struct tn_save *s, const struct tn_saved *state)
{
    struct tn_saved full = *state;

    full.step = s->step;
    full.file = s->file;
    full.count = s->count;
    char *text = tn_saved_text(&full);
    tn_status status = text ? tn_file_write(tn_save_path(s, "state.json"), text, strlen(text)) : TN_ERR;
    free(text);
    if (status == TN_OK)
        status = tn_folder_sync(s->temp);
    if (status == TN_OK)
        status = tn_path_exists(s->home) ? replace(s) : tn_file_rename(s->temp, s->home);
    return status < 0 ? status : tn_folder_sync(s->run);
}

/* What is left at temp is nothing, a failure, or the replaced one. On a disk that went bad the removal fails
 * too: the sentence that counts is the first. */
tn_status tn_save_commit(struct tn_save *s, const struct tn_saved *state)
{
    tn_status status = publish(s, state);
    char *said = status < 0 ? strdup(tn_error_text()) : NULL;

    tn_save_abort(s);
    if (said)
        tn_error(status, "%s", said);
    free(said);
    return status;
}

void tn_save_abort(struct tn_save *s)
{
    if (!s)
        return;
    tn_path_remove(s->temp);
    tn_arena_free(s->arena);
}
