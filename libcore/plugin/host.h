/* host.h - abilities of the host that a plugin asks for by id: host->interface("tenon.store/1").
 *
 * A list that only grows: whoever has an ability to give registers it when it starts; a released id keeps its
 * meaning. The table is borrowed for the rest of the process. */
#ifndef TN_PLUGIN_HOST_H
#define TN_PLUGIN_HOST_H
#include <tenon/abi.h>

/* An id that is taken, or too many, is an error. Main thread. */
tn_status tn_host_provide(const char *id, const void *table);
/* NULL if this host has none of that id. Any thread. */
const void *tn_host_interface(const char *id);
#endif
