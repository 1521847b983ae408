/* expr.h - element-wise expressions: text in, a program of registers out.
 *
 * An expression is written as text ("v = mu*v + g; w = w - lr*v"), by models, optimizers and plugins. Here it
 * becomes a short program in SSA that is simplified, differentiated, composed and given to the kernels. There
 * are two programs. The *whole* one is over inputs (tensors), symbols (numbers that change from step to step,
 * like lr) and constants; all transformations work on it. The kernels' one is derived from it: each largest
 * part over symbols and constants alone is a TN_E_UNIFORM register, evaluated by the host once per step in
 * double.
 *
 * Invariants: an expr never changes once made and lives in the arena that it was made in; instructions are in
 * the order of their use from the results, without dead or double ones, so that equal texts give equal bytes;
 * program.text is canonical. Constants are folded in double. 0*x is never simplified: x may be NaN. */
#ifndef TN_GRAPH_EXPR_H
#define TN_GRAPH_EXPR_H
#include <tenon/kernels.h>
struct tn_arena;

#define TN_EXPR_INSTR 128u                       /* most instructions of the whole program */
#define TN_EXPR_INPUTS 32u                       /* sets of inputs are bits of uint32_t */
#define TN_EXPR_SYMBOLS 256u
#define TN_EXPR_RESULTS 32u

#define TN_EXPR_INPUT 0u                         /* a tensor, number index */
#define TN_EXPR_UNIFORM 1u                       /* changes from step to step: symbol number index */
#define TN_EXPR_VALUE 2u                         /* a constant: value */

struct tn_expr_name {
    const char *name;
    uint32_t kind, index;
    double value;
};

struct tn_expr {
    struct tn_program program;                   /* for the kernels; text over inputs a, b, …, z, a1, b1, … */
    uint32_t n_input;                            /* highest input declared or used + 1 */
    uint32_t n_symbol;                           /* highest symbol used + 1 */
    struct tn_program whole;                     /* with symbols: TN_E_UNIFORM's a is a symbol, its text calls
                                                    them s0, s1, …; two exprs are equal if their texts are */
    const uint16_t *uniform;                     /* private: register of whole behind each uniform */
};

/* Statements separated by ';'; a name that is assigned hides the earlier one. results: the names whose last
 * values are the results; NULL: the value of the last statement, which may be a bare expression. Operators
 * + - * / ^ and unary minus (as in mathematics: -x^2 is -(x^2), ^ binds to the right), numbers (1e-6, inf),
 * functions exp log sqrt tanh erf min max ge select, and gelu gelu_tanh silu relu sigmoid rsqrt square, which
 * become those. NULL after tn_error(TN_ERR, "… column N …"). */
const struct tn_expr *tn_expr_parse(struct tn_arena *m, const char *text, const struct tn_expr_name *names,
                                    uint32_t n_name, const char *const *results, uint32_t n_result);

/* The values of the kernels' uniforms, from the symbols. out: program.n_uniform */
void tn_expr_uniforms(const struct tn_expr *e, const double *symbol, float *out);

/* Do both compute the same of the same inputs and symbols? Equal texts do. */
int tn_expr_same(const struct tn_expr *a, const struct tn_expr *b);

/* All results in double; for tests and folding. */
void tn_expr_eval(const struct tn_expr *e, const double *input, const double *symbol, double *result);

/* May partial sums enter as the inputs of mask? 1 if every result is of degree exactly 1 in them together. */
int tn_expr_linear(const struct tn_expr *e, uint32_t mask);

/* dy * d result / d input, over the same inputs and one more, number n_input: dy. NULL, without an error, if it
 * is identically zero; NULL after tn_error if it is too long or has no room for dy. min and max: all to the one
 * chosen, ties to the first; relu' at 0 is 0. */
const struct tn_expr *tn_expr_grad(struct tn_arena *m, const struct tn_expr *e, uint32_t result,
                                   uint32_t input);

/* Which inputs does it read? Bit i. */
uint32_t tn_expr_reads(const struct tn_expr *e);

/* The same with input i renamed to map[i]. n_input: of the new one. */
const struct tn_expr *tn_expr_renumber(struct tn_arena *m, const struct tn_expr *e, const uint32_t *map,
                                       uint32_t n_input);

/* b after a: input `at` of b is result r of a. Inputs: a's, then b's others in their order. Results: b's, after
 * all of a's with keep. Symbols are the same in both. */
const struct tn_expr *tn_expr_compose(struct tn_arena *m, const struct tn_expr *a, uint32_t r,
                                      const struct tn_expr *b, uint32_t at, int keep);
#endif
