/* options.c - arguments into options, files and settings.
 *
 * An argument that begins with two dashes is an option; one with a = whose left side looks like a key is a
 * setting, if the command takes settings; all others are files. After "--" all are files. Settings are not
 * judged here: the configuration does it, with all else that is wrong in it. */
#include "options.h"

#include <math.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/near.h"
#include "base/value.h"

static const struct option none[] = {{0}};

static const struct option *table(const struct command *c)
{
    return c->options ? c->options : none;
}

/* --- errors */

/* The setting that --name may have meant: "--lr" is optimizer.lr. NULL if there is none near. */
static const char *setting_near(const char *name)
{
    struct tn_config *c;
    static char near[128];
    const char *found;

    if (tn_config_open(NULL, 0, NULL, &c) < 0)
        return NULL;
    found = tn_config_has(c, name) ? name : tn_config_nearest(c, name);
    snprintf(near, sizeof near, "%s", found ? found : "");
    tn_config_free(c);
    return *near ? near : NULL;
}

static tn_status unknown_option(const struct command *c, const char *argument)
{
    const char *name = argument + strspn(argument, "-"), *equals = strchr(name, '=');
    char word[64], mean[256] = "";
    struct tn_near near = {.word = word};

    snprintf(word, sizeof word, "%.*s", equals ? (int)(equals - name) : 63, name);
    for (const struct option *o = table(c); o->name; o++)
        tn_near_try(&near, o->name);
    tn_near_try(&near, "help");
    if (near.best)
        snprintf(mean, sizeof mean, "; did you mean --%s?", near.best);
    else if (c->settings && setting_near(word))
        snprintf(mean, sizeof mean, "; settings are given as section.key=value: did you mean %s=%.60s?",
                 setting_near(word), equals && equals[1] ? equals + 1 : "VALUE");
    else
        snprintf(mean, sizeof mean, "; tenon %s --help lists what there is", c->name);
    return tn_error(TN_ERR_CONFIG, "%s: unknown option %.120s%s", c->name, argument, mean);
}

/* --- values */

/* The option as a key of the configuration, to be checked by the same rules. */
static struct tn_key option_key(const struct option *o)
{
    struct tn_key key = {.section = "",
                         .name = o->name,
                         .type = o->type ? o->type : TN_KEY_TEXT,
                         .choices = o->choices,
                         .low = o->low,
                         .high = o->high};

    if (o->low == 0 && o->high == 0)
        key.low = -INFINITY, key.high = INFINITY;
    return key;
}

static tn_status value_set(struct options *out, const struct option *o, const char *value)
{
    struct tn_key key = option_key(o);
    char why[320];

    if (key.type != TN_KEY_TEXT && !tn_value_fits(&key, value, why, sizeof why))
        return tn_error(TN_ERR_CONFIG, "%s: --%s %s: %s", out->command->name, o->name,
                        *value ? value : "is empty", why);
    out->value[o - table(out->command)] = value;
    return TN_OK;
}

/* argv[*at] begins with two dashes. */
static tn_status option_take(struct options *out, int argc, char **argv, int *at)
{
    const char *name = argv[*at] + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);

    for (const struct option *o = table(out->command); o->name; o++) {
        if (strlen(o->name) != n || strncmp(o->name, name, n))
            continue;
        if (!o->value && equals)
            return tn_error(TN_ERR_CONFIG, "%s: --%s takes no value, found %.120s", out->command->name,
                            o->name, argv[*at]);
        if (!o->value) {
            out->value[o - table(out->command)] = "yes";
            return TN_OK;
        }
        if (equals)
            return value_set(out, o, equals + 1);
        if (*at + 1 >= argc || !strncmp(argv[*at + 1], "--", 2))
            return tn_error(TN_ERR_CONFIG, "%s: --%s needs a value: --%s %s", out->command->name, o->name,
                            o->name, o->value);
        return value_set(out, o, argv[++*at]);
    }
    return unknown_option(out->command, argv[*at]);
}

/* "section.key=value", or near enough that no file is meant. */
static int looks_like_setting(const char *argument)
{
    const char *equals = strchr(argument, '=');

    return equals && !memchr(argument, '/', (size_t)(equals - argument));
}

static tn_status files_check(const struct options *out)
{
    const struct command *c = out->command;

    if ((uint32_t)out->files > c->files_max)
        return tn_error(TN_ERR_CONFIG, "%s: one argument too many: %.200s; usage: tenon %s %s", c->name,
                        out->file[c->files_max], c->name, c->usage);
    if ((uint32_t)out->files < c->files_min)
        return tn_error(TN_ERR_CONFIG, "%s: an argument is missing; usage: tenon %s %s", c->name, c->name,
                        c->usage);
    return TN_OK;
}

tn_status options_parse(const struct command *command, int argc, char **argv, struct options *out)
{
    size_t n = 0;
    int plain = 0;
    tn_status s = TN_OK;

    while (table(command)[n].name)
        n++;
    *out = (struct options){.command = command};
    out->value = calloc(n + 1, sizeof *out->value);
    out->file = calloc((size_t)argc + 1, sizeof *out->file);
    out->setting = calloc((size_t)argc + 1, sizeof *out->setting);
    if (!out->value || !out->file || !out->setting)
        return tn_error(TN_ERR_MEMORY, "no memory for %d arguments", argc);
    for (int i = 1; s >= 0 && i < argc; i++) {
        if (!plain && !strcmp(argv[i], "--"))
            plain = 1;
        else if (!plain && !strncmp(argv[i], "--", 2))
            s = option_take(out, argc, argv, &i);
        else if (!plain && argv[i][0] == '-' && argv[i][1])
            s = unknown_option(command, argv[i]);
        else if (!plain && command->settings && looks_like_setting(argv[i]))
            out->setting[out->settings++] = argv[i];
        else
            out->file[out->files++] = argv[i];
    }
    return s < 0 ? s : files_check(out);
}

void options_free(struct options *o)
{
    free(o->value);
    free(o->file);
    free(o->setting);
    *o = (struct options){0};
}

/* --- reading */
static size_t option_index(const struct options *o, const char *name)
{
    for (const struct option *t = table(o->command); t->name; t++)
        if (!strcmp(t->name, name))
            return (size_t)(t - table(o->command));
    fprintf(stderr, "tenon: a mistake in this program: %s has no option --%s\n", o->command->name, name);
    abort();
}

int options_given(const struct options *o, const char *name)
{
    return o->value[option_index(o, name)] != NULL;
}

const char *options_text(const struct options *o, const char *name)
{
    size_t i = option_index(o, name);

    return o->value[i] ? o->value[i] : table(o->command)[i].preset;
}

int64_t options_int(const struct options *o, const char *name)
{
    const char *text = options_text(o, name);
    int64_t value = 0;

    return text && tn_value_int(text, &value) ? value : 0;
}

double options_float(const struct options *o, const char *name)
{
    const char *text = options_text(o, name);
    double value = 0;

    return text && tn_value_float(text, &value) ? value : 0;
}
