/* exprjoin.c - expressions from expressions: other input numbers, one after the other. */
#include "graph/exprbuild.h"

static int too_many(uint32_t n_input)
{
    if (n_input <= TN_EXPR_INPUTS)
        return 0;
    tn_error(TN_ERR, "expression with %u inputs; there can be %u: make it two", n_input, TN_EXPR_INPUTS);
    return 1;
}

static void add_results(struct tn_expr_build *s, const struct tn_expr *e, const uint32_t *reg)
{
    for (uint32_t i = 0; i < e->whole.n_result; i++)
        tn_expr_result(s, reg[e->whole.result[i]]);
}

const struct tn_expr *tn_expr_renumber(struct tn_arena *m, const struct tn_expr *e, const uint32_t *map,
                                       uint32_t n_input)
{
    struct tn_expr_build s;
    uint32_t in[TN_EXPR_INPUTS], reg[TN_EXPR_INSTR], reads = tn_expr_reads(e);

    if (too_many(n_input))
        return NULL;
    tn_expr_start(&s);
    for (uint32_t i = 0; i < e->n_input; i++) {
        if (!(reads >> i & 1))
            continue;
        if (map[i] >= n_input) {
            tn_error(TN_ERR, "expression: input %u renamed to %u, of %u", i, map[i], n_input);
            return NULL;
        }
        in[i] = tn_expr_emit(&s, TN_E_IN, map[i], 0, 0);
    }
    tn_expr_append(&s, e, in, reg);
    add_results(&s, e, reg);
    return tn_expr_finish(m, &s, n_input);
}

const struct tn_expr *tn_expr_compose(struct tn_arena *m, const struct tn_expr *a, uint32_t r,
                                      const struct tn_expr *b, uint32_t at, int keep)
{
    struct tn_expr_build s;
    uint32_t in[TN_EXPR_INPUTS], reg[TN_EXPR_INSTR], n_input = a->n_input;

    if (r >= a->whole.n_result || at >= b->n_input) {
        tn_error(TN_ERR, "expression: no result %u of %u or no input %u of %u to compose", r,
                 a->whole.n_result, at, b->n_input);
        return NULL;
    }
    if (too_many(a->n_input + b->n_input - 1))
        return NULL;
    tn_expr_start(&s);
    for (uint32_t i = 0; i < a->n_input; i++)
        in[i] = tn_expr_emit(&s, TN_E_IN, i, 0, 0);
    tn_expr_append(&s, a, in, reg);
    if (keep)
        add_results(&s, a, reg);
    for (uint32_t i = 0, middle = reg[a->whole.result[r]]; i < b->n_input; i++)
        in[i] = i == at ? middle : tn_expr_emit(&s, TN_E_IN, n_input++, 0, 0);
    tn_expr_append(&s, b, in, reg);
    add_results(&s, b, reg);
    return tn_expr_finish(m, &s, n_input);
}

int tn_expr_same(const struct tn_expr *a, const struct tn_expr *b)
{
    const struct tn_program *x = &a->whole, *y = &b->whole;

    return x->n_instr == y->n_instr && x->n_constant == y->n_constant && x->n_result == y->n_result
           && !memcmp(x->instr, y->instr, x->n_instr * sizeof *x->instr)
           && !memcmp(x->result, y->result, x->n_result * sizeof *x->result)
           && (!x->n_constant || !memcmp(x->constant, y->constant, x->n_constant * sizeof *x->constant));
}
