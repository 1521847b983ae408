/* registry.h - which plugin does the work.
 *
 * Opening a registry finds files and reads their notes; nothing runs. What is asked for by name is then
 * loaded here, and anything wrong with it is an error that names the key of the configuration and what would
 * work. What is left to us is chosen by asking each candidate in a child process: the highest score wins, of equal
 * ones names decide, and every rejection is kept to be listed. A bad plugin is skipped, and disables no other.
 *
 * Choose before threads start (see probe.h). Main thread. Tables are in this host's size, checked, and valid
 * until tn_plugins_close. */
#ifndef TN_PLUGIN_REGISTRY_H
#define TN_PLUGIN_REGISTRY_H
#include <tenon/device.h>
#include <tenon/kernels.h>

#include "plugin/search.h"

struct tn_registry;

/* plugins_path: plugins.path of the configuration, NULL without. Returns owned. */
tn_status tn_registry_open(const char *plugins_path, struct tn_registry **out);
/* Only these directories or files, in this order; one that cannot be read is an error. */
tn_status tn_registry_open_only(const char *const *directories, uint32_t n, struct tn_registry **out);
void tn_registry_close(struct tn_registry *r); /* takes; loaded plugins stay loaded. NULL is fine */

/* key, everywhere: what the user wrote the name under, with its place where that is known, as errors shall
 * begin: "run.ini:7: optimizer.name". */

/* By name. An interface with a probe is asked too,
 * and a score of 0 is an error with the plugin's reason. */
tn_status tn_registry_get(struct tn_registry *r, const char *key, const char *name, const char *id,
                          const void **table);

/* Why this one is not for the purpose, NULL if it is. The text lives as long as arg. */
typedef const char *tn_registry_filter(void *arg, const struct tn_candidate *c, const struct tn_offer *o);

/* Automatic. reject may be NULL. The error lists why each candidate is not it. */
tn_status tn_registry_best(struct tn_registry *r, const char *key, const char *id, tn_registry_filter *reject,
                           void *arg, const void **table);

/* The plugin for this kind of device ("cpu") with the highest score. */
tn_status tn_registry_device(struct tn_registry *r, const char *key, const char *kind,
                             const struct tn_device_api **out);

/* Kernel plugins in order of preference. names is "cpu, ref", or NULL: all that work on the kind of device,
 * by score. out has room for TN_MAX_KERNELS. */
#define TN_MAX_KERNELS 16u
tn_status tn_registry_kernels(struct tn_registry *r, const char *key, const char *names,
                              const char *device_kind, const struct tn_kernels **out, uint32_t *n);

/* Which of two is chosen: below 0 the first one. Never 0 for two plugins. */
int tn_registry_order(uint32_t score, const char *name, uint32_t other_score, const char *other);

/* --- listing */
/* In order of the search; NULL: the first, and none more. */
const struct tn_candidate *tn_registry_each(const struct tn_registry *r, const struct tn_candidate *after);
const struct tn_place_searched *tn_registry_places(const struct tn_registry *r);
/* Asked in a child process, once; a refused file too, whose sentence it then repeats. */
tn_status tn_registry_ask(struct tn_registry *r, const struct tn_candidate *c, const struct tn_probe **out);
#endif
