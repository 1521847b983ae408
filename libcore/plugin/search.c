/* search.c - directories to candidates: see search.h. */
#include "plugin/search.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/plain.h"
#include "base/status.h"

#ifndef TN_PLUGINDIR
#error "the build says where plugins are installed: -DTN_PLUGINDIR='\"/usr/lib/tenon/plugins\"'"
#endif

void tn_search_begin(struct tn_search *s, struct tn_arena *arena)
{
    *s = (struct tn_search){.arena = arena};
    s->end = &s->first;
    s->place_end = &s->place;
}

/* Refuses c if an earlier sound one has its name; forgets it if an earlier one is the same file. */
static int is_same_file(const struct tn_search *s, struct tn_candidate *c)
{
    for (const struct tn_candidate *o = s->first; o; o = o->next) {
        if (c->card.inode && o->card.device == c->card.device && o->card.inode == c->card.inode)
            return 1;
        if (c->status >= 0 && o->status >= 0 && !strcmp(o->card.note.name, c->card.note.name)) {
            c->status = TN_ERR_INPUT;
            c->why = tn_text(s->arena, "%s: the name %s is already taken by %s", c->path, c->card.note.name,
                             o->path);
        }
    }
    return 0;
}

static void add_file(struct tn_search *s, const char *path, const struct tn_place_searched *place)
{
    struct tn_candidate *c = tn_alloc(s->arena, sizeof *c);
    char why[TN_WHY_SIZE], *own = tn_text(s->arena, "%s", path), *slash;

    c->status = tn_elf_check(path, &c->card, why);
    if (c->status < 0)
        c->why = tn_text(s->arena, "%s", why), tn_plain(own, 0);    /* from here on it is only shown */
    c->path = own;
    slash = strrchr(own, '/');
    c->file = slash ? slash + 1 : own;
    c->place = place;
    if (is_same_file(s, c))
        return;
    *s->end = c;
    s->end = &c->next;
}

static int is_object(const struct dirent *e)
{
    size_t n = strlen(e->d_name);

    return e->d_name[0] != '.' && n > 3 && !strcmp(e->d_name + n - 3, ".so");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* not alphasort, which asks the locale */
}

static struct tn_place_searched *add_place(struct tn_search *s, const char *directory, const char *said_by)
{
    struct tn_place_searched *p = tn_alloc(s->arena, sizeof *p);

    p->directory = tn_text(s->arena, "%s", directory);
    p->said_by = said_by;
    *s->place_end = p;
    s->place_end = &p->next;
    return p;
}

static tn_status read_place(struct tn_search *s, struct tn_place_searched *p)
{
    struct dirent **entry;
    struct stat st;

    if (!stat(p->directory, &st) && S_ISREG(st.st_mode)) {
        add_file(s, p->directory, p);
        return TN_OK;
    }
    int n = scandir(p->directory, &entry, is_object, by_name);
    if (n < 0) {
        p->problem = tn_text(s->arena, "%s", strerror(errno));
        return tn_error(TN_ERR_CONFIG, "%s: %.300s cannot be read: %s", p->said_by, p->directory, p->problem);
    }
    for (int i = 0; i < n; i++) {
        add_file(s, tn_text(s->arena, "%s/%s", p->directory, entry[i]->d_name), p);
        free(entry[i]);
    }
    free(entry);
    return TN_OK;
}

tn_status tn_search_add(struct tn_search *s, const char *directory, const char *said_by)
{
    return read_place(s, add_place(s, directory, said_by));
}

/* --- the usual places */
static tn_status add_list(struct tn_search *s, const char *list, const char *said_by, int absolute_only)
{
    const char *relative = NULL;
    tn_status first = TN_OK;
    uint32_t more = 0;

    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ":");
        char *one = tn_text(s->arena, "%.*s", (int)n, p);
        if (n && absolute_only && *one != '/') {
            add_place(s, one, said_by)->problem = "not absolute, so it would depend on the working directory";
            more += relative != NULL;
            relative = relative ? relative : one;
        } else if (n) {
            tn_status t = tn_search_add(s, one, said_by);
            first = first < 0 ? first : t;
        }
        p += n + (p[n] == ':');
    }
    if (relative && more)
        tn_log(TN_LOG_WARNING, "%s: %s and %u more are not absolute paths and are not searched", said_by, relative, more);
    else if (relative)
        tn_log(TN_LOG_WARNING, "%s: %s is not an absolute path and is not searched", said_by, relative);
    return first;
}

/* The root of the build tree that this program runs from; NULL when it is installed. */
static const char *build_tree(struct tn_arena *arena)
{
    static const char *const below[] = {"/apps/", "/tests/"};
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    if (n <= 0)
        return NULL;
    exe[n] = 0;
    for (size_t i = 0; i < sizeof below / sizeof *below; i++)
        for (char *at = exe + n; at > exe; at--) {
            if (strncmp(at, below[i], strlen(below[i])))
                continue;
            char *status = tn_text(arena, "%.*s/config.status", (int)(at - exe), exe);
            char *plugins = tn_text(arena, "%.*s/plugins", (int)(at - exe), exe);
            if (!access(status, F_OK) && !access(plugins, F_OK))
                return plugins;
        }
    return NULL;
}

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static void add_build_tree(struct tn_search *s, const char *plugins)
{
    struct dirent **entry;
    int n = scandir(plugins, &entry, is_visible, by_name);

    for (int i = 0; i < n; i++) {
        char *libs = tn_text(s->arena, "%s/%s/.libs", plugins, entry[i]->d_name);
        if (!access(libs, F_OK))
            tn_search_add(s, libs, "build tree");
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
}

tn_status tn_search_usual(struct tn_search *s, const char *plugins_path)
{
    int secure = getauxval(AT_SECURE) != 0;
    const char *variable = secure ? NULL : getenv("TENON_PLUGIN_PATH"),
               *home = secure ? NULL : getenv("HOME");
    const char *built = build_tree(s->arena);
    tn_status status = plugins_path ? add_list(s, plugins_path, "plugins.path", 0) : TN_OK;

    if (status < 0)
        return status;
    if (variable && add_list(s, variable, "TENON_PLUGIN_PATH", 1) < 0)
        tn_log(TN_LOG_WARNING, "%s", tn_error_text());
    if (home && *home == '/') {
        char *own = tn_text(s->arena, "%s/.local/lib/tenon/plugins", home);
        if (access(own, F_OK))
            add_place(s, own, "user")->problem = "not there";
        else
            tn_search_add(s, own, "user");
    }
    if (built)
        add_build_tree(s, built);
    else
        tn_search_add(s, TN_PLUGINDIR, "installation");
    tn_error_clear(); /* problems of places are listed, not fatal */
    return TN_OK;
}
