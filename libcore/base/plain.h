/* plain.h - text of others, made fit to be shown.
 *
 * What a plugin says, how a file is called: a terminal would obey what is in it, a document would not be one. */
#ifndef TN_BASE_PLAIN_H
#define TN_BASE_PLAIN_H
#include <stddef.h>

/* In place, byte by byte: control characters become spaces; those of Unicode, what turns the direction of text and what
 * is no UTF-8 become question marks. A newline stays if asked. */
void tn_plain(char *text, int newlines);
/* Would it change anything? */
int tn_is_plain(const char *text, int newlines);
/* The same for a field of `room` bytes that somebody else has filled: it ends at its last byte at the latest. */
void tn_plain_field(char *text, size_t room);
#endif
