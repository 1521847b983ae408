/* plugin_file.h - for tests of plugins: the table of one that was just built. */
#ifndef PLUGIN_FILE_H
#define PLUGIN_FILE_H
#include <check.h>
#include <stdlib.h>

#include "base/status.h"
#include "plugin/load.h"

static const void *plugin_file(const char *name, const char *id)
{
    const char *top = getenv("top_builddir");
    const struct tn_loaded *p;
    char path[4096];

    snprintf(path, sizeof path, "%s/plugins/%s/.libs/%s.so", top ? top : ".", name, name);
    ck_assert_msg(tn_plugin_open(path, &p) >= 0, "%s", tn_error_text());
    ck_assert_ptr_nonnull(tn_plugin_table(p, id));
    return tn_plugin_table(p, id);
}

__attribute__((unused)) static int plugin_suite_run(Suite *s)
{
    SRunner *r = srunner_create(s);
    int failed;

    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
#endif
