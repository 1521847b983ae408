/* list.c - the tests of a plugin, as a list. */
#include "suite.h"

#define LIMIT 60                                 /* seconds, unless a test says otherwise */

struct check_test *check_add(struct check_list *l, void (*run)(struct check_run *r), const char *what,
                             const char *name, ...)
{
    struct check_test *t;
    va_list ap;

    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 256;
        l->test = realloc(l->test, l->room * sizeof *l->test);
        if (!l->test)
            abort();
    }
    t = &l->test[l->n++];
    *t = (struct check_test){.run = run, .limit = LIMIT};
    snprintf(t->what, sizeof t->what, "%s", what);
    va_start(ap, name);
    vsnprintf(t->name, sizeof t->name, name, ap);
    va_end(ap);
    return t;
}

void check_list_all(struct check_list *l, const struct check_subject *s)
{
    if (s->rank) {                               /* the others of a launcher's ranks are only there for what needs them */
        check_list_comm(l, s);
        return;
    }
    check_list_file(l, s);
    if (!s->claims.loads)
        return;
    check_list_device(l, s);
    check_list_kernels(l, s);
    check_list_gradients(l, s);
    check_list_comm(l, s);
    check_list_optimizers(l, s);
    check_list_passes(l, s);
    check_list_bootstraps(l, s);
}
