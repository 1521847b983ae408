/* load.c - from a path to checked tables: see load.h. */
#include "plugin/load.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#include "base/plain.h"
#include "base/status.h"
#include "plugin/blame.h"
#include "plugin/border.h"
#include "plugin/contents.h"
#include "plugin/exports.h"
#include "plugin/guard.h"
#include "plugin/host.h"
#include "plugin/rules.h"

#define MAX_INTERFACES 64 /* in a plugin's list; more is a list without an end */

static struct tn_loaded *newest;

__attribute__((format(printf, 2, 3))) static tn_status refuse(struct tn_loaded *p, const char *fmt, ...)
{
    int k = snprintf(p->why, sizeof p->why, "%.300s: ", p->path);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(p->why + k, sizeof p->why - (size_t)k, fmt, ap);
    va_end(ap);
    tn_plain(p->why, 0);
    return TN_ERR_INPUT;
}

/* --- a second OpenMP runtime that came as somebody's dependency */
struct runtimes {
    int n;
    char names[200];
};

static int count_runtime(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct runtimes *r = arg;
    size_t k = strlen(r->names);

    (void)size;
    if (tn_openmp_runtime(info->dlpi_name)) {
        snprintf(r->names + k, sizeof r->names - k, "%s%s", k ? ", " : "", info->dlpi_name);
        r->n++;
    }
    return 0;
}

static tn_status check_runtimes(struct tn_loaded *p)
{
    struct runtimes r = {0};

    dl_iterate_phdr(count_runtime, &r);
    if (r.n > 1)
        return refuse(p, "brought a second OpenMP runtime into the process (%s)", r.names);
    return TN_OK;
}

/* What leaks hurts the plugin itself, so it is said and no more; a unique symbol would tie it to another plugin. Who
 * asks in a child process hears nothing: the one who loads it will. */
static tn_status check_exports(struct tn_loaded *p, void *handle)
{
    struct tn_exports e;

    tn_exports_count(handle, &e);
    if (e.unique)
        return refuse(p, "exports %s, which would be shared with every other plugin that has it; link it with a "
                         "version script that keeps tn_plugin_entry alone, or compile with -fno-gnu-unique", e.first_unique);
    if (e.n && !tn_guard_is_muted())
        tn_log(TN_LOG_WARNING, "%.300s: exports %u symbol%s beside tn_plugin_entry, such as %.100s, which a library of this "
                               "process may have too; compile it with -fvisibility=hidden",
               p->path, e.n, e.n == 1 ? "" : "s", e.first);
    return TN_OK;
}

/* --- what it says, compared with what it is */
static tn_status take_tables(struct tn_loaded *p)
{
    char why[TN_WHY_SIZE];

    for (int i = 0; p->plugin.interfaces[i].id; i++) {
        const struct tn_interface *theirs = &p->plugin.interfaces[i];
        if (i == MAX_INTERFACES)
            return refuse(p, "has a list of interfaces without an end");
        const struct tn_interface_type *type = tn_interface_type(theirs->id);
        if (!type || p->tables == sizeof p->table / sizeof *p->table)
            continue;
        void *ours = calloc(1, type->size);
        if (!ours)
            return refuse(p, "no memory for its tables");
        p->table[p->tables].type = type;
        p->table[p->tables++].table = ours;
        if (tn_interface_take(type, theirs->table, ours, why) < 0 || tn_contents_check(type, ours, why) < 0)
            return refuse(p, "%s", why);
    }
    return TN_OK;
}

/* Every promise of the note is kept; more than it promised may be there. */
static tn_status check_promises(struct tn_loaded *p)
{
    char id[sizeof p->card.note.provides];

    for (const char *s = p->card.note.provides; *s;) {
        size_t n = strcspn(s, " ");
        int found = 0;
        memcpy(id, s, n);
        id[n] = 0;
        for (const struct tn_interface *i = p->plugin.interfaces; n && i->id && !found; i++)
            found = !strcmp(i->id, id);
        if (n && !found)
            return refuse(p, "promises %s in its note, but its list of interfaces has none", id);
        s += n + (s[n] == ' ');
    }
    return TN_OK;
}

static tn_status check_plugin(struct tn_loaded *p, const struct tn_plugin *theirs)
{
    const struct tn_note *note = &p->card.note;
    char why[TN_WHY_SIZE];
    tn_status s;

    if (tn_struct_take("struct tn_plugin", theirs, sizeof p->plugin, &p->plugin, why) < 0)
        return refuse(p, "%s", why);
    if (!p->plugin.name || strcmp(p->plugin.name, note->name))
        return refuse(p, "calls itself %s, but its note says %s", p->plugin.name ? p->plugin.name : "nothing",
                      note->name);
    if (!p->plugin.interfaces)
        return refuse(p, "has no list of interfaces");
    if ((s = take_tables(p)) < 0)
        return s;
    return check_promises(p);
}

