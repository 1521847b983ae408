/* formula.h - the text of an update evaluated in double for one element, by a second reader of it.
 *
 * Nothing is shared with libcore/graph/expr.c: no simplification, no registers, no constants folded; a statement is
 * evaluated as it is read. So what the core makes of a text and what its words say can be compared. */
#ifndef TN_FORMULA_H
#define TN_FORMULA_H
#include <stdint.h>

#define FORMULA_NAMES 64
struct formula {
    char name[FORMULA_NAMES][40];
    double value[FORMULA_NAMES];
    uint32_t n;
    char error[200];                             /* what was not understood; "" all was */
};

/* Sets a name, or makes it. */
void formula_set(struct formula *f, const char *name, double value);
double formula_get(const struct formula *f, const char *name);         /* NaN if there is none */
/* All statements, in order. Returns whether they were understood. */
int formula_run(struct formula *f, const char *text);
#endif
