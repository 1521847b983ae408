/* file.c - reading and writing whole files, folders, and what can be said of paths.
 *
 * The order that makes a write safe: write the temporary file, sync it (else the rename may reach the disk
 * before the data), rename, sync the folder (else the rename itself may be lost). */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* "cannot WHAT PATH: reason". A path may be longer than tn_error's buffer. */
static tn_status fail(tn_status code, const char *what, const char *path, const char *reason)
{
    char *text;

    if (asprintf(&text, "cannot %s %s: %s", what, path, reason) < 0)
        return tn_error(code, "cannot %s %s", what, path);
    tn_status s = tn_error(code, "%s", text);
    free(text);
    return s;
}

/* What the user can put right by naming another file, or what the system owes. */
static tn_status read_code(int error)
{
    switch (error) {
    case ENOENT: case ENOTDIR: case EISDIR: case EACCES: case ELOOP: case ENAMETOOLONG: case ENXIO:
        return TN_ERR_INPUT;
    default:
        return TN_ERR_IO;
    }
}

/* --- reading */

/* Not blocking: a named pipe that nobody writes to reads as empty. */
static tn_status read_open(const char *path, int *out, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return fail(read_code(errno), "read", path, strerror(errno));
    if (fstat(fd, st) || S_ISDIR(st->st_mode)) {
        int error = S_ISDIR(st->st_mode) ? EISDIR : errno;
        close(fd);
        return fail(read_code(error), "read", path, error == EISDIR ? "it is a folder" : strerror(error));
    }
    fcntl(fd, F_SETFL, 0);
    *out = fd;
    return TN_OK;
}

/* Takes nothing; *data is owned by the caller in every case. */
static tn_status read_rest(int fd, const char *path, size_t limit, size_t room, char **data, size_t *bytes)
{
    size_t have = 0;

    for (;;) {
        if (!*data || have + 1 >= room) {
            room = *data ? 2 * room : room;
            char *more = realloc(*data, room);
            if (!more)
                return fail(TN_ERR_MEMORY, "read", path, "out of memory");
            *data = more;
        }
        ssize_t n = read(fd, *data + have, room - 1 - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(read_code(errno), "read", path, strerror(errno));
        if (n == 0)
            break;
        have += (size_t)n;
        if (have > limit) {
            char reason[96];
            snprintf(reason, sizeof reason, "it has more than the %zu bytes that such a file may have",
                     limit);
            return fail(TN_ERR_INPUT, "read", path, reason);
        }
    }
    (*data)[have] = 0;
    *bytes = have;
    return TN_OK;
}

tn_status tn_file_read(const char *path, size_t limit, char **data, size_t *bytes)
{
    struct stat st = {0};
    char *text = NULL;
    size_t room = 4096;
    int fd = -1;
    tn_status s = read_open(path, &fd, &st);

    if (s < 0)
        return s;
    if (S_ISREG(st.st_mode) && st.st_size > 0 && (uint64_t)st.st_size <= limit)
        room = (size_t)st.st_size + 2;           /* the last read sees the end */
    s = read_rest(fd, path, limit, room, &text, bytes);
    close(fd);
    if (s < 0) {
        free(text);
        return s;
    }
    *data = text;
    return TN_OK;
}

/* --- writing */
tn_status tn_file_write_all(int fd, const void *data, size_t bytes, const char *path)
{
    const char *at = data;

    while (bytes) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(TN_ERR_IO, "write", path, n < 0 ? strerror(errno) : "the system takes no more bytes");
        at += n;
        bytes -= (size_t)n;
    }
    return TN_OK;
}

tn_status tn_file_sync(int fd, const char *path)
{
    return fsync(fd) ? fail(TN_ERR_IO, "sync", path, strerror(errno)) : TN_OK;
}

/* Some file systems cannot sync a folder and say EINVAL: they need not. */
tn_status tn_folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tn_status s = TN_OK;

    if (fd < 0)
        return fail(TN_ERR_IO, "open folder", path, strerror(errno));
    if (fsync(fd) && errno != EINVAL && errno != EROFS)
        s = fail(TN_ERR_IO, "sync folder", path, strerror(errno));
    close(fd);
    return s;
}

