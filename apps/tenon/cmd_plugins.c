/* cmd_plugins.c - tenon plugins: which plugins there are, in which state, and why one would be chosen.
 *
 * The list asks every sound file in a process of its own what it can do here, so a broken plugin costs a line
 * of the table and nothing else. --explain shows the same knowledge by choice (plugins_explain.c). */
#include <stdlib.h>

#include "base/config.h"
#include "base/status.h"
#include "options.h"
#include "plugins.h"

static tn_status ask_all(struct tn_registry *r, struct plugins_rows *out)
{
    tn_status s;

    *out = (struct plugins_rows){0};
    for (const struct tn_candidate *c = NULL; (c = tn_registry_each(r, c));)
        out->n++;
    out->row = calloc(out->n + 1, sizeof *out->row);
    if (!out->row)
        return tn_error(TN_ERR_MEMORY, "no memory for a list of %zu plugins", out->n);
    out->n = 0;
    for (const struct tn_candidate *c = NULL; (c = tn_registry_each(r, c));) {
        struct plugins_row *row = &out->row[out->n++];
        row->c = c;
        if ((s = tn_registry_ask(r, c, &row->p)) < 0)
            return s;
    }
    return TN_OK;
}

/* A sentence about a file, without the path that the line has already. */
const char *plugins_cause(const struct plugins_row *row)
{
    const char *why = row->p->why;
    size_t n = strlen(row->c->path);

    return !strncmp(why, row->c->path, n) && !strncmp(why + n, ": ", 2) ? why + n + 2 : why;
}

/* "tenon.device/1 tenon.kernels/1" -> "device, kernels" */
static void short_ids(const char *ids, char *out, size_t room)
{
    size_t k = 0;

    *out = 0;
    while (*ids && k + 1 < room) {
        size_t n = strcspn(ids, " ");
        size_t skip = !strncmp(ids, "tenon.", 6) ? 6 : 0,
               tail = n > 2 && !strncmp(ids + n - 2, "/1", 2) ? 2 : 0;
        if (n)
            k += (size_t)snprintf(out + k, room - k, "%s%.*s", k ? ", " : "", (int)(n - skip - tail),
                                  ids + skip);
        ids += n + (ids[n] == ' ');
    }
}

static const char *state(const struct plugins_row *row, char *out, size_t room)
{
    if (row->p->status < 0) {
        snprintf(out, room, "refused: %s", plugins_cause(row));
        return out;
    }
    for (uint32_t i = 0; i < row->p->offers; i++) {
        const struct tn_offer *o = &row->p->offer[i];
        if (!o->score) {
            snprintf(out, room, "not usable here: %s", *o->why ? o->why : "it gives no reason");
            return out;
        }
    }
    return "ready";
}

static int wider(int width, const char *text)
{
    int n = (int)strlen(text);

    return n > width ? n : width;
}

static void list(const struct plugins_rows *rows)
{
    static const char *const head[] = {"NAME", "VERSION", "PROVIDES", "FILE"};
    int width[4] = {4, 7, 8, 4};
    char ids[160], text[TN_WHY_SIZE + 32];

    for (size_t i = 0; i < rows->n; i++) {
        const struct tn_card *card = &rows->row[i].c->card;
        short_ids(card->note.provides, ids, sizeof ids);
        width[0] = wider(width[0], card->note.name);
        width[1] = wider(width[1], card->note.version);
        width[2] = wider(width[2], ids);
        width[3] = wider(width[3], rows->row[i].c->path);
    }
    printf("%-*s  %-*s  %-*s  %-*s  STATE\n", width[0], head[0], width[1], head[1], width[2], head[2],
           width[3], head[3]);
    for (size_t i = 0; i < rows->n; i++) {
        const struct tn_note *note = &rows->row[i].c->card.note;
        short_ids(note->provides, ids, sizeof ids);
        printf("%-*s  %-*s  %-*s  %-*s  %s\n", width[0], *note->name ? note->name : "-", width[1],
               *note->version ? note->version : "-", width[2], *ids ? ids : "-", width[3],
               rows->row[i].c->path, state(&rows->row[i], text, sizeof text));
    }
}

static tn_status show(struct tn_registry *r, struct tn_config *c, int explained)
{
    struct plugins_rows rows;
    tn_status s = ask_all(r, &rows);

    if (s >= 0 && explained)
        s = plugins_explain(r, c, &rows);
    else if (s >= 0)
        list(&rows);
    free(rows.row);
    return s;
}

/* Of the configuration only plugins.path matters, so what else may be wrong with it is not asked. */
static tn_status plugins(const struct options *o)
{
    struct tn_registry *r = NULL;
    struct tn_config *c;
    tn_status s = tn_config_open(o->file[0], o->settings, o->setting, &c);

    if (s < 0)
        return s;
    s = tn_config_unread(c);
    if (s >= 0)
        s = tn_registry_open(tn_config_text(c, "plugins.path"), &r);
    if (s >= 0)
        s = show(r, c, options_given(o, "explain"));
    tn_registry_close(r);
    tn_config_free(c);
    return s;
}

static int cmd_plugins(int argc, char **argv)
{
    struct options o;
    tn_status s = options_parse(&plugins_command, argc, argv, &o);

    if (s >= 0)
        s = plugins(&o);
    options_free(&o);
    return command_end(s);
}

static const struct option plugins_options[] = {
    {.name = "explain",
     .help = "Every candidate for every choice, with score and reason, and every refused file"},
    {0},
};

const struct command plugins_command = {
    .name = "plugins",
    .help = "Lists the plugins, what they provide and whether they work here",
    .usage = "[CFG] [plugins.path=DIR ...]",
    .detail = "Plugins are looked for in plugins.path, in TENON_PLUGIN_PATH, in ~/.local/lib/tenon/plugins "
              "and where "
              "tenon was installed, in this order. Each is loaded and asked in a process of its own, so a "
              "broken one "
              "is a line of the list. tenon plugins new KIND NAME writes a plugin to begin with, and tenon plugins check "
              "FILE.so proves one.",
    .options = plugins_options,
    .files_max = 1,
    .settings = 1,
    .run = cmd_plugins,
};
