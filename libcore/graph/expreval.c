/* expreval.c - expressions in double: folding, the uniforms of a step, tests. Slow and exact. */
#include "graph/exprbuild.h"
#include <math.h>

double tn_expr_scalar(uint32_t op, double a, double b, double c)
{
    switch (op) {
    case TN_E_NEG:
        return -a;
    case TN_E_EXP:
        return exp(a);
    case TN_E_LOG:
        return log(a);
    case TN_E_SQRT:
        return sqrt(a);
    case TN_E_TANH:
        return tanh(a);
    case TN_E_ERF:
        return erf(a);
    case TN_E_ADD:
        return a + b;
    case TN_E_SUB:
        return a - b;
    case TN_E_MUL:
        return a * b;
    case TN_E_DIV:
        return a / b;
    case TN_E_MIN:
        return isnan(a) || isnan(b) ? NAN : b < a ? b : a;
    case TN_E_MAX:
        return isnan(a) || isnan(b) ? NAN : b > a ? b : a;
    case TN_E_POW:
        return pow(a, b);
    case TN_E_GE:
        return a >= b;
    case TN_E_SELECT:
        return a != 0 ? b : c;
    }
    return NAN;
}

/* input NULL: registers over inputs are NaN. */
static void evaluate(const struct tn_program *p, const double *input, const double *symbol, double *reg)
{
    for (uint32_t i = 0; i < p->n_instr; i++) {
        struct tn_instr x = p->instr[i];
        uint32_t n = tn_expr_arity(x.op);

        if (x.op == TN_E_IN)
            reg[i] = input ? input[x.a] : NAN;
        else if (x.op == TN_E_CONST)
            reg[i] = p->constant[x.a];
        else if (x.op == TN_E_UNIFORM)
            reg[i] = symbol[x.a];
        else
            reg[i] = tn_expr_scalar(x.op, reg[x.a], n > 1 ? reg[x.b] : 0, n > 2 ? reg[x.c] : 0);
    }
}

void tn_expr_uniforms(const struct tn_expr *e, const double *symbol, float *out)
{
    double reg[TN_EXPR_INSTR];

    if (!e->program.n_uniform)
        return;
    evaluate(&e->whole, NULL, symbol, reg);
    for (uint32_t i = 0; i < e->program.n_uniform; i++)
        out[i] = (float)reg[e->uniform[i]];
}

void tn_expr_eval(const struct tn_expr *e, const double *input, const double *symbol, double *result)
{
    double reg[TN_EXPR_INSTR];

    evaluate(&e->whole, input, symbol, reg);
    for (uint32_t i = 0; i < e->whole.n_result; i++)
        result[i] = reg[e->whole.result[i]];
}

uint32_t tn_expr_reads(const struct tn_expr *e)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < e->whole.n_instr; i++)
        if (e->whole.instr[i].op == TN_E_IN)
            mask |= 1u << e->whole.instr[i].a;
    return mask;
}
