/* sink.h - a large file, written piece by piece, that appears whole or not at all.
 *
 * The streaming brother of tn_file_write (base/file.h), which takes what is ready in memory. Everything is
 * written to PATH.tmp-PID beside the target, synced, and renamed over it; a crash or a full disk leaves the
 * old file, or none. So a file may also be replaced while it is mapped. The first error sticks: later writes
 * return it without a second sentence, and commit undoes the file. The hash (XXH64 of all bytes) comes for
 * free, so nobody reads a file again to know its checksum. */
#ifndef TN_DATA_SINK_H
#define TN_DATA_SINK_H
#include <tenon/abi.h>

struct tn_sink;

tn_status tn_sink_open(const char *path, struct tn_sink **out);
tn_status tn_sink_write(struct tn_sink *o, const void *data, uint64_t bytes);

/* Takes o, also on failure. bytes and hash may be NULL. The folder is not synced: tn_folder_sync. */
tn_status tn_sink_commit(struct tn_sink *o, uint64_t *bytes, uint64_t *hash);

/* Takes o, which may be NULL; nothing stays on the disk. */
void tn_sink_abort(struct tn_sink *o);
#endif
