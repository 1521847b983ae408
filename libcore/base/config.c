/* config.c - where values come from, and what they are.
 *
 * What was said (given) and what may be said (slot) are two lists, joined by name at each look: so an option
 * of a plugin may be read from the file long before the plugin is known. There are some sixty keys; a look is
 * a walk over both lists and nobody looks inside a step. */
#include "base/config.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/config_own.h"
#include "base/file.h"
#include "base/status.h"
#include "base/value.h"

#define MOST_BYTES 65536u                        /* of an INI file */

/* --- the two lists */
static void slot_add(struct tn_config *c, const struct tn_key *key, const char *owner)
{
    c->slot = tn_alloc_grow(c->arena, c->slot, c->slots, sizeof *c->slot);
    c->slot[c->slots++] =
        (struct slot){key, tn_text(c->arena, "%s.%s", key->section, key->name), owner, NULL};
}

static void given_add(struct tn_config *c, const char *name, const char *value, enum source source,
                      uint32_t line)
{
    const char *dot = strchr(name, '.');
    struct given g = {.source = source, .line = line};

    g.name = tn_text(c->arena, "%s", name);
    g.value = value ? tn_text(c->arena, "%s", value) : NULL;
    g.section = dot ? tn_text(c->arena, "%.*s", (int)(dot - name), name) : NULL;
    g.key = dot ? g.name + (dot - name) + 1 : g.name;
    c->given = tn_alloc_grow(c->arena, c->given, c->givens, sizeof *c->given);
    c->given[c->givens++] = g;
}

const struct slot *config_slot(const struct tn_config *c, const char *name)
{
    for (size_t i = 0; i < c->slots; i++)
        if (!strcmp(c->slot[i].name, name))
            return &c->slot[i];
    return NULL;
}

const struct given *config_given(const struct tn_config *c, const char *name)
{
    const struct given *best = NULL;

    for (size_t i = 0; i < c->givens; i++)
        if (c->given[i].value && (!best || c->given[i].source >= best->source) &&
            !strcmp(c->given[i].name, name))
            best = &c->given[i];
    return best;
}

const char *config_place(const struct tn_config *c, enum source source, uint32_t line)
{
    switch (source) {
    case FROM_FILE: return line ? tn_text(c->arena, "%s:%u", c->path, line) : c->path;
    case FROM_LINE: return "command line";
    case FROM_CASE: return "case file";
    case FROM_DERIVED: return "derived";
    default: return "default";
    }
}

/* --- opening */
static void file_open(struct tn_config *c, const char *path)
{
    char *text;
    size_t bytes;
    tn_status s = tn_file_read(path, MOST_BYTES, &text, &bytes);

    c->path = tn_text(c->arena, "%s", path);
    if (s < 0) {
        c->unread = tn_text(c->arena, "%s", tn_error_text());
        c->unread_code = s;
        tn_error_clear();
        return;
    }
    tn_ini_parse(c->arena, text, bytes, &c->ini);
    free(text);
    for (size_t i = 0; i < c->ini.entries; i++) {
        const struct tn_ini_entry *e = &c->ini.entry[i];
        given_add(c, tn_text(c->arena, "%s.%s", e->section, e->key), e->value, FROM_FILE, e->line);
    }
}

tn_status tn_config_unread(const struct tn_config *c)
{
    return c->unread ? tn_error_long(c->unread_code, c->unread) : TN_OK;
}

static void override_add(struct tn_config *c, const char *argument)
{
    const char *equals = strchr(argument, '=');

    if (equals)
        given_add(c, tn_text(c->arena, "%.*s", (int)(equals - argument), argument), equals + 1, FROM_LINE, 0);
    else
        given_add(c, argument, NULL, FROM_LINE, 0);
}

tn_status tn_config_open(const char *path, int n, char *const *overrides, struct tn_config **out)
{
    struct tn_arena *arena = tn_arena_new();
    struct tn_config *c = tn_alloc(arena, sizeof *c);

    c->arena = arena;
    for (const struct tn_key *key = tn_keys; key->section; key++)
        slot_add(c, key, NULL);
    if (path)
        file_open(c, path);
    for (int i = 0; i < n; i++)
        override_add(c, overrides[i]);
    *out = c;
    return TN_OK;
}

void tn_config_free(struct tn_config *c)
{
    if (c)
        tn_arena_free(c->arena);
}

void tn_config_case(struct tn_config *c, const char *key, const char *value)
{
    given_add(c, key, value, FROM_CASE, 0);
}

/* --- options of plugins */

/* A plugin's option as a key; in the arena. */
static struct tn_key *option_key(struct tn_config *c, const char *section, const struct tn_option *o)
{
    struct tn_key *key = tn_alloc(c->arena, sizeof *key);
    int flag;

    *key = (struct tn_key){.section = section,
                           .name = o->key,
                           .preset = o->preset,
                           .low = o->low,
                           .high = o->high,
                           .help = o->help ? o->help : "",
                           .otherwise = "nothing"};
    if (o->preset && tn_value_flag(o->preset, &flag) && !strchr("01", *o->preset))
        key->type = TN_KEY_FLAG;
    else if (o->low == 0 && o->high == 0)
        key->type = TN_KEY_TEXT;
    else
        key->type = TN_KEY_FLOAT;
    if (key->type == TN_KEY_TEXT && key->preset && !*key->preset)
        key->preset = NULL;
    return key;
}

static int same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static int same_key(const struct tn_key *a, const struct tn_key *b)
{
    return a->type == b->type && a->low == b->low && a->high == b->high && same_text(a->preset, b->preset);
}

