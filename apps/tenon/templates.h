/* templates.h - the files of templates/, as text in the program; templates.awk writes the table when it is built. */
#ifndef TENON_TEMPLATES_H
#define TENON_TEMPLATES_H

struct template_file {
    const char *name;                            /* "Makefile", "optimizer/plugin.c" */
    const char *const *line;                     /* each with its newline; ends with NULL */
};
extern const struct template_file template_files[];          /* ends with a NULL name */
#endif
