/* load.h - plugins in this process.
 *
 * A file is checked (elf.h), opened with RTLD_NOW and RTLD_LOCAL, entered, compared with its note, its tables
 * copied to the sizes of this host, and started; each step ends in success or in one sentence with file and
 * cause. A file is never closed again: its texts and functions stay valid for the life of the process. The
 * same file (by device and inode) loads once; a file that failed fails again the same way. Main thread. */
#ifndef TN_PLUGIN_LOAD_H
#define TN_PLUGIN_LOAD_H
#include "plugin/elf.h"
#include "plugin/interface.h"

struct tn_loaded {
    char *path; /* as it was first opened */
    struct tn_card card;
    struct tn_plugin plugin; /* in our size */
    struct tn_loaded *next;  /* loaded before this one */
    tn_status status;        /* of the load */
    char why[TN_WHY_SIZE];   /* where it failed */
    uint32_t tables, reserved0;
    struct {
        const struct tn_interface_type *type;
        void *table;
    } table[8]; /* known interfaces, our sizes */
};

/* Borrowed, for the life of the process. A constructor that crashes, exits or hangs ends the process with a
 * sentence that names the file: what nobody asked for by name is tried by tn_plugin_probe first. */
tn_status tn_plugin_open(const char *path, const struct tn_loaded **out);

/* The table of a known interface in our size, NULL if the plugin has none. */
const void *tn_plugin_table(const struct tn_loaded *p, const char *id);
/* The loaded plugin whose table this is, NULL if none: for messages, and for comparing ranks. */
const struct tn_loaded *tn_plugin_owner(const void *table);
/* The plugins that were loaded without error, newest first. NULL: first, and none more. */
const struct tn_loaded *tn_plugin_each(const struct tn_loaded *after);

/* Stops all that were started, the last one first. Nothing of any plugin may be called afterwards. */
void tn_plugins_close(void);
#endif