tn_status tn_file_rename(const char *from, const char *to)
{
    char *text;
    tn_status s;

    if (!rename(from, to))
        return TN_OK;
    if (asprintf(&text, "%s to %s", from, to) < 0)
        return tn_error(TN_ERR_IO, "cannot rename %s", from);
    s = fail(TN_ERR_IO, "rename", text, strerror(errno));
    free(text);
    return s;
}

/* A new file beside path that no other thread or process has. Returns its descriptor; *name is owned. */
static int temporary_open(const char *path, char **name)
{
    static _Atomic uint32_t serial;

    for (int tries = 0; tries < 100; tries++) {
        if (asprintf(name, "%s.tmp-%ld-%u", path, (long)getpid(), atomic_fetch_add(&serial, 1)) < 0) {
            *name = NULL;
            return -1;
        }
        int fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
        free(*name);
        *name = NULL;
    }
    errno = EEXIST;
    return -1;
}

static tn_status folder_of_sync(const char *path)
{
    struct tn_arena *arena = tn_arena_new();
    tn_status s = tn_folder_sync(tn_path_folder(arena, path));

    tn_arena_free(arena);
    return s;
}

tn_status tn_file_write(const char *path, const void *data, size_t bytes)
{
    char *name = NULL;
    int fd = temporary_open(path, &name);
    tn_status s;

    if (fd < 0) {
        s = fail(TN_ERR_IO, "write", path, strerror(errno));
        free(name);
        return s;
    }
    s = tn_file_write_all(fd, data, bytes, path);
    if (s >= 0)
        s = tn_file_sync(fd, path);
    if (close(fd) && s >= 0)
        s = fail(TN_ERR_IO, "write", path, strerror(errno));
    if (s >= 0)
        s = tn_file_rename(name, path);
    if (s < 0)
        unlink(name);
    free(name);
    return s < 0 ? s : folder_of_sync(path);
}

/* --- folders and paths */
tn_status tn_folder_make(const char *path)
{
    char *text = strdup(path);
    tn_status s = TN_OK;

    if (!text)
        return fail(TN_ERR_MEMORY, "make folder", path, "out of memory");
    for (char *at = text + 1; s >= 0 && *text; at++) {
        char c = *at;
        if (c && c != '/')
            continue;
        *at = 0;
        int error = mkdir(text, 0777) ? errno : 0;
        if (error && !tn_path_is_folder(text))
            s = fail(TN_ERR_IO, "make folder", text, strerror(error == EEXIST ? ENOTDIR : error));
        *at = c;
        if (!c)
            break;
    }
    free(text);
    return s;
}

tn_status tn_folder_space(const char *path, uint64_t *free_bytes)
{
    struct tn_arena *arena = tn_arena_new();
    const char *at = path;
    struct statvfs st;
    tn_status s = TN_OK;

    while (!tn_path_exists(at) && strcmp(at, ".") && strcmp(at, "/"))
        at = tn_path_folder(arena, at);
    if (statvfs(at, &st))
        s = fail(TN_ERR_IO, "ask for the free space of", at, strerror(errno));
    else
        *free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    tn_arena_free(arena);
    return s;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    return remove(path);
}

tn_status tn_path_remove(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        return fail(TN_ERR_IO, "remove", path, strerror(errno));
    return TN_OK;
}

int tn_path_exists(const char *path)
{
    struct stat st;

    return !lstat(path, &st);
}

int tn_path_is_folder(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

char *tn_path_join(struct tn_arena *arena, const char *folder, const char *name)
{
    size_t n = strlen(folder);

    if (*name == '/' || !n)
        return tn_text(arena, "%s", name);
    return tn_text(arena, "%s%s%s", folder, folder[n - 1] == '/' ? "" : "/", name);
}

char *tn_path_folder(struct tn_arena *arena, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')          /* the slash that ends "a/b/" */
        n--;
    while (n && path[n - 1] != '/')
        n--;
    if (!n)
        return tn_text(arena, ".");
    while (n > 1 && path[n - 1] == '/')
        n--;
    return tn_text(arena, "%.*s", (int)n, path);
}

const char *tn_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}
