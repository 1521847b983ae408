/* metrics.c - see metrics.h. */
#include "ckpt/metrics.h"

#include "base/file.h"
#include "base/status.h"
#include "data/mapping.h"
#include "data/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

struct tn_metrics {
    char *path;
    int fd;
};

static int is_kept(const char *line, size_t bytes, int64_t last_step)
{
    json_t *o = json_loadb(line, bytes, 0, NULL);
    const json_t *step = json_object_get(o, "step");
    int kept = json_is_integer(step) && json_integer_value(step) <= last_step;

    json_decref(o);
    return kept;
}

/* Length of the line at text with its end; the last one may lack it, and is torn then. */
static size_t line_length(const char *text, size_t bytes, int *torn)
{
    const char *end = memchr(text, '\n', bytes);

    *torn = !end;
    return end ? (size_t)(end - text) + 1 : bytes;
}

/* Passes the kept lines to o, or only counts the others if o is NULL. */
static uint64_t filter(const struct tn_mapping *m, int64_t last_step, struct tn_sink *o)
{
    const char *text = (const char *)m->data;
    uint64_t dropped = 0;
    int torn;

    for (uint64_t at = 0, n; at < m->bytes; at += n) {
        n = line_length(text + at, (size_t)(m->bytes - at), &torn);
        if (torn || !is_kept(text + at, (size_t)n, last_step))
            dropped++;
        else if (o)
            tn_sink_write(o, text + at, n);    /* its error sticks until commit */
    }
    return dropped;
}

static tn_status trim(const char *path, int64_t last_step)
{
    struct tn_mapping m;
    struct tn_sink *o;
    tn_status status = tn_mapping_open(path, &m);

    if (status < 0)
        return status;
    uint64_t dropped = filter(&m, last_step, NULL);
    if (dropped > 0 && (status = tn_sink_open(path, &o)) == TN_OK) {
        filter(&m, last_step, o);
        status = tn_sink_commit(o, NULL, NULL);
        if (status == TN_OK && last_step >= 0)
            tn_log(TN_LOG_INFO, "%s: dropped %" PRIu64 " lines that are beyond step %" PRId64 " or cut short",
                   path, dropped, last_step);
        else if (status == TN_OK)
            tn_log(TN_LOG_INFO, "%s: dropped %" PRIu64 " lines of an earlier run", path, dropped);
    }
    tn_mapping_close(&m);
    return status;
}

tn_status tn_metrics_open(const char *path, int64_t last_step, struct tn_metrics **out)
{
    struct tn_metrics *m = calloc(1, sizeof *m);
    tn_status status =
        m && (m->path = strdup(path)) ? TN_OK : tn_error(TN_ERR_MEMORY, "no memory for %s", path);

    *out = NULL;
    if (m)
        m->fd = -1;
    if (status == TN_OK && tn_path_exists(path))
        status = trim(path, last_step);
    if (status == TN_OK && (m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0)
        status = tn_error(TN_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    if (status < 0)
        tn_metrics_close(m);
    else
        *out = m;
    return status;
}

static tn_status append(struct tn_metrics *m, const char *text, size_t bytes)
{
    off_t before = lseek(m->fd, 0, SEEK_END);
    tn_status status = tn_file_write_all(m->fd, text, bytes, m->path);

    if (status < 0 && (before < 0 || ftruncate(m->fd, before)))
        tn_log(TN_LOG_WARNING, "%s ends with a line that is cut short; the next start repairs it", m->path);
    return status;
}

tn_status tn_metrics_write(struct tn_metrics *m, const json_t *line)
{
    char *json = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)), *text = NULL;
    int bytes = json ? asprintf(&text, "%s\n", json) : -1;
    tn_status status = bytes < 0 ? tn_error(TN_ERR_MEMORY, "no memory to write %s", m->path)
                                 : append(m, text, (size_t)bytes);

    free(json);
    if (bytes >= 0)
        free(text);
    return status;
}

void tn_metrics_close(struct tn_metrics *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        close(m->fd);
    free(m->path);
    free(m);
}
