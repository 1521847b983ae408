/* config_own.h - inside of a configuration, for config.c and config_check.c alone. */
#ifndef TN_BASE_CONFIG_OWN_H
#define TN_BASE_CONFIG_OWN_H
#include "base/arena.h"
#include "base/config.h"
#include "base/ini.h"

/* Weaker to stronger. */
enum source { FROM_PRESET, FROM_DERIVED, FROM_CASE, FROM_FILE, FROM_LINE };

/* A key, of the core or of a plugin. */
struct slot {
    const struct tn_key *key;
    const char *name, *owner;                    /* "section.key"; plugin or NULL */
    const char *derived;                         /* by tn_config_settle, or NULL */
};

/* What somebody said, whether a key of that name exists or not. */
struct given {
    const char *section, *key, *name, *value;    /* section NULL: an argument without a point in its key */
    enum source source;
    uint32_t line;
};

struct problem {
    enum source source;
    uint32_t line, order;                        /* order: in which they were found */
    const char *text;                            /* with its place in front */
};

struct tn_config {
    struct tn_arena *arena;
    const char *path;                            /* NULL: no file */
    const char *unread;                          /* why it could not be read, or NULL */
    tn_status unread_code;
    struct tn_ini ini;
    struct slot *slot;
    struct given *given;
    struct problem *problem;                     /* added by tn_config_problem, then the check's own */
    const char **excused;                        /* sections */
    size_t slots, givens, problems, excuses;
};

const struct slot *config_slot(const struct tn_config *c, const char *name);      /* NULL: no such key */
/* The strongest word on a key, fitting or not; NULL if nobody said anything. */
const struct given *config_given(const struct tn_config *c, const char *name);
/* "run.ini:7", "command line", "case file"; in the arena. */
const char *config_place(const struct tn_config *c, enum source source, uint32_t line);
#endif
