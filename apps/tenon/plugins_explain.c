/* plugins_explain.c - tenon plugins --explain: why one would be chosen.
 *
 * Every candidate with score and reason, in the order in which an automatic choice would take them, then every file that
 * was refused. Processes of one run may be on hosts that differ, in files, CPUs or GPUs: under a launcher each rank
 * makes this text, rank 0 prints its own, and of each other rank the lines that are not in it. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/plain.h"
#include "base/status.h"
#include "plugins.h"
#include "ranks.h"
#include "world/world.h"

static void explain_places(FILE *f, const struct tn_registry *r)
{
    fprintf(f, "Searched, the first place first:\n");
    for (const struct tn_place_searched *p = tn_registry_places(r); p; p = p->next)
        fprintf(f, "  %-18s %s%s%s%s\n", p->said_by, p->directory, p->problem ? " (" : "",
               p->problem ? p->problem : "", p->problem ? ")" : "");
}

struct offered {
    const struct plugins_row *row;
    const struct tn_offer *offer;
};

static int by_rank(const void *a, const void *b)
{
    const struct offered *x = a, *y = b;

    return tn_registry_order(x->offer->score, x->row->c->card.note.name, y->offer->score, y->row->c->card.note.name);
}

static void print_offer(FILE *f, const struct tn_interface_type *type, const struct offered *x)
{
    const char *name = x->row->c->card.note.name;
    const struct tn_offer *o = x->offer;

    if (!type->probe)
        fprintf(f, "  %-14s %s\n", name, x->row->p->about);
    else
        fprintf(f, "  %-14s %5u  %-10s %s%s\n", name, o->score, o->kinds,
               o->score ? "" : "not usable: ", *o->why ? o->why : "no reason given");
}

/* Candidates for one interface: usable ones first, as an automatic choice takes them. */
static tn_status explain_choice(FILE *f, const struct tn_interface_type *type, const struct plugins_rows *rows)
{
    struct offered *list = calloc(rows->n + 1, sizeof *list);
    size_t n = 0;

    if (!list)
        return tn_error(TN_ERR_MEMORY, "no memory for a list of %zu plugins", rows->n);
    for (size_t i = 0; i < rows->n; i++) {
        const struct tn_offer *o =
            rows->row[i].p->status < 0 ? NULL : tn_probe_offer(rows->row[i].p, type->id);
        if (o)
            list[n++] = (struct offered){&rows->row[i], o};
    }
    qsort(list, n, sizeof *list, by_rank);
    fprintf(f, "\n%s, %s:\n", type->id, type->probe ? "by score unless named" : "by name");
    if (n && type->probe)
        fprintf(f, "  %-14s %5s  %-10s REASON\n", "NAME", "SCORE", type->kind || type->kinds ? "DEVICE" : "");
    for (size_t i = 0; i < n; i++)
        print_offer(f, type, &list[i]);
    if (!n)
        fprintf(f, "  none\n");
    free(list);
    return TN_OK;
}

static void explain_refused(FILE *f, const struct plugins_rows *rows)
{
    size_t n = 0;

    for (size_t i = 0; i < rows->n; i++)
        if (rows->row[i].p->status < 0)
            fprintf(f, "%s  %s\n    %s\n", n++ ? "" : "\nRefused:\n", rows->row[i].c->path, plugins_cause(&rows->row[i]));
    if (!n)
        fprintf(f, "\nNo file was refused.\n");
}

static tn_status explain(FILE *f, const struct tn_registry *r, const struct plugins_rows *rows)
{
    explain_places(f, r);
    for (const struct tn_interface_type *t = tn_interface_types; t->id; t++) {
        tn_status s = t->kind && !t->probe ? TN_OK : explain_choice(f, t, rows);    /* an ability of a device is no choice */
        if (s < 0)
            return s;
    }
    explain_refused(f, rows);
    return TN_OK;
}

/* --- ranks */

static int has_line(const char *text, const char *line, size_t n)
{
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
        if (strcspn(p, "\n") == n && !memcmp(p, line, n))
            return 1;
    return 0;
}

/* The lines of text that first lacks, below its rank's name; how many. */
static int print_difference(const char *first, const char *text, const char *name)
{
    int n = 0;

    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t k = strcspn(p, "\n");

        if (!k || has_line(first, p, k))
            continue;
        if (!n++)
            printf("\nOn %s it is otherwise:\n", name);
        printf("%.*s\n", (int)k, p);
    }
    return n;
}

static void print_all(const struct tn_world *w, const char *const *text)
{
    uint32_t alike = 0;
    char name[200];

    printf("%s:\n\n%s", tn_world_name(w, 0, name, sizeof name), text[0]);
    for (uint32_t r = 1; r < w->size; r++)
        alike += !print_difference(text[0], text[r], tn_world_name(w, r, name, sizeof name));
    if (alike)
        printf("\n%u other rank%s: the same.\n", alike, alike == 1 ? "" : "s");
}

static tn_status explain_world(struct tn_registry *r, struct tn_config *c, const char *mine)
{
    struct tn_arena *a = tn_arena_new();
    struct tn_world *w = NULL;
    const char **text = NULL;
    tn_status s = tn_world_find(r, c, NULL, &w);

    if (s == TN_OK)
        s = tn_world_greet(w);
    if (s == TN_OK && w->size > 1 && w->bootstrap)
        s = tn_world_collect(w, "its plugins", mine, a, &text);
    if (s == TN_OK && !w->rank) {
        if (text)
            print_all(w, text);
        else
            fputs(mine, stdout);
    }
    tn_world_close(w);
    tn_arena_free(a);
    return s;
}

tn_status plugins_explain(struct tn_registry *r, struct tn_config *c, const struct plugins_rows *rows)
{
    char *mine = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&mine, &bytes);
    int launched = 0;
    tn_status s = f ? explain(f, r, rows) : tn_error(TN_ERR_MEMORY, "no memory for a list of plugins");

    if (f && fclose(f) && s == TN_OK)
        s = tn_error(TN_ERR_MEMORY, "no memory for a list of plugins");
    if (s == TN_OK) {
        tn_plain(mine, 1);                       /* folders are called what somebody calls them */
        s = ranks_launched(c, &launched);
    }
    if (s == TN_OK && launched)
        s = explain_world(r, c, mine);
    else if (s == TN_OK)
        fputs(mine, stdout);
    free(mine);
    return s;
}
