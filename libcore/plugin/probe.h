/* probe.h - what a plugin says of itself on this machine, found out in a process that may die of it.
 *
 * Automatic choice and listing touch plugins that nobody asked for. Each is loaded and asked in a forked
 * child first: half a millisecond, and a crash, an exit or a hang (ended after TN_PROBE_SECONDS) becomes a
 * sentence. A child of fork has no threads but one, and a thread runtime that the parent used would wait for
 * the others for ever: so probing ends where the pool begins, and is an error afterwards. Main thread. */
#ifndef TN_PLUGIN_PROBE_H
#define TN_PLUGIN_PROBE_H
#include "plugin/load.h"

#define TN_PROBE_SECONDS 2
#define TN_MAX_OFFERS 8u

/* What one interface says. */
struct tn_offer {
    char id[48];
    char kinds[48]; /* devices it is, or works on: "cpu", "cpu, cuda"; "" any */
    char why[256];  /* the reason of the score */
    uint32_t score; /* 0: not usable here. 1 where the interface has no probe */
    uint32_t asked; /* 1: the interface has a probe */
    tn_status status; /* of the probe; negative: it failed, and why is its sentence */
    uint32_t reserved0;
};

struct tn_probe {
    tn_status status; /* negative: why says what was wrong with the file */
    uint32_t offers;
    char why[TN_WHY_SIZE];
    char about[128];
    struct tn_offer offer[TN_MAX_OFFERS];
};

/* Fills *out in any case; the status is that of probing, which fails only where it is too late or the system
 * has no more processes. A plugin that is loaded already is asked in this process. */
tn_status tn_plugin_probe(const char *path, struct tn_probe *out);

/* Asks a loaded plugin, in this process. */
void tn_plugin_ask(const struct tn_loaded *p, struct tn_probe *out);

const struct tn_offer *tn_probe_offer(const struct tn_probe *p, const char *id);
#endif
