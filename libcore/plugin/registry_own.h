/* registry_own.h - what registry.c (by name) and rank.c (by score) share. */
#ifndef TN_PLUGIN_REGISTRY_OWN_H
#define TN_PLUGIN_REGISTRY_OWN_H
#include "plugin/registry.h"

struct tn_registry {
    struct tn_arena *arena; /* of the candidates and of all texts */
    struct tn_search search;
};

/* Records a sentence of any length. */
__attribute__((format(printf, 3, 4))) tn_status tn_registry_fail(struct tn_registry *r, tn_status code,
                                                                 const char *fmt, ...);
/* "adagrad, adam, sgd": the sound plugins with this interface; "none". */
const char *tn_registry_names(struct tn_registry *r, const char *id);
/* The places that were searched, with the problems of those that could not be read. */
const char *tn_registry_searched(struct tn_registry *r);
/* Into this process, once. */
tn_status tn_registry_load(struct tn_candidate *c);
/* The named plugin, loaded, with the interface, and usable if it has a probe. */
tn_status tn_registry_find(struct tn_registry *r, const char *key, const char *name, const char *id,
                           struct tn_candidate **out);
#endif
