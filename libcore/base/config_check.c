/* config_check.c - everything that is wrong with a configuration, said at once.
 *
 * One line for each problem, each with its place first, in the order of the case file, the INI file and the
 * command line: the user mends all of it and runs again once. */
#include <stdlib.h>

#include "base/config.h"
#include "base/config_own.h"
#include "base/near.h"
#include "base/status.h"
#include "base/value.h"

#define MOST_LINES 50u                           /* of problems shown */
#define SHOWN 60                                 /* bytes of a value that a message repeats */

static void problem_add(struct tn_config *c, enum source source, uint32_t line, const char *text)
{
    c->problem = tn_alloc_grow(c->arena, c->problem, c->problems, sizeof *c->problem);
    c->problem[c->problems] = (struct problem){source, line, (uint32_t)c->problems, text};
    c->problems++;
}

/* --- the nearest known key */
static const struct tn_section *section_find(const char *name)
{
    for (const struct tn_section *s = tn_sections; s->name; s++)
        if (!strcmp(s->name, name))
            return s;
    return NULL;
}


/* A key of the very name in another section, else the nearest in this section, and where the section is
 * none, the nearest of all. */
static const char *key_nearest(const struct tn_config *c, const struct given *g)
{
    struct tn_near full = {.word = g->name}, near = {.word = g->key};
    const char *twin = NULL, *here = NULL;
    uint32_t best = UINT32_MAX;

    for (size_t i = 0; i < c->slots; i++) {
        const struct tn_key *key = c->slot[i].key;
        uint32_t distance = tn_near_distance(g->name, c->slot[i].name);

        if (!tn_near_distance(key->name, g->key) && distance < best)
            twin = c->slot[i].name, best = distance;
        tn_near_try(&full, c->slot[i].name);
        if (!g->section || !strcmp(g->section, key->section)) {
            const char *was = near.best;
            tn_near_try(&near, key->name);
            if (near.best != was)
                here = c->slot[i].name;
        }
    }
    if (twin || here)
        return twin ? twin : here;
    return g->section && section_find(g->section) ? NULL : full.best;
}

const char *tn_config_nearest(const struct tn_config *c, const char *name)
{
    const char *dot = strchr(name, '.');
    struct given g = {.name = name, .key = dot ? dot + 1 : name};

    if (dot)
        g.section = tn_text(c->arena, "%.*s", (int)(dot - name), name);
    return key_nearest(c, &g);
}

static const char *did_you_mean(const struct tn_config *c, const struct given *g, const char *otherwise)
{
    const char *near = key_nearest(c, g);

    return near ? tn_text(c->arena, "did you mean %s?", near) : otherwise;
}

/* "its keys are a, b, c", or all sections for NULL. */
static const char *names_known(const struct tn_config *c, const char *section)
{
    const char *list = "";

    for (const struct tn_section *s = tn_sections; !section && s->name; s++)
        list = tn_text(c->arena, "%s%s%s", list, *list ? ", " : "", s->name);
    for (size_t i = 0; section && i < c->slots; i++)
        if (!strcmp(c->slot[i].key->section, section))
            list = tn_text(c->arena, "%s%s%s", list, *list ? ", " : "", c->slot[i].key->name);
    return tn_text(c->arena, section ? "its keys are %s" : "there are %s", list);
}

/* --- judging */
static const char *section_unknown(const struct tn_config *c, const char *name)
{
    struct tn_near near = {.word = name};

    for (const struct tn_section *s = tn_sections; s->name; s++)
        tn_near_try(&near, s->name);
    if (near.best)
        return tn_text(c->arena, "unknown section [%s]; did you mean [%s]?", name, near.best);
    return tn_text(c->arena, "unknown section [%s]; %s", name, names_known(c, NULL));
}

static int excused(const struct tn_config *c, const char *section)
{
    for (size_t i = 0; i < c->excuses; i++)
        if (!strcmp(c->excused[i], section))
            return 1;
    return 0;
}

/* An argument that is not section.key=value. */
static const char *argument_wrong(const struct tn_config *c, const struct given *g)
{
    const char *form = "expected section.key=value", *near = did_you_mean(c, g, NULL);
    const char *shown = g->value ? tn_text(c->arena, "%s=%.*s", g->name, SHOWN, g->value) : g->name;

    return tn_text(c->arena, "argument %s: %s%s%s", shown, form, near ? "; " : "", near ? near : "");
}

