/* value.h - texts as values: what a number, a flag, a choice looks like, and what is wrong with one that is
 * not.
 *
 * Stricter than strtod: no blanks, no hexadecimal, no nan or inf, nothing behind the number, no overflow, and
 * no underflow of something to nothing. The same for every locale. */
#ifndef TN_BASE_VALUE_H
#define TN_BASE_VALUE_H
#include "base/config.h"

/* 1 if the text is one, and then its value. */
int tn_value_int(const char *text, int64_t *out);
int tn_value_float(const char *text, double *out);
int tn_value_flag(const char *text, int *out);

/* Is text a value of key? Else 0, and why it is not, such as "expected 0 to 1, found 2". why may be NULL. */
int tn_value_fits(const struct tn_key *key, const char *text, char *why, size_t bytes);

/* Calls each for every word of "a|b|c" or of "a, b, c", without blanks around; stops and returns 1 if it
 * does. */
int tn_value_words(const char *text, char separator, int (*each)(void *arg, const char *word, size_t bytes),
                   void *arg);
#endif
