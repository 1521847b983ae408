/* registry.c - what was found, and what was asked for by name: see registry.h.
 *
 * A name that cannot be had ends the run, so its sentence says what stands in the way and what would work. */
#include "plugin/registry.h"

#include <stdlib.h>

#include "base/near.h"
#include "base/status.h"
#include "plugin/registry_own.h"

#define MOST_PLACES 12u                          /* in one sentence */

/* --- opening */
static struct tn_registry *registry_new(void)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_registry *r = tn_alloc(arena, sizeof *r);

    r->arena = arena;
    tn_search_begin(&r->search, arena);
    return r;
}

static tn_status finish(struct tn_registry *r, tn_status s, struct tn_registry **out)
{
    *out = s < 0 ? NULL : r;
    if (s < 0)
        tn_registry_close(r);
    return s;
}

tn_status tn_registry_open(const char *plugins_path, struct tn_registry **out)
{
    struct tn_registry *r = registry_new();

    return finish(r, tn_search_usual(&r->search, plugins_path), out);
}

tn_status tn_registry_open_only(const char *const *directories, uint32_t n, struct tn_registry **out)
{
    struct tn_registry *r = registry_new();
    tn_status s = TN_OK;

    for (uint32_t i = 0; i < n && s >= 0; i++)
        s = tn_search_add(&r->search, directories[i], "list");
    return finish(r, s, out);
}

void tn_registry_close(struct tn_registry *r)
{
    if (r)
        tn_arena_free(r->arena);
}

const struct tn_candidate *tn_registry_each(const struct tn_registry *r, const struct tn_candidate *after)
{
    return after ? after->next : r->search.first;
}

const struct tn_place_searched *tn_registry_places(const struct tn_registry *r)
{
    return r->search.place;
}

/* --- sentences */
tn_status tn_registry_fail(struct tn_registry *r, tn_status code, const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    const char *kept = text ? tn_text(r->arena, "%s", text) : "no memory for an error's text";
    free(text);
    return tn_error_long(code, kept);
}

/* "adagrad, adam, sgd": sound plugins with this interface. */
const char *tn_registry_names(struct tn_registry *r, const char *id)
{
    const char *text = NULL;

    for (const struct tn_candidate *c = r->search.first; c; c = c->next)
        if (c->status >= 0 && tn_card_provides(&c->card, id))
            text = tn_text(r->arena, "%s%s%s", text ? text : "", text ? ", " : "", c->card.note.name);
    return text ? text : "none";
}

const char *tn_registry_searched(struct tn_registry *r)
{
    const struct tn_place_searched *p = r->search.place;
    const char *text = NULL;
    uint32_t n = 0;

    for (; p && n < MOST_PLACES; p = p->next, n++)
        text = tn_text(r->arena, "%s%s%s%s%s%s", text ? text : "", text ? ", " : "", p->directory,
                       p->problem ? " (" : "", p->problem ? p->problem : "", p->problem ? ")" : "");
    for (n = 0; p; p = p->next)
        n++;
    if (n)
        text = tn_text(r->arena, "%s, and %u more, which tenon plugins --explain lists", text, n);
    return text ? text : "nowhere";
}

/* --- by name */
static struct tn_candidate *find(const struct tn_registry *r, const char *name)
{
    for (struct tn_candidate *c = r->search.first; c; c = c->next)
        if (c->status >= 0 && !strcmp(c->card.note.name, name))
            return c;
    return NULL;
}

/* A refused file that says it is this plugin, or is called so. */
static const struct tn_candidate *find_refused(const struct tn_registry *r, const char *name)
{
    size_t n = strlen(name);

    for (const struct tn_candidate *c = r->search.first; c; c = c->next)
        if (c->status < 0 &&
            (!strcmp(c->card.note.name, name) || (!strncmp(c->file, name, n) && !strcmp(c->file + n, ".so"))))
            return c;
    return NULL;
}

static tn_status fail_unknown(struct tn_registry *r, const char *key, const char *name, const char *id)
{
    const struct tn_candidate *refused = find_refused(r, name);
    struct tn_near near = {.word = name};

    if (refused)
        return tn_registry_fail(r, refused->status, "%s = %s: %s", key, name, refused->why);
    for (const struct tn_candidate *c = r->search.first; c; c = c->next)
        if (c->status >= 0 && tn_card_provides(&c->card, id))
            tn_near_try(&near, c->card.note.name);
    return tn_registry_fail(r, TN_ERR_CONFIG,
                            "%s = %s: there is no such plugin%s%s%s; with %s there are: %s; searched: %s",
                            key, name, near.best ? ", did you mean " : "", near.best ? near.best : "",
                            near.best ? "?" : "", id, tn_registry_names(r, id), tn_registry_searched(r));
}

tn_status tn_registry_load(struct tn_candidate *c)
{
    return c->loaded ? TN_OK : tn_plugin_open(c->path, &c->loaded);
}

/* Asks in this process, for what was named: it is loaded here anyway. */
static const struct tn_offer *ask_here(struct tn_registry *r, struct tn_candidate *c, const char *id)
{
    if (!c->probe) {
        c->probe = tn_alloc(r->arena, sizeof *c->probe);
        tn_plugin_ask(c->loaded, c->probe);
    }
    return tn_probe_offer(c->probe, id);
}

tn_status tn_registry_find(struct tn_registry *r, const char *key, const char *name, const char *id,
                           struct tn_candidate **out)
{
    struct tn_candidate *c = find(r, name);
    const struct tn_interface_type *type = tn_interface_type(id);
    tn_status s;

    if (!type)
        return tn_registry_fail(r, TN_ERR, "%s = %s: this host knows no interface %s", key, name, id);
    if (!c)
        return fail_unknown(r, key, name, id);
    if (!tn_card_provides(&c->card, id))
        return tn_registry_fail(r, TN_ERR_CONFIG,
                                "%s = %s: the plugin %s provides %s, not %s; for %s there are: %s", key, name,
                                c->path, *c->card.note.provides ? c->card.note.provides : "nothing", id,
                                type->what, tn_registry_names(r, id));
    if ((s = tn_registry_load(c)) < 0)
        return tn_registry_fail(r, s, "%s = %s: %s", key, name, tn_error_text());
    if (type->probe) {
        const struct tn_offer *o = ask_here(r, c, id);
        if (!o || !o->score)
            return tn_registry_fail(r, TN_ERR_CONFIG, "%s = %s: not usable here: %s; for %s there are: %s",
                                    key, name, o && *o->why ? o->why : "it gives no reason", type->what,
                                    tn_registry_names(r, id));
    }
    *out = c;
    return TN_OK;
}

tn_status tn_registry_get(struct tn_registry *r, const char *key, const char *name, const char *id,
                          const void **table)
{
    struct tn_candidate *c = NULL;
    tn_status s = tn_registry_find(r, key, name, id, &c);

    *table = s < 0 ? NULL : tn_plugin_table(c->loaded, id);
    return s;
}
