/* agree.c - all ranks say what they have, and rank 0 compares: see world.h.
 *
 * A rank's facts are one text, a line "name<tab>value" each. Rank 0 reads all and gives out the result, "" or
 * the differences, so that every rank ends with the same words, and rank 0 says them. */
#include <stdlib.h>
#include "base/arena.h"
#include "base/status.h"
#include "plugin/load.h"
#include "world/world_own.h"

#define MOST 20u /* differences that are listed */

static char *write_facts(struct tn_arena *a, const struct tn_fact *fact, uint32_t n)
{
    size_t room = 1, k = 0;
    char *text;

    for (uint32_t i = 0; i < n; i++)
        room += strlen(fact[i].name) + strlen(fact[i].value) + 2;
    text = tn_alloc(a, room);
    for (uint32_t i = 0; i < n; i++) {
        size_t start = k + strlen(fact[i].name) + 1;
        k += (size_t)sprintf(text + k, "%s\t%s\n", fact[i].name, fact[i].value);
        for (size_t j = start; j + 1 < k; j++) /* a value is one line */
            if (text[j] == '\n')
                text[j] = ' ';
    }
    return text;
}

/* One line after another; cuts the text. NULL at the end. */
static char *next_line(char **at, char **value)
{
    char *line = *at, *end = line ? strchr(line, '\n') : NULL, *tab = line ? strchr(line, '\t') : NULL;

    if (!end || !tab || tab > end)
        return NULL;
    *end = *tab = 0;
    *value = tab + 1;
    *at = end + 1;
    return line;
}

struct fact { /* of all ranks */
    const char *name;
    const char **value; /* by rank; NULL: it has no such fact */
    struct fact *next;
};

static struct fact *fact_of(struct tn_arena *a, struct fact **list, const char *name, uint32_t ranks)
{
    struct fact **f = list;

    while (*f && strcmp((*f)->name, name))
        f = &(*f)->next;
    if (!*f) {
        *f = tn_alloc(a, sizeof **f);
        (*f)->name = name;
        (*f)->value = tn_alloc(a, ranks * sizeof(char *));
    }
    return *f;
}

static int same(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

/* "rank 0 has x, ranks 1 and 3 have y" */
static const char *say_fact(struct tn_arena *a, const struct fact *f, uint32_t ranks)
{
    const char *text = tn_text(a, "%s:", f->name);
    uint32_t values = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        const char *who = "";
        uint32_t n = 0, first = 0;

        while (first < r && !same(f->value[first], f->value[r]))
            first++;
        if (first < r || values == 8)
            continue;
        for (uint32_t q = r; q < ranks; q++)
            if (same(f->value[q], f->value[r]) && ++n <= 6)
                who = tn_text(a, "%s%s %u", who, n > 1 ? "," : "", q);
        text = tn_text(a, "%s%s rank%s%s%s %s %s", text, values++ ? ";" : "", n > 1 ? "s" : "", who,
                       n > 6 ? ", ..." : "", n > 1 ? "have" : "has", f->value[r] ? f->value[r] : "nothing");
    }
    return text;
}

static const char *compare(struct tn_arena *a, const char *what, struct fact *list, uint32_t ranks)
{
    const char *text = "";
    uint32_t n = 0;

    for (struct fact *f = list; f; f = f->next) {
        uint32_t r = 1;
        while (r < ranks && same(f->value[r], f->value[0]))
            r++;
        if (r < ranks && n++ < MOST)
            text = tn_text(a, "%s\n  %s", text, say_fact(a, f, ranks));
    }
    if (n > MOST)
        text = tn_text(a, "%s\n  and %u more", text, n - MOST);
    return n ? tn_text(a, "the ranks differ in their %s:%s", what, text) : "";
}

/* Of each rank its lines, as they came. */
static const char *compare_texts(struct tn_arena *a, const char *what, const char **text, uint32_t ranks)
{
    struct fact *list = NULL;
    char *at, *name, *value;

    for (uint32_t r = 0; r < ranks; r++) {
        at = tn_text(a, "%s", text[r]);
        while ((name = next_line(&at, &value)))
            fact_of(a, &list, name, ranks)->value[r] = value;
    }
    return compare(a, what, list, ranks);
}

tn_status tn_world_agree(struct tn_world *w, const char *what, const struct tn_fact *fact, uint32_t n)
{
    struct tn_arena *a;
    const char **text, *result = "";
    tn_status s;

    if (!w || !w->own->client)
        return TN_OK;
    a = tn_arena_new();
    s = tn_world_collect(w, tn_text(a, "its %s", what), write_facts(a, fact, n), a, &text);
    if (s == TN_OK && !w->rank)
        result = compare_texts(a, what, text, w->size);
    if (s == TN_OK)
        s = tn_world_spread(w, tn_text(a, "whether they agree in their %s", what), result, a, &result);
    if (s == TN_OK && *result)
        s = tn_world_agreed(w, TN_ERR_CONFIG, result);
    tn_arena_free(a);
    return s;
}
