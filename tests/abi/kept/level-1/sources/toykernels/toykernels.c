/* toykernels - kernels from outside of the tree: one operation, expr, on contiguous fp32.
 *
 * Everything else is declined, so the plugins behind it in backend.kernels do the rest. The program is run element
 * by element in double; what an element reads is read before it writes, so operands may share their buffers. */
#include <math.h>
#include <stdlib.h>

#include <tenon/kernels.h>

#define MOST 128                                 /* instructions */

struct toy {
    int64_t n;
    uint32_t n_in, n_out, n_instr;
    struct tn_instr instr[MOST];
    double constant[MOST];
    uint16_t result[TN_MAX_OPERANDS];
};

static double unary(uint16_t op, double a)
{
    switch (op) {
    case TN_E_NEG: return -a;
    case TN_E_EXP: return exp(a);
    case TN_E_LOG: return log(a);
    case TN_E_SQRT: return sqrt(a);
    case TN_E_TANH: return tanh(a);
    default: return erf(a);
    }
}

static double binary(uint16_t op, double a, double b)
{
    switch (op) {
    case TN_E_ADD: return a + b;
    case TN_E_SUB: return a - b;
    case TN_E_MUL: return a * b;
    case TN_E_DIV: return a / b;
    case TN_E_MIN: return a < b || isnan(a) ? a : b;
    case TN_E_MAX: return a > b || isnan(a) ? a : b;
    case TN_E_POW: return pow(a, b);
    default: return a >= b;
    }
}

static void run_element(const struct toy *t, const struct tn_launch *l, int64_t i)
{
    double r[MOST];

    for (uint32_t k = 0; k < t->n_instr; k++) {
        struct tn_instr x = t->instr[k];
        switch (x.op) {
        case TN_E_IN: r[k] = ((const float *)l->buffer[x.a])[i]; break;
        case TN_E_CONST: r[k] = t->constant[x.a]; break;
        case TN_E_UNIFORM: r[k] = ((const float *)l->uniform)[x.a]; break;
        case TN_E_SELECT: r[k] = r[x.a] != 0 ? r[x.b] : r[x.c]; break;
        default: r[k] = x.op < TN_E_ADD ? unary(x.op, r[x.a]) : binary(x.op, r[x.a], r[x.b]);
        }
    }
    for (uint32_t k = 0; k < t->n_out; k++)
        ((float *)l->buffer[t->n_in + k])[i] = (float)r[t->result[k]];
}

static tn_status launch(void *state, const struct tn_launch *l)
{
    const struct toy *t = state;

    for (int64_t i = 0; i < t->n; i++)
        run_element(t, l, i);
    return TN_OK;
}

static int is_simple(const struct tn_operand *o, int64_t n)
{
    return o->dtype == TN_F32 && tn_contiguous(o) && tn_count(o) == n;
}

/* Does one step of each loop mean the same in all operands? Not so where their dims are in another order. */
static int walks_alike(const struct tn_problem *p)
{
    for (uint32_t k = 0; k < p->n_loop; k++)
        for (uint32_t i = 1; i < p->n_in + p->n_out; i++)
            if (p->loop[k].stride[i] != p->loop[k].stride[0])
                return 0;
    return 1;
}

static int is_mine(const struct tn_problem *p)
{
    int64_t n = p->n_out ? tn_count(&p->out[0]) : 0;

    if (strcmp(p->op, "expr") || p->accumulate || !p->program || p->n_out > TN_MAX_OPERANDS)
        return 0;
    if (p->program->n_instr > MOST || p->program->n_constant > MOST)
        return 0;
    for (uint32_t i = 0; i < p->n_in + p->n_out; i++)
        if (!is_simple(i < p->n_in ? &p->in[i] : &p->out[i - p->n_in], n))
            return 0;
    return walks_alike(p);
}

static tn_status prepare(const struct tn_problem *p, struct tn_kernel *out)
{
    struct toy *t;

    if (!is_mine(p))
        return TN_DECLINED;
    t = calloc(1, sizeof *t);
    if (!t)
        return tn_error(TN_ERR_MEMORY, "toykernels: no memory for a program");
    t->n = tn_count(&p->out[0]);
    t->n_in = p->n_in;
    t->n_out = p->n_out;
    t->n_instr = p->program->n_instr;
    memcpy(t->instr, p->program->instr, t->n_instr * sizeof *t->instr);
    memcpy(t->constant, p->program->constant, p->program->n_constant * sizeof *t->constant);
    memcpy(t->result, p->program->result, t->n_out * sizeof *t->result);
    out->state = t;
    out->launch = launch;
    out->release = free;
    return TN_OK;
}

static tn_status probe(uint32_t *score, char *why, uint64_t why_size)
{
    *score = 2;
    snprintf(why, why_size, "a toy");
    return TN_OK;
}

static const char *const ops[] = {"expr", NULL};

static const struct tn_kernels toykernels = {
    .struct_size = sizeof toykernels,
    .device = "cpu",
    .ops = ops,
    .probe = probe,
    .prepare = prepare,
};

TN_PLUGIN("toykernels", "0.1", "expr on contiguous fp32", TN_KERNELS_ID, &toykernels);
