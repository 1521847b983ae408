/* output.h - a large file, written piece by piece, that appears whole or not at all.
 *
 * The streaming brother of tn_file_write (base/file.h), which takes what is ready in memory. Everything is written to PATH.tmp-PID beside the target, synced, and renamed over it; a crash or a full disk
 * leaves the old file, or none. So a file may also be replaced while it is mapped. The first error sticks: later
 * writes return it without a second sentence, and commit undoes the file. The hash (XXH64 of all bytes) comes for
 * free, so nobody reads a file again to know its checksum. */
#ifndef TN_DATA_OUTPUT_H
#define TN_DATA_OUTPUT_H
#include <tenon/abi.h>

struct tn_output;

tn_status tn_output_open(const char *path, struct tn_output **out);
tn_status tn_output_write(struct tn_output *o, const void *data, uint64_t bytes);

/* Takes o, also on failure. bytes and hash may be NULL. The folder is not synced: tn_folder_sync. */
tn_status tn_output_commit(struct tn_output *o, uint64_t *bytes, uint64_t *hash);

/* Takes o, which may be NULL; nothing stays on the disk. */
void tn_output_abort(struct tn_output *o);
#endif
