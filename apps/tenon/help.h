/* help.h - texts made from the tables of commands and keys: for the terminal, and the manual page. */
#ifndef TENON_HELP_H
#define TENON_HELP_H
#include "commands.h"

struct tn_key;

void help_overview(FILE *f);                     /* usage and the list of commands */
void help_command_text(FILE *f, const struct command *c);
void help_keys(FILE *f, const char *section);    /* NULL: all sections */
void help_man(FILE *f);                          /* troff with the man macros */

/* "--steps K", and " (default 3)", " (default: that of the data)" or "". */
const char *help_option_form(const struct option *o, char *out, size_t bytes);
const char *help_key_default(const struct tn_key *key, char *out, size_t bytes);
#endif
