/* text.h - what the writer (text.c) and the reader (textread.c) of graphs share. */
#ifndef TENON_GRAPH_TEXT_H
#define TENON_GRAPH_TEXT_H
#include "graph/op.h"

extern const char *const text_dtype[8];          /* by dtype; NULL: none */
extern const char *const text_phase[TN_PHASES];

int text_is_word_char(char c);                   /* may stand without quotes */
int text_is_number(const char *word);
/* Is this attribute of the operation a layout? */
int text_attr_is_layout(const struct tn_op *op, const char *key);
const char *text_of_type(struct tn_graph *g, struct tn_arena *arena,
                         const struct tn_value *v); /* f32[seq=32] {tp:P} */
#endif
