/* mapping.h - a whole file as read-only memory.
 *
 * Texts and weights are read this way; token files, which are read for days, piece by piece (tokens.h). Only regular files are taken: a directory, a pipe or
 * a device is refused, so opening never waits. An empty file is a mapping of 0 bytes. */
#ifndef TN_DATA_MAPPING_H
#define TN_DATA_MAPPING_H
#include <tenon/abi.h>

struct tn_mapping {
    const unsigned char *data;                   /* NULL when bytes is 0 */
    uint64_t bytes;
    char *path;                                  /* owned; for messages */
};

/* TN_ERR_INPUT and a sentence where the file cannot be read. out is zeroed then; closing it is harmless. */
tn_status tn_mapping_open(const char *path, struct tn_mapping *out);
void tn_mapping_close(struct tn_mapping *m);

/* Only the descriptor, which the caller closes, and the size; the same refusals. */
tn_status tn_mapping_descriptor(const char *path, int *fd, uint64_t *bytes);
#endif
