/* plugins.h - what the files of `tenon plugins` share. */
#ifndef TENON_APP_PLUGINS_H
#define TENON_APP_PLUGINS_H
#include "base/config.h"
#include "plugin/registry.h"

struct plugins_row {                             /* a file, and what it says of itself here */
    const struct tn_candidate *c;
    const struct tn_probe *p;
};

struct plugins_rows {
    struct plugins_row *row;                     /* owned */
    size_t n;
};

/* Why it is refused, without the path that the line has already. */
const char *plugins_cause(const struct plugins_row *row);

/* Prints every candidate of every choice. Under a launcher rank 0 prints, also how the other ranks differ. */
tn_status plugins_explain(struct tn_registry *r, struct tn_config *c, const struct plugins_rows *rows);
#endif
