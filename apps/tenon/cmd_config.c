/* cmd_config.c - tenon config: the configuration that a run would have, and where each value comes from.
 *
 * What is printed is an INI file itself, so `tenon config run.ini > full.ini` keeps a run's whole
 * configuration whatever later versions have as defaults. Keys that are unset are comments that say what
 * holds instead. */
#include <tenon/optimizer.h>
#include <tenon/pass.h>

#include "base/config.h"
#include "base/status.h"
#include "mesh/mesh.h"
#include "options.h"
#include "plugin/registry.h"
#include "train/loop.h"

/* --- the options of the plugins that are named; none of their code runs but what loading runs */

/* NULL if the plugin is not to be had, which is then a problem of the configuration. */
static const void *table_of(struct tn_registry *r, struct tn_config *c, const char *key, const char *name,
                            const char *id)
{
    const void *table = NULL;
    char place[320];

    if (tn_config_is_set(c, key))
        snprintf(place, sizeof place, "%s: %s", tn_config_origin(c, key), key);
    else
        snprintf(place, sizeof place, "%s", key);
    if (tn_registry_get(r, place, name, id, &table) < 0) {
        tn_config_problem(c, NULL, "%s", tn_error_text());
        return NULL;
    }
    return table;
}

static tn_status optimizer_options(struct tn_registry *r, struct tn_config *c)
{
    const char *name = tn_config_text(c, "optimizer.name");
    const struct tn_optimizer *table = table_of(r, c, "optimizer.name", name, TN_OPTIMIZER_ID);

    if (table)
        return tn_config_add(c, "optimizer", table->options, name);
    tn_config_excuse(c, "optimizer");
    return TN_OK;
}

static tn_status strategy_options(struct tn_registry *r, struct tn_config *c, const char *axis)
{
    const struct tn_pass *table;
    int inside = tn_config_text(c, "parallel.shard_within") != NULL, inner = inside && !strcmp(axis, "ep");
    const char *name;
    char size[32], key[32];

    snprintf(size, sizeof size, "parallel.%s", axis);
    snprintf(key, sizeof key, "plugins.%s", axis);
    if (tn_config_int(c, size) <= 1 && !inner && (strcmp(axis, "dp") || tn_config_int(c, "parallel.ep") <= 1))
        return TN_OK;
    name = tn_config_text(c, key);
    if (!name && inner)
        name = "shard";
    if (!name)
        name = strcmp(axis, "dp") ? axis : tn_config_int(c, "parallel.zero") && !inside ? "shard" : "ddp";
    table = table_of(r, c, key, name, TN_PASS_ID);
    if (table)
        return tn_config_add(c, "parallel", table->options, name);
    tn_config_excuse(c, "parallel");
    return TN_OK;
}

static tn_status plugin_options(struct tn_config *c)
{
    struct tn_registry *r = NULL;
    tn_status s = tn_registry_open(tn_config_text(c, "plugins.path"), &r);

    if (s >= 0)
        s = optimizer_options(r, c);
    for (int axis = 0; s >= 0 && axis < TN_AXES; axis++)
        s = strategy_options(r, c, tn_axis_name[axis]);
    tn_registry_close(r);
    return s;
}

/* --- printing */

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
    s = plugin_options(c);
    if (s >= 0)
        s = tn_config_check(c);
    tn_run_folder(c); /* settles it */
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
    .detail = "What is printed is a configuration file itself. All that is wrong is listed at once, each "
              "with its place.",
    .files_max = 1,
    .settings = 1,
    .run = cmd_config,
};
