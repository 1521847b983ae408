/* exports.h - what a loaded plugin shows to others beside tn_plugin_entry.
 *
 * Loaded with RTLD_LOCAL its symbols serve nobody else, but the reverse holds: what it exports may be taken from the
 * program or a library that has the same name, and then it calls a stranger. And a unique symbol (of a C++ template's
 * static) is one for the process, so two plugins would share it. */
#ifndef TN_PLUGIN_EXPORTS_H
#define TN_PLUGIN_EXPORTS_H
#include <stdint.h>

struct tn_exports {
    uint32_t n, unique;                          /* beside tn_plugin_entry; of them unique ones */
    const char *first, *first_unique;            /* in the plugin's memory; NULL: none */
};

/* Of a handle of dlopen. What linkers and sanitizers add, and names that begin with two underscores, do not count. */
void tn_exports_count(void *handle, struct tn_exports *out);
#endif
