/* search.h - which plugin files there are, in which order. Reads notes, runs nothing.
 *
 * Places, the first one first: plugins.path of the configuration (directories or files, with ':' between),
 * TENON_PLUGIN_PATH (absolute directories), ~/.local/lib/tenon/plugins, and the installation's directory -
 * or, when the program runs from its build tree, the plugins built there: an installed copy may be older than
 * it. Never the working directory. With raised privileges the environment is ignored. Within a directory the files
 * *.so in order of their names. A name belongs to the first sound file that has it; the others are refused,
 * and a broken file takes no name from anybody. */
#ifndef TN_PLUGIN_SEARCH_H
#define TN_PLUGIN_SEARCH_H
#include "base/arena.h"
#include "plugin/probe.h"

struct tn_candidate {
    const char *path, *file; /* file: the last part of path */
    const struct tn_place_searched *place;
    struct tn_card card;
    tn_status status; /* negative: refused, and why is the sentence */
    const char *why;
    const struct tn_loaded *loaded; /* in this process; NULL: not yet */
    struct tn_probe *probe;         /* NULL: not asked yet */
    struct tn_candidate *next;
};

struct tn_place_searched {
    const char *directory; /* or one file */
    const char *said_by;   /* "plugins.path", "TENON_PLUGIN_PATH", ... */
    const char *problem;   /* NULL: read */
    struct tn_place_searched *next;
};

/* Lists in order; everything lives in the arena. */
struct tn_search {
    struct tn_arena *arena;
    struct tn_candidate *first, **end;
    struct tn_place_searched *place, **place_end;
};

void tn_search_begin(struct tn_search *s, struct tn_arena *arena);
/* A directory, or one file. What cannot be read is noted as the place's problem and returned as an error. */
tn_status tn_search_add(struct tn_search *s, const char *directory, const char *said_by);
/* All places above. plugins_path may be NULL; a place that it names and that is not there is an error. */
tn_status tn_search_usual(struct tn_search *s, const char *plugins_path);
#endif