static tn_status option_add(struct tn_config *c, const char *section, const struct tn_option *o,
                            const char *owner)
{
    struct tn_key *key = option_key(c, section, o);
    const struct slot *old = config_slot(c, tn_text(c->arena, "%s.%s", section, o->key));
    char why[320];

    if (key->preset && !tn_value_fits(key, key->preset, why, sizeof why))
        return tn_error(TN_ERR, "plugin %s: the default %s of its option %s.%s does not fit: %s", owner,
                        key->preset, section, o->key, why);
    if (!old)
        slot_add(c, key, owner);
    else if (!old->owner && !old->key->shared)
        return tn_error(TN_ERR, "plugin %s has an option %s, which is a key of the core", owner, old->name);
    else if (old->owner && !same_key(old->key, key))
        return tn_error(TN_ERR, "plugins %s and %s both have an option %s, with other ranges or defaults",
                        old->owner, owner, old->name);
    return TN_OK;
}

tn_status tn_config_add(struct tn_config *c, const char *section, const struct tn_option *options,
                        const char *owner)
{
    tn_status s = TN_OK;

    section = tn_text(c->arena, "%s", section);
    owner = tn_text(c->arena, "%s", owner);
    for (; s >= 0 && options && options->key; options++)
        s = option_add(c, section, options, owner);
    return s;
}

/* --- values */

/* The value that holds for a slot, NULL if it is unset, and where it is from. */
static const char *slot_value(const struct tn_config *c, const struct slot *slot, enum source *source,
                              uint32_t *line)
{
    const struct given *g = config_given(c, slot->name);

    *line = 0;
    if (g && tn_value_fits(slot->key, g->value, NULL, 0)) {
        *source = g->source, *line = g->line;
        return g->value;
    }
    *source = slot->derived ? FROM_DERIVED : FROM_PRESET;
    return slot->derived ? slot->derived : slot->key->preset;
}

static const struct slot *slot_must(const struct tn_config *c, const char *name)
{
    const struct slot *slot = config_slot(c, name);

    if (!slot) {
        fprintf(stderr, "tenon: a mistake in this program: there is no key %s\n", name);
        abort();
    }
    return slot;
}

const char *tn_config_text(const struct tn_config *c, const char *key)
{
    enum source source;
    uint32_t line;

    return slot_value(c, slot_must(c, key), &source, &line);
}

int64_t tn_config_int(const struct tn_config *c, const char *key)
{
    const char *text = tn_config_text(c, key);
    int64_t value = 0;
    int flag;

    if (text && !tn_value_int(text, &value))
        value = tn_value_flag(text, &flag) ? flag : 0;
    return value;
}

double tn_config_float(const struct tn_config *c, const char *key)
{
    const char *text = tn_config_text(c, key);
    double value = 0;
    int flag;

    if (text && !tn_value_float(text, &value))
        value = tn_value_flag(text, &flag) ? flag : 0;
    return value;
}

int tn_config_flag(const struct tn_config *c, const char *key)
{
    const char *text = tn_config_text(c, key);
    int flag;

    return text && tn_value_flag(text, &flag) ? flag : 0;
}

struct words {
    struct tn_arena *arena;
    const char **word;
    size_t n;
};
static int word_add(void *arg, const char *word, size_t bytes)
{
    struct words *w = arg;

    w->word = tn_alloc_grow(w->arena, w->word, w->n, sizeof *w->word);
    w->word[w->n++] = tn_text(w->arena, "%.*s", (int)bytes, word);
    return 0;
}

size_t tn_config_list(struct tn_config *c, const char *key, const char *const **words)
{
    const char *text = tn_config_text(c, key);
    struct words w = {.arena = c->arena};

    if (text)
        tn_value_words(text, ',', word_add, &w);
    w.word = tn_alloc_grow(w.arena, w.word, w.n, sizeof *w.word);
    w.word[w.n] = NULL;
    *words = w.word;
    return w.n;
}

int tn_config_is(const struct tn_config *c, const char *key, const char *word)
{
    return same_text(tn_config_text(c, key), word);
}

int tn_config_has(const struct tn_config *c, const char *key)
{
    return config_slot(c, key) != NULL;
}

int tn_config_is_set(const struct tn_config *c, const char *key)
{
    return config_given(c, slot_must(c, key)->name) != NULL;
}

const char *tn_config_origin(const struct tn_config *c, const char *key)
{
    enum source source;
    uint32_t line;

    slot_value(c, slot_must(c, key), &source, &line);
    return config_place(c, source, line);
}

const char *tn_config_path(const struct tn_config *c)
{
    return c->path;
}

void tn_config_settle(struct tn_config *c, const char *key, const char *fmt, ...)
{
    size_t i = (size_t)(slot_must(c, key) - c->slot);
    va_list ap;

    va_start(ap, fmt);
    c->slot[i].derived = tn_text_list(c->arena, fmt, ap);
    va_end(ap);
}

/* --- all of it */
int tn_config_at(const struct tn_config *c, size_t i, struct tn_config_entry *out)
{
    enum source source;
    uint32_t line;

    if (i >= c->slots)
        return 0;
    *out =
        (struct tn_config_entry){.key = c->slot[i].key, .name = c->slot[i].name, .owner = c->slot[i].owner};
    out->value = slot_value(c, &c->slot[i], &source, &line);
    out->origin = config_place(c, source, line);
    return 1;
}

struct json_t *tn_config_json(const struct tn_config *c)
{
    json_t *all = json_object();
    struct tn_config_entry e;

    for (size_t i = 0; tn_config_at(c, i, &e); i++)
        if (e.value)
            json_object_set_new(all, e.name, json_string(e.value));
    return all;
}