static tn_status start(struct tn_loaded *p)
{
    tn_status s;

    if (!p->plugin.start)
        return TN_OK;
    tn_error_clear();
    s = p->plugin.start();
    if (s < 0)
        return refuse(p, "could not start: %s", *tn_error_text() ? tn_error_text() : "it did not say why");
    return TN_OK;
}

/* NULL after refuse. Absolute, since a name without a slash would send dlopen searching. */
static void *open_object(struct tn_loaded *p)
{
    char *real = realpath(p->path, NULL);
    void *handle = real ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;

    if (!real) {
        refuse(p, "vanished while it was loaded");
    } else if (!handle) {
        const char *text = dlerror(); /* begins with the path, mostly */
        size_t n = strlen(real);
        if (text && !strncmp(text, real, n) && !strncmp(text + n, ": ", 2))
            text += n + 2;
        refuse(p, "the system's loader refuses it: %s", text ? text : "it did not say why");
    }
    free(real);
    return handle;
}

/* Everything in which code of the plugin runs, or its memory is believed. */
static tn_status enter(struct tn_loaded *p)
{
    const struct tn_plugin *(*entry)(const struct tn_host *);
    void *handle = open_object(p);
    tn_status s;

    if (!handle)
        return TN_ERR_INPUT;
    tn_blame_add(p->path, handle);
    *(void **)&entry = dlsym(handle, "tn_plugin_entry");
    if (!entry)
        return refuse(p, "has a Tenon note, but does not export tn_plugin_entry");
    if ((s = check_runtimes(p)) < 0 || (s = check_exports(p, handle)) < 0)
        return s;
    const struct tn_plugin *theirs = entry(tn_host);
    if (!theirs)
        return refuse(p, "its tn_plugin_entry returned nothing");
    if ((s = check_plugin(p, theirs)) < 0)
        return s;
    return start(p);
}

static const struct tn_loaded *find_file(const struct tn_card *c)
{
    for (const struct tn_loaded *p = newest; p; p = p->next)
        if (p->card.device == c->device && p->card.inode == c->inode)
            return p;
    return NULL;
}

static const struct tn_loaded *find_name(const char *name)
{
    for (const struct tn_loaded *p = newest; p; p = p->next)
        if (p->status >= 0 && !strcmp(p->card.note.name, name))
            return p;
    return NULL;
}

static struct tn_loaded *add(const char *path, const struct tn_card *card)
{
    struct tn_loaded *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->path = strdup(path);
    if (!p->path) {
        free(p);
        return NULL;
    }
    p->card = *card;
    p->next = newest;
    newest = p;
    return p;
}

tn_status tn_plugin_open(const char *path, const struct tn_loaded **out)
{
    char why[TN_WHY_SIZE];
    struct tn_card card;
    tn_status s = tn_elf_check(path, &card, why);

    *out = NULL;
    if (s < 0)
        return tn_error_long(s, why);
    const struct tn_loaded *old = find_file(&card);
    if (old && old->status < 0)
        return tn_error_long(old->status, old->why);
    if (old) {
        *out = old;
        return TN_OK;
    }
    old = find_name(card.note.name);
    if (old)
        return tn_error(TN_ERR_INPUT, "%.200s: a plugin named %s is already loaded from %.200s", path,
                        card.note.name, old->path);
    struct tn_loaded *p = add(path, &card);
    if (!p)
        return tn_error(TN_ERR_MEMORY, "%.300s: cannot be loaded: no memory", path);
    tn_host_table.interface = tn_host_interface;
    tn_guard_begin(p->path, "while it was loaded", TN_GUARD_SECONDS);
    p->status = enter(p);
    tn_guard_end();
    if (p->status < 0)
        return tn_error_long(p->status, p->why);
    tn_rules_watch(p);
    tn_border_put(p);
    *out = p;
    return TN_OK;
}

const void *tn_plugin_table(const struct tn_loaded *p, const char *id)
{
    for (uint32_t i = 0; i < p->tables; i++)
        if (!strcmp(p->table[i].type->id, id))
            return p->table[i].table;
    return NULL;
}

const struct tn_loaded *tn_plugin_owner(const void *table)
{
    for (const struct tn_loaded *p = newest; p; p = p->next)
        for (uint32_t i = 0; i < p->tables; i++)
            if (p->table[i].table == table)
                return p;
    return NULL;
}

const struct tn_loaded *tn_plugin_each(const struct tn_loaded *after)
{
    const struct tn_loaded *p = after ? after->next : newest;

    while (p && p->status < 0)
        p = p->next;
    return p;
}

void tn_plugins_close(void)
{
    while (newest) {
        struct tn_loaded *p = newest;
        newest = p->next;
        if (p->status >= 0 && p->plugin.stop) {
            tn_guard_begin(p->path, "while it was stopped", TN_GUARD_STOP_SECONDS);
            p->plugin.stop();
            tn_guard_end();
        }
        for (uint32_t i = 0; i < p->tables; i++)
            free(p->table[i].table);
        free(p->path);
        free(p);
    }
}
