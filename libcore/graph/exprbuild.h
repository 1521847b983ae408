/* exprbuild.h - making an expression instruction by instruction. Private to graph/expr*.c.
 *
 * A build is on its maker's stack. emit simplifies and finds equal instructions again; finish drops what no
 * result needs, brings the rest into canonical order, splits off the uniform part and writes the text. That it
 * ran full is remembered and reported by finish, so makers have no error paths. */
#ifndef TN_GRAPH_EXPRBUILD_H
#define TN_GRAPH_EXPRBUILD_H
#include "graph/expr.h"

#define TN_EXPR_WORK 1024u                       /* dead and intermediate instructions included */

struct tn_expr_build {
    uint32_t n, n_constant, n_result;
    int full;
    struct tn_instr instr[TN_EXPR_WORK];
    double constant[TN_EXPR_WORK];
    uint16_t result[TN_EXPR_RESULTS];
};

void tn_expr_start(struct tn_expr_build *s);

/* Each returns a register. b and c are 0 where op has no such operand. */
uint32_t tn_expr_emit(struct tn_expr_build *s, uint32_t op, uint32_t a, uint32_t b, uint32_t c);
uint32_t tn_expr_number(struct tn_expr_build *s, double x);
void tn_expr_result(struct tn_expr_build *s, uint32_t reg);

/* Appends the whole program of e; input i becomes register in[i]. reg: where each instruction went. */
void tn_expr_append(struct tn_expr_build *s, const struct tn_expr *e, const uint32_t *in, uint32_t *reg);

/* NULL after tn_error if it is too long. */
const struct tn_expr *tn_expr_finish(struct tn_arena *m, const struct tn_expr_build *s, uint32_t n_input);

/* 0 to 3 operands that are registers. */
uint32_t tn_expr_arity(uint32_t op);

/* Is register r of p that number? */
int tn_expr_is(const struct tn_instr *instr, const double *constant, uint32_t r, double x);

/* One instruction in double. */
double tn_expr_scalar(uint32_t op, double a, double b, double c);

/* Canonical text of p, its uniforms called u0, u1, … where letter is 'u'. */
char *tn_expr_text(struct tn_arena *m, const struct tn_program *p, char letter);
#endif
