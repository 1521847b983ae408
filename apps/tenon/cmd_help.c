/* cmd_help.c - tenon help: what the tables of commands and keys say. */
#include "base/config.h"
#include "base/near.h"
#include "help.h"
#include "options.h"

static tn_status keys(const char *section)
{
    struct tn_near near = {.word = section};
    int known = !section;

    for (const struct tn_section *s = tn_sections; section && s->name; s++) {
        known |= !strcmp(s->name, section);
        tn_near_try(&near, s->name);
    }
    if (!known)
        return tn_error(TN_ERR_CONFIG, "help keys: there is no section %.60s%s%s%s", section,
                        near.best ? "; did you mean " : "", near.best ? near.best : "", near.best ? "?" : "");
    help_keys(stdout, section);
    return TN_OK;
}

/* What is no command may be a section, or a key. */
static tn_status unknown(const char *word)
{
    struct tn_config *c = NULL;
    tn_status s = TN_OK;

    for (const struct tn_section *t = tn_sections; t->name; t++)
        if (!strcmp(t->name, word))
            return tn_error(
                TN_ERR_CONFIG,
                "help %.100s: it is no command, but a section of the configuration: tenon help keys %s", word,
                t->name);
    if (tn_config_open(NULL, 0, NULL, &c) >= 0) {
        const char *key = tn_config_has(c, word) ? word
                          : strchr(word, '.')    ? tn_config_nearest(c, word)
                                                 : NULL;
        if (key)
            s = tn_error(TN_ERR_CONFIG,
                         "help %.100s: it is no command; the key %s is explained by tenon help keys %.*s",
                         word, key, (int)strcspn(key, "."), key);
    }
    tn_config_free(c);
    return s < 0 ? s : command_unknown(word);
}

/* A command of two words, or NULL. */
static const struct command *pair_find(const char *first, const char *second)
{
    char both[80];

    snprintf(both, sizeof both, "%.30s %.40s", first, second);
    return command_find(both);
}

static tn_status help(const struct options *o)
{
    if (options_given(o, "man"))
        help_man(stdout);
    else if (!o->files)
        help_overview(stdout);
    else if (!strcmp(o->file[0], "keys"))
        return keys(o->file[1]);
    else if (o->file[1] && pair_find(o->file[0], o->file[1]))
        help_command_text(stdout, pair_find(o->file[0], o->file[1]));
    else if (!command_find(o->file[0]))
        return unknown(o->file[0]);
    else
        help_command_text(stdout, command_find(o->file[0]));
    return TN_OK;
}

static int cmd_help(int argc, char **argv)
{
    struct options o;
    tn_status s = options_parse(&help_command, argc, argv, &o);

    if (s >= 0)
        s = help(&o);
    options_free(&o);
    return command_end(s);
}

static const struct option options[] = {
    {.name = "man", .help = "Write the whole manual page, in troff"},
    {0},
};

const struct command help_command = {
    .name = "help",
    .help = "Explains a command, or lists the keys of the configuration",
    .usage = "[COMMAND | keys [SECTION]] [--man]",
    .options = options,
    .files_max = 2,
    .run = cmd_help,
};
