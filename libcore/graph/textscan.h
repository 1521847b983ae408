/* textscan.h - what the files that read a graph's text share: textscan.c (words), textsource.c (sources), textread.c. */
#ifndef TENON_GRAPH_TEXTSCAN_H
#define TENON_GRAPH_TEXTSCAN_H
#include "graph/internal.h"
#include "graph/text.h"

struct reader {
    const char *at, *line;                       /* now; beginning of the line */
    uint32_t number;                             /* of the line */
    int failed;
    struct tn_arena *arena;
    struct tn_graph *g;                          /* NULL until the line "mesh" */
    struct tn_value **value;                     /* by number; room for as many as the text can define */
    size_t room;
    uint32_t section;                            /* phase, 0 before the first */
};

struct stated {                                  /* what a line says of a value */
    size_t number;
    uint32_t dtype, rank;
    const char *dim[TN_MAX_RANK];
    int64_t size[TN_MAX_RANK];
    tn_layout layout[TN_AXES];
    const char *at;                              /* where it says so */
};

/* The first error stays. */
__attribute__((format(printf, 3, 4))) void scan_fail_at(struct reader *r, const char *at, const char *fmt, ...);
#define scan_fail(r, ...) scan_fail_at(r, (r)->at, __VA_ARGS__)
/* The graph's own error, if there is one, as that of this place; 1 after any error. */
int scan_graph_failed(struct reader *r, const char *at);

void scan_space(struct reader *r);
int scan_line_ends(struct reader *r);
int scan_accept(struct reader *r, const char *text);                 /* is this the next thing? Then it is passed */
int scan_expect(struct reader *r, const char *text);                 /* 0 after any error */
const char *scan_word(struct reader *r, const char *what);           /* with or without quotes; "" after an error */
int64_t scan_integer(struct reader *r, int64_t low, int64_t high, const char *what);
double scan_real(struct reader *r, const char *what);
struct tn_value *scan_use(struct reader *r);                         /* %N, defined above; NULL after an error */
size_t scan_define(struct reader *r);                                /* %N, not yet defined */
tn_layout scan_layout(struct reader *r);
void scan_type(struct reader *r, struct stated *s);                  /* f32[batch=4 seq=32] {tp:S(seq)} */

/* The rest of a line, after its first word. */
void scan_param(struct reader *r);
void scan_input(struct reader *r);
void scan_positions(struct reader *r);
void scan_state(struct reader *r);
void scan_cache(struct reader *r);
#endif
