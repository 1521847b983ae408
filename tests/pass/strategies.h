/* strategies.h - the strategies that the tests of the graph run: the shipped plugins, loaded from the build tree. */
#ifndef TESTS_PASS_STRATEGIES_H
#define TESTS_PASS_STRATEGIES_H
#include <stdlib.h>
#include <tenon/pass.h>
#include "base/status.h"
#include "plugin/load.h"

/* The pass of a plugin that was just built. */
static const struct tn_pass *shipped(const char *name)
{
    const char *top = getenv("top_builddir");
    const struct tn_loaded *plugin;
    char path[1024];

    snprintf(path, sizeof path, "%s/plugins/%s/.libs/%s.so", top ? top : ".", name, name);
    if (tn_plugin_open(path, &plugin)) {
        fprintf(stderr, "%s\n", tn_error_text());
        exit(99);
    }
    return tn_plugin_table(plugin, TN_PASS_ID);
}
#endif
