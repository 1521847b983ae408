/* mapping.c - see mapping.h. The descriptor is closed at once: the mapping keeps the file. */
#include "data/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static tn_status check(int fd, const char *path, uint64_t *bytes)
{
    struct stat st;

    if (fstat(fd, &st))
        return tn_error(TN_ERR_INPUT, "cannot read %s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return tn_error(TN_ERR_INPUT, "%s is a directory, a file is needed", path);
    if (!S_ISREG(st.st_mode))
        return tn_error(TN_ERR_INPUT, "%s is not a regular file", path);
    *bytes = (uint64_t)st.st_size;
    return TN_OK;
}

tn_status tn_mapping_descriptor(const char *path, int *fd, uint64_t *bytes)
{
    tn_status status;

    /* O_NONBLOCK: a named pipe without a writer would wait for ever, and is refused right after */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return tn_error(TN_ERR_INPUT, "cannot open %s: %s", path, strerror(errno));
    status = check(*fd, path, bytes);
    if (status < 0)
        close(*fd);
    return status;
}

static tn_status map_file(struct tn_mapping *m)
{
    void *data = NULL;
    int fd;
    tn_status status = tn_mapping_descriptor(m->path, &fd, &m->bytes);

    if (status < 0)
        return status;
    if (m->bytes)
        data = mmap(NULL, (size_t)m->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        status = tn_error(TN_ERR_INPUT, "cannot map %s: %s", m->path, strerror(errno));
    else
        m->data = data;
    close(fd);
    return status;
}

tn_status tn_mapping_open(const char *path, struct tn_mapping *out)
{
    tn_status status;

    *out = (struct tn_mapping){.path = strdup(path)};
    if (!out->path)
        return tn_error(TN_ERR_MEMORY, "no memory for a file name");
    status = map_file(out);
    if (status < 0) {
        free(out->path);
        *out = (struct tn_mapping){0};
    }
    return status;
}

void tn_mapping_close(struct tn_mapping *m)
{
    if (m->data)
        munmap((void *)m->data, (size_t)m->bytes);
    free(m->path);
    *m = (struct tn_mapping){0};
}
