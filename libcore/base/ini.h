/* ini.h - an INI file as a list of entries with their lines, and a list of everything that is wrong with it.
 *
 * The grammar: `[section]`, `key = value` or `key: value`, lines that begin with ; or # are comments, and so
 * is what follows a blank and a ; behind a value. Blanks around sections' brackets, keys and values do not
 * count; an indented key is a key. UTF-8 with or without a byte order mark; lines end with LF or CR LF.
 *
 * inih splits the lines. What it would pass over in silence is found here before: see ini.c. */
#ifndef TN_BASE_INI_H
#define TN_BASE_INI_H
#include <tenon/abi.h>

#include "base/arena.h"

#define TN_INI_LINE 198                          /* characters of a line, at most */
#define TN_INI_NAME 49                           /* characters of a section's name, at most */

struct tn_ini_entry {
    const char *section, *key, *value;           /* value may be "" */
    uint32_t line;
};
struct tn_ini_problem {
    uint32_t line;
    const char *text;                            /* a sentence without file and line */
};
struct tn_ini {
    struct tn_ini_entry *entry;
    struct tn_ini_entry *section;                /* the headers, in order: key and value NULL */
    struct tn_ini_problem *problem;              /* by line */
    size_t entries, sections, problems;
};

/* text: bytes, any. Always succeeds; what is wrong is in problem, what is right in entry. All of out lives in
 * the arena; text may go. Of a duplicate key the first is an entry, the others are problems. */
void tn_ini_parse(struct tn_arena *arena, const char *text, size_t bytes, struct tn_ini *out);

/* What keeps bytes from being a value (NULL: nothing): control characters, bytes that are not UTF-8. */
const char *tn_ini_bad_bytes(const char *text, size_t bytes);
#endif
