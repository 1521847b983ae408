/* file.h - whole files: read, written so that a crash leaves the old or the new one, and paths.
 *
 * Every failure is a sentence with the path and the system's reason. Reading: TN_ERR_INPUT where the user
 * named something that is not there or cannot be read, else TN_ERR_IO. Writing: TN_ERR_IO. */
#ifndef TN_BASE_FILE_H
#define TN_BASE_FILE_H
#include <tenon/abi.h>

#include "base/arena.h"

/* All bytes and a 0 behind them, owned by the caller (free). More than limit bytes are refused. */
tn_status tn_file_read(const char *path, size_t limit, char **data, size_t *bytes);

/* Writes under a temporary name beside path, syncs, renames, syncs the folder. A failure leaves path as it
 * was and no temporary file. */
tn_status tn_file_write(const char *path, const void *data, size_t bytes);

/* The pieces of the same, for files that are written bit by bit. */
tn_status tn_file_write_all(int fd, const void *data, size_t bytes, const char *path);
tn_status tn_file_sync(int fd, const char *path);
tn_status tn_folder_sync(const char *path);      /* so that names made or changed in it survive a crash */
tn_status tn_file_rename(const char *from, const char *to);

tn_status tn_folder_make(const char *path);      /* with all above it; fine if it is there */
tn_status tn_folder_space(const char *path,
                          uint64_t *free_bytes); /* for this user, where path is or will be */
/* Removes a file or a folder with all in it; follows no symbolic link; fine if it is not there. */
tn_status tn_path_remove(const char *path);
int tn_path_exists(const char *path);
int tn_path_is_folder(const char *path);

char *tn_path_join(struct tn_arena *arena, const char *folder, const char *name); /* name if it is absolute */
char *tn_path_folder(struct tn_arena *arena, const char *path);   /* "a/b" -> "a", "b" -> ".", "/b" -> "/" */
const char *tn_path_name(const char *path);      /* what is behind the last slash; borrows */
#endif
