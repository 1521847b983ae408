/* program.c - see program.h. */
#include "program.h"

#define FOREVER UINT32_MAX

/* How many registers an instruction reads. */
static uint32_t operands(uint16_t op)
{
    return op <= TN_E_UNIFORM ? 0 : op <= TN_E_ERF ? 1 : op <= TN_E_GE ? 2 : 3;
}

/* Registers must be written before they are read; leaves must exist. */
static int known(const struct tn_program *p, uint32_t n_in)
{
    for (uint32_t i = 0; i < p->n_instr; i++) {
        const struct tn_instr *x = &p->instr[i];
        const uint16_t *reg = &x->a;

        if (x->op > TN_E_SELECT || (x->op == TN_E_IN && x->a >= n_in) || (x->op == TN_E_UNIFORM && x->a > 255))
            return 0;
        for (uint32_t k = 0; k < operands(x->op); k++)
            if (reg[k] >= i)
                return 0;
    }
    return 1;
}

static void last_uses(const struct tn_program *p, uint32_t *last)
{
    for (uint32_t i = 0; i < p->n_instr; i++) {
        const uint16_t *reg = &p->instr[i].a;

        last[i] = i;
        for (uint32_t k = 0; k < operands(p->instr[i].op); k++)
            last[reg[k]] = i;
    }
    for (uint32_t i = 0; i < p->n_result; i++)
        last[p->result[i]] = FOREVER;
}

/* until[r]: the instruction up to which real register r is taken. 0 if all are. */
static int take(uint32_t *until, uint32_t now, uint32_t last, uint8_t *reg)
{
    for (uint32_t r = 0; r < TN_CUDA_REGISTERS; r++)
        if (until[r] <= now) {
            until[r] = last == now ? now + 1 : last; /* nobody reads it; it is written all the same */
            *reg = (uint8_t)r;
            return 1;
        }
    return 0;
}

int tn_cuda_program_load(struct tn_cuda_program *k, const struct tn_program *p, uint32_t n_in, uint32_t n_out)
{
    uint32_t last[TN_CUDA_INSTR], until[TN_CUDA_REGISTERS] = {0};
    uint8_t reg[TN_CUDA_INSTR];

    memset(k, 0, sizeof *k);
    if (p->n_instr > TN_CUDA_INSTR || p->n_constant > TN_CUDA_CONSTANTS || p->n_result != n_out ||
        n_out > TN_MAX_OPERANDS || !known(p, n_in))
        return 0;
    last_uses(p, last);
    for (uint32_t i = 0; i < p->n_instr; i++) {
        const struct tn_instr *x = &p->instr[i];
        const uint16_t *from = &x->a;
        uint8_t *to = &k->instr[i].a;

        if (!take(until, i, last[i], &reg[i]))
            return 0;
        k->instr[i].op = (uint8_t)x->op, k->instr[i].to = reg[i];
        k->n_reg = TN_CUDA_MAX(k->n_reg, reg[i] + 1u);
        if (x->op <= TN_E_UNIFORM)
            to[0] = (uint8_t)x->a;
        for (uint32_t o = 0; o < operands(x->op); o++)
            to[o] = reg[from[o]];
    }
    k->n_instr = p->n_instr, k->n_result = p->n_result;
    for (uint32_t i = 0; i < p->n_constant; i++)
        k->constant[i] = (float)p->constant[i];
    for (uint32_t i = 0; i < p->n_result; i++)
        k->result[i] = reg[p->result[i]];
    return 1;
}
