/* program.c - the interpreter of element-wise programs.
 *
 * Works on TN_REF_LANES elements at a time: each instruction is one short loop from registers to a register,
 * so decoding is paid once for all of them. Registers are doubles: an expression is rounded once, when its
 * result is stored. That makes ref more exact than a kernel in fp32 and is what one is compared with. */
#include "ref.h"

struct tn_ref_program {
    uint32_t n_instr, n_result;
    struct tn_instr *instr;
    double *constant;
    uint16_t *result;
};

/* How many registers an instruction reads. */
static uint32_t operands(uint16_t op)
{
    return op <= TN_E_UNIFORM ? 0 : op <= TN_E_ERF ? 1 : op <= TN_E_GE ? 2 : 3;
}

/* Newer hosts may know instructions that we do not. Registers must be written before they are read. */
int tn_ref_program_known(const struct tn_program *p)
{
    for (uint32_t i = 0; i < p->n_instr; i++) {
        const uint16_t *reg = &p->instr[i].a;

        if (p->instr[i].op > TN_E_SELECT)
            return 0;
        for (uint32_t k = 0; k < operands(p->instr[i].op); k++)
            if (reg[k] >= i)
                return 0;
    }
    return 1;
}

static void *copy(void *state, const void *from, size_t bytes)
{
    void *to = tn_ref_keep(state, bytes);

    return to && bytes ? memcpy(to, from, bytes) : to;
}

const struct tn_ref_program *tn_ref_program(void *state, const struct tn_program *p)
{
    struct tn_ref_program *k = tn_ref_keep(state, sizeof *k);

    if (!k)
        return NULL;
    k->n_instr = p->n_instr, k->n_result = p->n_result;
    k->instr = copy(state, p->instr, p->n_instr * sizeof *p->instr);
    k->constant = copy(state, p->constant, p->n_constant * sizeof *p->constant);
    k->result = copy(state, p->result, p->n_result * sizeof *p->result);
    return k;
}

#define EACH(expression)                  \
    for (int64_t j = 0; j < n; j++)       \
        y[j] = (expression);              \
    break

void tn_ref_program_run(const struct tn_ref_program *k, int64_t n, const double (*in)[TN_REF_LANES],
                        const float *uniform, double (*reg)[TN_REF_LANES])
{
    for (uint32_t i = 0; i < k->n_instr; i++) {
        const struct tn_instr *o = &k->instr[i];
        const uint32_t used = operands(o->op);
        const double *a = reg[used > 0 ? o->a : 0], *b = reg[used > 1 ? o->b : 0],
                     *c = reg[used > 2 ? o->c : 0];
        double *y = reg[i];

        switch (o->op) {
        case TN_E_IN: EACH(in[o->a][j]);
        case TN_E_CONST: EACH(k->constant[o->a]);
        case TN_E_UNIFORM: EACH(uniform[o->a]);
        case TN_E_NEG: EACH(-a[j]);
        case TN_E_EXP: EACH(exp(a[j]));
        case TN_E_LOG: EACH(log(a[j]));
        case TN_E_SQRT: EACH(sqrt(a[j]));
        case TN_E_TANH: EACH(tanh(a[j]));
        case TN_E_ERF: EACH(erf(a[j]));
        case TN_E_ADD: EACH(a[j] + b[j]);
        case TN_E_SUB: EACH(a[j] - b[j]);
        case TN_E_MUL: EACH(a[j] * b[j]);
        case TN_E_DIV: EACH(a[j] / b[j]);
        case TN_E_MIN: EACH(a[j] < b[j] || isnan(a[j]) ? a[j] : b[j]);
        case TN_E_MAX: EACH(a[j] > b[j] || isnan(a[j]) ? a[j] : b[j]);
        case TN_E_POW: EACH(pow(a[j], b[j]));
        case TN_E_GE: EACH(a[j] >= b[j] ? 1 : 0);
        case TN_E_SELECT: EACH(a[j] != 0 ? b[j] : c[j]);
        }
    }
}

const double *tn_ref_program_result(const struct tn_ref_program *k, const double (*reg)[TN_REF_LANES],
                                    uint32_t i)
{
    return reg[k->result[i]];
}
