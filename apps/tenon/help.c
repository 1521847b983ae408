/* help.c - the help on the terminal. */
#include "help.h"

#include "base/config.h"
#include "options.h"

#define WIDTH 100

/* Words of text from column `indent` on, broken at WIDTH; the first line is already there up to `at`. */
static void wrapped(FILE *f, const char *text, int at, int indent)
{
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at > indent && at + 1 + n > WIDTH) {
            fprintf(f, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', f);
            at++;
        }
        fprintf(f, "%.*s", n, text);
        at += n;
        text += n + strspn(text + n, " ");
    }
    fputc('\n', f);
}

/* A term and what it means, the meanings in one column. */
static void line(FILE *f, const char *term, int column, const char *meaning)
{
    int at = fprintf(f, "  %s", term);

    if (at + 2 > column) {
        fputc('\n', f);
        at = 0;
    }
    fprintf(f, "%*s", column - at, "");
    wrapped(f, meaning, column, column);
}

const char *help_option_form(const struct option *o, char *out, size_t bytes)
{
    snprintf(out, bytes, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    return out;
}

const char *help_key_default(const struct tn_key *key, char *out, size_t bytes)
{
    if (key->preset)
        snprintf(out, bytes, "default %s", key->preset);
    else
        snprintf(out, bytes, "default: %s", key->otherwise);
    return out;
}

void help_overview(FILE *f)
{
    fprintf(
        f,
        "usage: tenon COMMAND [ARGUMENT ...]\n\nTrains GPT models on one process or many. The commands:\n\n");
    for (size_t i = 0; commands[i]; i++)
        line(f, commands[i]->name, 12, commands[i]->help);
    fprintf(f, "\ntenon COMMAND --help, or tenon help COMMAND, says more about a command; tenon help keys "
               "lists all keys of\n"
               "the configuration; tenon --version prints the version.\n");
}

void help_command_text(FILE *f, const struct command *c)
{
    char form[128], meaning[512];

    fprintf(f, "usage: tenon %s %s\n\n", c->name, c->usage);
    wrapped(f, c->help, 0, 0);
    if (c->detail) {
        fputc('\n', f);
        wrapped(f, c->detail, 0, 0);
    }
    fprintf(f, "\nOptions:\n\n");
    for (const struct option *o = c->options; o && o->name; o++) {
        snprintf(meaning, sizeof meaning, "%s%s%s%s", o->help, o->preset ? " (default " : "",
                 o->preset ? o->preset : "", o->preset ? ")" : "");
        line(f, help_option_form(o, form, sizeof form), 26, meaning);
    }
    line(f, "--help", 26, "this text");
    if (c->settings)
        fprintf(f, "\nA setting, section.key=value, overrides the configuration file; tenon help keys lists "
                   "the keys.\n");
}

void help_keys(FILE *f, const char *section)
{
    char range[256], preset[256], meaning[1024];

    for (const struct tn_section *s = tn_sections; s->name; s++) {
        if (section && strcmp(s->name, section))
            continue;
        fprintf(f, "%s[%s] %s\n\n", section || s == tn_sections ? "" : "\n", s->name, s->help);
        for (const struct tn_key *k = tn_keys; k->section; k++) {
            if (strcmp(k->section, s->name))
                continue;
            snprintf(meaning, sizeof meaning, "%s: %s (%s)", k->help, tn_key_range(k, range, sizeof range),
                     help_key_default(k, preset, sizeof preset));
            line(f, k->name, 20, meaning);
        }
    }
}
