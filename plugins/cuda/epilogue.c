/* epilogue.c - see epilogue.h.
 *
 * A program is recognised by what it computes: it is run on the host on a few points, in double, and compared with
 * the formula. So it does not matter how the graph wrote it. The operands' strides decide which input is a bias
 * (along the columns alone) and which one lies like the result. */
#include "epilogue.h"
#include <math.h>
#include "program.h"

#define POINTS 7

/* Results of the program for the inputs in[]; NaN where they depend on what no epilogue has; 0: it is too long. */
static int run(const struct tn_program *p, const double *in, double *out)
{
    double r[TN_CUDA_INSTR];

    if (p->n_instr > TN_CUDA_INSTR)
        return 0;
    for (uint32_t i = 0; i < p->n_instr; i++) {
        const struct tn_instr *x = &p->instr[i];
        const double a = x->op > TN_E_UNIFORM ? r[x->a] : 0, b = x->op >= TN_E_ADD ? r[x->b] : 0;

        switch (x->op) {
        case TN_E_IN: r[i] = in[x->a]; break;
        case TN_E_CONST: r[i] = p->constant[x->a]; break;
        case TN_E_NEG: r[i] = -a; break;
        case TN_E_EXP: r[i] = exp(a); break;
        case TN_E_TANH: r[i] = tanh(a); break;
        case TN_E_ADD: r[i] = a + b; break;
        case TN_E_SUB: r[i] = a - b; break;
        case TN_E_MUL: r[i] = a * b; break;
        case TN_E_DIV: r[i] = a / b; break;
        default: r[i] = NAN;
        }
    }
    for (uint32_t i = 0; i < p->n_result; i++)
        out[i] = r[p->result[i]];
    return 1;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

static double sum2(const double *v)
{
    return v[0] + v[1];
}

static double sum3(const double *v)
{
    return v[0] + v[1] + v[2];
}

static double first(const double *v)
{
    return v[0];
}

static double gelu_first(const double *v)
{
    return gelu(v[0]);
}

static double gelu_sum(const double *v)
{
    return gelu(v[0] + v[1]);
}

static double times_slope(const double *v)
{
    return v[0] * gelu_slope(v[1]);
}

/* Is result number i of the program f of its inputs? */
static int computes(const struct tn_program *p, uint32_t i, double (*f)(const double *v))
{
    double in[TN_MAX_OPERANDS], out[TN_MAX_OPERANDS];

    for (int point = 0; point < POINTS; point++) {
        for (int k = 0; k < TN_MAX_OPERANDS; k++)
            in[k] = sin(1.7 * point + 2.3 * k + 0.4) * 2;
        if (!run(p, in, out) || !(fabs(out[i] - f(in)) <= 1e-7 * (1 + fabs(f(in)))))
            return 0;
    }
    return 1;
}

/* Does operand o lie as y does, or, along the columns only, as a bias? */
static int lies(const struct tn_problem *p, uint32_t o, uint32_t y, int bias)
{
    for (uint32_t i = 0; i < p->n_loop - p->n_reduced; i++) {
        const struct tn_loop *l = &p->loop[i];
        const int column = l->stride[1] && !l->stride[0];

        if (l->size != 1 && l->stride[o] != (bias && !column ? 0 : l->stride[y]))
            return 0;
    }
    return 1;
}

static uint32_t dtype_of(const struct tn_problem *p, uint32_t o)
{
    return (o < p->n_in ? &p->in[o] : &p->out[o - p->n_in])->dtype;
}

static int is_bias(const struct tn_problem *p, uint32_t o, uint32_t y)
{
    return lies(p, o, y, 1) && dtype_of(p, o) != TN_I32;
}

static int is_like(const struct tn_problem *p, uint32_t o, uint32_t y)
{
    return lies(p, o, y, 0) && dtype_of(p, o) == dtype_of(p, y);
}

/* Result o is the product, or the product + one or two operands. */
static int find_sum(const struct tn_problem *p, uint32_t o, struct tn_cuda_epilogue *e)
{
    const uint32_t y = p->n_in + o;

    if (p->n_out > 1 && computes(p->program, o, first)) {
        e->kind = TN_CUDA_EPI_NONE, e->y = y;
        return 1;
    }
    if (p->n_in < 3 || p->n_in > 4 || !computes(p->program, o, p->n_in == 3 ? sum2 : sum3))
        return 0;
    for (uint32_t i = 2; i < p->n_in; i++)
        if (!e->add && is_like(p, i, y))
            e->add = i;
        else if (!e->bias && is_bias(p, i, y))
            e->bias = i;
        else
            return 0;
    e->kind = e->bias ? TN_CUDA_EPI_BIAS : TN_CUDA_EPI_NONE, e->y = y;
    return 1;
}

/* v and gelu(v), where v is the product or the product and a bias */
static int find_gelu(const struct tn_problem *p, struct tn_cuda_epilogue *e)
{
    const int bias = p->n_in == 3;

    if (p->n_out != 2 || p->n_in > 3)
        return 0;
    for (uint32_t i = 0; i < 2; i++)
        if (computes(p->program, i, bias ? gelu_sum : gelu_first) &&
            computes(p->program, 1 - i, bias ? sum2 : first)) {
            e->kind = bias ? TN_CUDA_EPI_BIAS_GELU_AUX : TN_CUDA_EPI_GELU_AUX;
            e->y = p->n_in + i, e->aux = p->n_in + 1 - i, e->bias = bias ? 2 : 0;
            return is_like(p, e->aux, e->y) && (!bias || is_bias(p, 2, e->y));
        }
    return 0;
}

/* Result o is the product times gelu' of an operand. */
static int find_slope(const struct tn_problem *p, uint32_t o, struct tn_cuda_epilogue *e)
{
    if (p->n_in != 3 || !computes(p->program, o, times_slope))
        return 0;
    e->kind = TN_CUDA_EPI_DGELU, e->y = p->n_in + o, e->aux = 2;
    return is_like(p, 2, e->y);
}

int tn_cuda_epilogue_of(const struct tn_problem *p, uint32_t o, struct tn_cuda_epilogue *out)
{
    static int (*const find[])(const struct tn_problem *p, uint32_t o, struct tn_cuda_epilogue *e) = {find_sum,
                                                                                                    find_slope};

    for (size_t i = 0; i < sizeof find / sizeof *find && !(p->accumulate >> o & 1); i++) {
        memset(out, 0, sizeof *out);
        if (find[i](p, o, out))
            return 1;
    }
    return 0;
}

int tn_cuda_epilogue_find(const struct tn_problem *p, struct tn_cuda_epilogue *out)
{
    if (p->accumulate || p->n_in < 2)
        return 0;
    if (p->n_out == 1)
        return tn_cuda_epilogue_of(p, 0, out);
    memset(out, 0, sizeof *out);
    return find_gelu(p, out);
}
