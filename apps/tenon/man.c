/* man.c - the manual page, from the same tables as the help, so that it cannot lag behind. */
#include "base/config.h"
#include "help.h"

/* Text in troff: nothing of it is a request or an escape. */
static void text(FILE *f, const char *s)
{
    for (const char *c = s; *c; c++) {
        if (*c == '\\')
            fputs("\\e", f);
        else if (*c == '-')
            fputs("\\-", f);
        else if ((*c == '.' || *c == '\'') && (c == s || c[-1] == '\n'))
            fprintf(f, "\\&%c", *c);
        else
            fputc(*c, f);
    }
}

static void bold(FILE *f, const char *s)
{
    fputs("\\fB", f);
    text(f, s);
    fputs("\\fR", f);
}

static void section(FILE *f, const char *name)
{
    fprintf(f, ".SH %s\n", name);
}

static void paragraph(FILE *f, const char *s)
{
    text(f, s);
    fputc('\n', f);
}

/* .TP: a term, then what it means. */
static void item(FILE *f, const char *term, const char *meaning)
{
    fputs(".TP\n", f);
    bold(f, term);
    fputc('\n', f);
    text(f, meaning);
    fputs(".\n", f);
}

static void command(FILE *f, const struct command *c)
{
    char form[128], meaning[512];

    fputs(".SS ", f);
    text(f, c->name);
    fputs("\n.B tenon ", f);
    text(f, c->name);
    fputs("\n", f);
    text(f, c->usage);
    fputs("\n.PP\n", f);
    text(f, c->help);
    fputs(".\n", f);
    if (c->detail)
        paragraph(f, c->detail);
    for (const struct option *o = c->options; o && o->name; o++) {
        snprintf(meaning, sizeof meaning, "%s%s%s%s", o->help, o->preset ? " (default " : "",
                 o->preset ? o->preset : "", o->preset ? ")" : "");
        item(f, help_option_form(o, form, sizeof form), meaning);
    }
}

static void keys(FILE *f, const struct tn_section *s)
{
    char range[256], preset[256], meaning[1024];

    fputs(".SS [", f);
    text(f, s->name);
    fputs("]\n", f);
    text(f, s->help);
    fputs(".\n", f);
    for (const struct tn_key *k = tn_keys; k->section; k++) {
        if (strcmp(k->section, s->name))
            continue;
        snprintf(meaning, sizeof meaning, "%s: %s (%s)", k->help, tn_key_range(k, range, sizeof range),
                 help_key_default(k, preset, sizeof preset));
        item(f, k->name, meaning);
    }
}

void help_man(FILE *f)
{
    fprintf(f, ".\\\" Written by tenon help --man.\n.TH TENON 1 \"\" \"tenon %s\" \"User Commands\"\n",
            TN_VERSION);
    section(f, "NAME");
    paragraph(f, "tenon - trains GPT models on one process or many");
    section(f, "SYNOPSIS");
    fputs(".B tenon\n.I COMMAND\n[\\fIARGUMENT\\fR ...]\n", f);
    section(f, "DESCRIPTION");
    paragraph(f, "Tenon trains GPT models. Devices, kernels, communicators, optimizers and parallel "
                 "strategies are plugins; a "
                 "configuration file says which ones, and what to train. The same program and file work on a "
                 "laptop and, "
                 "under mpirun, srun or torchrun, on a cluster.");
    section(f, "COMMANDS");
    for (size_t i = 0; commands[i]; i++)
        command(f, commands[i]);
    section(f, "CONFIGURATION");
    paragraph(f, "An INI file: [section] lines and key = value lines; a line that begins with ; or # is a "
                 "comment, and so is what "
                 "follows a blank and a ; behind a value. Unknown and repeated keys and values out of range "
                 "are errors, all of "
                 "them listed at once. An argument section.key=value overrides the file. Plugins add keys of "
                 "their own.");
    for (const struct tn_section *s = tn_sections; s->name; s++)
        keys(f, s);
    section(f, "ENVIRONMENT");
    item(f, "TENON_LOG", "What is shown on the error output: error, warning, info (the default) or debug");
    item(f, "TENON_PLUGIN_PATH", "Folders that are searched for plugins, separated by colons");
    section(f, "EXIT STATUS");
    item(f, "0", "Success");
    item(f, "1", "A failure while running");
    item(f, "2", "The command line, the configuration or an input file is at fault");
}
