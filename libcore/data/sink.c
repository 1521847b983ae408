/* sink.c - see sink.h. A buffer of 256 KiB, so that callers may write in any pieces. */
#include "data/sink.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define BUFFER (256u << 10)

struct tn_sink {
    char *path, *temp;
    int fd;
    tn_status status;                            /* the first error, TN_OK until then */
    uint64_t bytes;
    XXH64_state_t *hash;
    size_t held;
    unsigned char buffer[BUFFER];
};

static void destroy(struct tn_sink *o)
{
    if (o->fd >= 0)
        close(o->fd);
    XXH64_freeState(o->hash);
    free(o->temp);
    free(o->path);
    free(o);
}

tn_status tn_sink_open(const char *path, struct tn_sink **out)
{
    struct tn_sink *o = calloc(1, sizeof *o);
    size_t size = strlen(path) + 32;

    *out = NULL;
    if (!o)
        return tn_error(TN_ERR_MEMORY, "no memory to write %s", path);
    o->fd = -1;
    o->path = strdup(path);
    o->temp = malloc(size);
    o->hash = XXH64_createState();
    if (!o->path || !o->temp || !o->hash) {
        destroy(o);
        return tn_error(TN_ERR_MEMORY, "no memory to write %s", path);
    }
    XXH64_reset(o->hash, 0);
    snprintf(o->temp, size, "%s.tmp-%ld", path, (long)getpid());
    o->fd = open(o->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o->fd < 0) {
        tn_status status = tn_error(TN_ERR_IO, "cannot create %s: %s", o->temp, strerror(errno));
        destroy(o);
        return status;
    }
    *out = o;
    return TN_OK;
}

static tn_status put(struct tn_sink *o, const unsigned char *data, size_t bytes)
{
    o->status = tn_file_write_all(o->fd, data, bytes, o->path);
    return o->status;
}

static tn_status flush(struct tn_sink *o)
{
    size_t held = o->held;
    o->held = 0;
    return put(o, o->buffer, held);
}

tn_status tn_sink_write(struct tn_sink *o, const void *data, uint64_t bytes)
{
    if (o->status < 0 || bytes == 0)
        return o->status;
    XXH64_update(o->hash, data, (size_t)bytes);
    o->bytes += bytes;
    if (o->held + bytes > BUFFER && flush(o) < 0)
        return o->status;
    if (bytes >= BUFFER)
        return put(o, data, (size_t)bytes);
    memcpy(o->buffer + o->held, data, (size_t)bytes);
    o->held += (size_t)bytes;
    return TN_OK;
}

static tn_status publish(struct tn_sink *o)
{
    if (o->status < 0 || flush(o) < 0)
        return o->status;
    o->status = tn_file_sync(o->fd, o->path);
    if (o->status < 0)
        return o->status;
    int fd = o->fd;
    o->fd = -1;
    if (close(fd))                               /* a network disk reports its full quota here */
        return tn_error(TN_ERR_IO, "cannot close %s: %s", o->path, strerror(errno));
    return tn_file_rename(o->temp, o->path);
}

tn_status tn_sink_commit(struct tn_sink *o, uint64_t *bytes, uint64_t *hash)
{
    tn_status status = publish(o);

    if (status < 0) {
        tn_sink_abort(o);
        return status;
    }
    if (bytes)
        *bytes = o->bytes;
    if (hash)
        *hash = XXH64_digest(o->hash);
    destroy(o);
    return TN_OK;
}

void tn_sink_abort(struct tn_sink *o)
{
    if (!o)
        return;
    unlink(o->temp);
    destroy(o);
}
