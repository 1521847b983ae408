/* options.h - the arguments of a command, checked against its description (commands.h).
 *
 *     struct options o;
 *     tn_status s = options_parse(&step_command, argc, argv, &o);
 *     ... options_int(&o, "steps"), o.file[0], o.settings ...
 *     options_free(&o);
 *
 * What is wrong is TN_ERR_CONFIG (exit status 2) with the argument, the form that was expected and the
 * nearest known name. --help is answered by main before a command runs. An option given twice: the last one
 * holds. */
#ifndef TENON_OPTIONS_H
#define TENON_OPTIONS_H
#include "commands.h"

struct options {
    const struct command *command;
    const char **value;                          /* one for each of command->options; NULL: not given */
    char **file;                                 /* files of them, then NULL: positional arguments */
    char **setting;                              /* settings of them: section.key=value */
    int files, settings;
};

tn_status options_parse(const struct command *command, int argc, char **argv, struct options *out);
void options_free(struct options *o);            /* after a failed parse too */

/* name is one of the command's options, else the program ends: a mistake of the program. */
int options_given(const struct options *o, const char *name); /* flags, and was it said at all? */
const char *options_text(const struct options *o, const char *name);         /* preset, or NULL */
int64_t options_int(const struct options *o, const char *name);              /* 0 without a preset */
double options_float(const struct options *o, const char *name);
#endif
