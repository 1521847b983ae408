/* mapping.h - a whole file as read-only memory.
 *
 * Token files, texts and weights are all read this way. Only regular files are taken: a directory, a pipe or
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

/* Gives the pages back to the system; the next touch reads them again from the page cache. */
void tn_mapping_drop(const struct tn_mapping *m, uint64_t offset, uint64_t bytes);
#endif
