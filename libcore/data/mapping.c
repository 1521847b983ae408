/* mapping.c - see mapping.h. The descriptor is closed at once: the mapping keeps the file. */
#include "data/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static tn_status map_file(int fd, struct tn_mapping *m)
{
    struct stat st;

    if (fstat(fd, &st))
        return tn_error(TN_ERR_INPUT, "cannot read %s: %s", m->path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return tn_error(TN_ERR_INPUT, "%s is a directory, a file is needed", m->path);
    if (!S_ISREG(st.st_mode))
        return tn_error(TN_ERR_INPUT, "%s is not a regular file", m->path);
    m->bytes = (uint64_t)st.st_size;
    if (m->bytes == 0)
        return TN_OK;
    void *data = mmap(NULL, (size_t)m->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return tn_error(TN_ERR_INPUT, "cannot map %s: %s", m->path, strerror(errno));
    m->data = data;
    return TN_OK;
}

tn_status tn_mapping_open(const char *path, struct tn_mapping *out)
{
    *out = (struct tn_mapping){.path = strdup(path)};
    if (!out->path)
        return tn_error(TN_ERR_MEMORY, "no memory for a file name");

    /* O_NONBLOCK: a named pipe without a writer would wait for ever, and is refused right after */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    tn_status status;
    if (fd < 0) {
        status = tn_error(TN_ERR_INPUT, "cannot open %s: %s", path, strerror(errno));
    } else {
        status = map_file(fd, out);
        close(fd);
    }
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

void tn_mapping_drop(const struct tn_mapping *m, uint64_t offset, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t from = offset / page * page, end = offset + bytes;

    if (m->data && from < end)
        madvise((void *)(m->data + from), (size_t)(end - from), MADV_DONTNEED);
}