/* NULL, or what is wrong, without its place. */
static const char *given_wrong(const struct tn_config *c, const struct given *g)
{
    const struct slot *slot = config_slot(c, g->name);
    const char *bytes = g->value ? tn_ini_bad_bytes(g->value, strlen(g->value)) : NULL;
    char why[400];

    if (!g->value || !g->section)
        return argument_wrong(c, g);
    if (tn_ini_bad_bytes(g->name, strlen(g->name)))
        return "an argument whose key is not plain text; expected section.key=value";
    if (!slot && !section_find(g->section)) {
        if (g->source == FROM_FILE)              /* reported once, at its header */
            return NULL;
        return tn_text(c->arena, "unknown key %s; %s", g->name, did_you_mean(c, g, names_known(c, NULL)));
    }
    if (!slot)
        return excused(c, g->section) ? NULL
                                      : tn_text(c->arena, "unknown key %s; %s", g->name,
                                                did_you_mean(c, g, names_known(c, g->section)));
    if (bytes)
        return tn_text(c->arena, "%s: %s in the value", g->name, bytes);
    if (tn_value_fits(slot->key, g->value, why, sizeof why))
        return NULL;
    if (!*g->value)
        return tn_text(c->arena, "%s is empty; %s", g->name, why);
    return tn_text(c->arena, "%s = %.*s%s: %s", g->name, SHOWN, g->value,
                   strlen(g->value) > SHOWN ? "..." : "", why);
}

static void problem_at(struct tn_config *c, enum source source, uint32_t line, const char *text)
{
    problem_add(c, source, line, tn_text(c->arena, "%s: %s", config_place(c, source, line), text));
}

static int problem_order(const void *a, const void *b)
{
    const struct problem *x = a, *y = b;

    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static tn_status problems_said(struct tn_config *c)
{
    char *text;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    tn_status s;

    if (!f)
        return tn_error(TN_ERR_MEMORY, "no memory to list %zu problems of the configuration", c->problems);
    for (size_t i = 0; i < c->problems && i < MOST_LINES; i++)
        fprintf(f, "%s%s", i ? "\n" : "", c->problem[i].text);
    if (c->problems > MOST_LINES)
        fprintf(f, "\n... and %zu more", c->problems - MOST_LINES);
    fclose(f);
    s = tn_error_long(TN_ERR_CONFIG, text);
    free(text);
    return s;
}

/* The problems that others added stay for the next check; its own are found again then. */
tn_status tn_config_check(struct tn_config *c)
{
    size_t others = c->problems;
    struct problem *kept = c->problem;
    tn_status s = tn_config_unread(c);

    if (s < 0)
        return s; /* the rest would be the defaults' */
    c->problem = NULL, c->problems = 0;
    for (size_t i = 0; i < c->ini.problems; i++)
        problem_at(c, FROM_FILE, c->ini.problem[i].line, c->ini.problem[i].text);
    for (size_t i = 0; i < c->ini.sections; i++)
        if (!section_find(c->ini.section[i].section))
            problem_at(c, FROM_FILE, c->ini.section[i].line, section_unknown(c, c->ini.section[i].section));
    for (size_t i = 0; i < c->givens; i++) {
        const char *wrong = given_wrong(c, &c->given[i]);
        if (wrong)
            problem_at(c, c->given[i].source, c->given[i].line, wrong);
    }
    for (size_t i = 0; i < others; i++)
        problem_add(c, kept[i].source, kept[i].line, kept[i].text);
    if (c->problems) {
        qsort(c->problem, c->problems, sizeof *c->problem, problem_order);
        s = problems_said(c);
    }
    c->problem = kept, c->problems = others;
    return s;
}

/* --- problems that others find */

/* "run.ini:7: model.n_head = 5", with the value and the place that hold. */
static const char *key_place(const struct tn_config *c, const char *key)
{
    const char *value = tn_config_text(c, key), *origin = tn_config_origin(c, key);

    if (!value)
        return tn_text(c->arena, "%s is not set", key);
    if (config_given(c, key))
        return tn_text(c->arena, "%s: %s = %.*s", origin, key, SHOWN, value);
    return tn_text(c->arena, "%s = %.*s (%s)", key, SHOWN, value, origin);
}

void tn_config_problem(struct tn_config *c, const char *key, const char *fmt, ...)
{
    const struct given *g = key ? config_given(c, key) : NULL;
    const char *text;
    va_list ap;

    va_start(ap, fmt);
    text = tn_text_list(c->arena, fmt, ap);
    va_end(ap);
    problem_add(c, g ? g->source : FROM_PRESET, g ? g->line : 0,
                key ? tn_text(c->arena, "%s: %s", key_place(c, key), text) : text);
}

tn_status tn_config_fail(const struct tn_config *c, const char *key, const char *fmt, ...)
{
    const char *text;
    va_list ap;

    va_start(ap, fmt);
    text = tn_text_list(c->arena, fmt, ap);
    va_end(ap);
    return tn_error_long(TN_ERR_CONFIG, tn_text(c->arena, "%s: %s", key_place(c, key), text));
}

void tn_config_excuse(struct tn_config *c, const char *section)
{
    c->excused = tn_alloc_grow(c->arena, c->excused, c->excuses, sizeof *c->excused);
    c->excused[c->excuses++] = tn_text(c->arena, "%s", section);
}
