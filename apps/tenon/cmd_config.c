/* cmd_config.c - tenon config: the configuration that a run would have, and where each value comes from.
 *
 * What is printed is an INI file itself, so `tenon config run.ini > full.ini` keeps a run's whole configuration
 * whatever later versions have as defaults. Keys that are unset are comments that say what holds instead. */
#include "base/config.h"
#include "options.h"

static void print_key(const struct tn_config_entry *e)
{
    if (!e->value)
        printf("; %s is not set: %s\n", e->key->name, e->key->otherwise);
    else
        printf("%s = %s ; %s\n", e->key->name, e->value, e->origin);
}

/* Section by section, since the keys of plugins come last. */
static void print_all(const struct tn_config *c)
{
    struct tn_config_entry e;

    for (const struct tn_section *s = tn_sections; s->name; s++) {
        printf("%s[%s]\n", s == tn_sections ? "" : "\n", s->name);
        for (size_t i = 0; tn_config_at(c, i, &e); i++)
            if (!strcmp(e.key->section, s->name))
                print_key(&e);
    }
}

static tn_status config(const struct options *o)
{
    struct tn_config *c;
    tn_status s = tn_config_open(o->file[0], o->settings, o->setting, &c);

    if (s < 0)
        return s;
    s = tn_config_check(c);
    if (s >= 0)
        print_all(c);
    tn_config_free(c);
    return s;
}

static int cmd_config(int argc, char **argv)
{
    struct options o;
    tn_status s = options_parse(&config_command, argc, argv, &o);

    if (s >= 0)
        s = config(&o);
    options_free(&o);
    return command_end(s);
}

const struct command config_command = {
    .name = "config",
    .help = "Prints the resolved configuration, and where each value comes from",
    .usage = "[CFG] [section.key=value ...]",
    .detail = "What is printed is a configuration file itself. All that is wrong is listed at once, each with its place.",
    .files_max = 1,
    .settings = 1,
    .run = cmd_config,
};
