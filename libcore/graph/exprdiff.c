/* exprdiff.c - what follows from a program without a table: its derivatives, and whether it is linear.
 *
 * Derivatives go backwards through the instructions. The adjoint of a register is a product g*k, kept apart:
 * g holds dy and tensors, k constants and symbols. So the derivative of 2*(3*x) is 6*dy, factors of a step
 * merge into one uniform, and a k of 0 is known to be nothing (x - x). A select passes g through a select,
 * never through a product with 0: a masked element may have an infinite gradient.
 *
 * y = c/(1 + exp(-z)), sigmoid and silu, is differentiated by z as the y*(1 - 1/(1 + exp(-z))) it is: the
 * chain would multiply 0 by infinity where exp overflows. */
#include "graph/exprbuild.h"

#define NONE UINT32_MAX

struct grad {
    struct tn_expr_build s;
    struct { uint32_t g, k; } adjoint[TN_EXPR_INSTR]; /* registers of s; g NONE: nothing comes from here */
    uint32_t at[TN_EXPR_INSTR];                  /* where the instructions of the expr went in s */
    uint8_t tensor[TN_EXPR_INSTR];               /* depends on an input at all */
    uint8_t active[TN_EXPR_INSTR];               /* depends on the input in question */
    const struct tn_instr *instr;
    const double *constant;
};

static uint32_t op1(struct grad *d, uint32_t op, uint32_t a)
{
    return tn_expr_emit(&d->s, op, a, 0, 0);
}

static uint32_t op2(struct grad *d, uint32_t op, uint32_t a, uint32_t b)
{
    return tn_expr_emit(&d->s, op, a, b, 0);
}

static uint32_t times(struct grad *d, uint32_t a, uint32_t b)
{
    return op2(d, TN_E_MUL, a, b);
}

static uint32_t number(struct grad *d, double x)
{
    return tn_expr_number(&d->s, x);
}

static int zero(const struct grad *d, uint32_t r)
{
    return tn_expr_is(d->s.instr, d->s.constant, r, 0);
}

/* Adds g*k to the adjoint of r. */
static void add(struct grad *d, uint32_t r, uint32_t g, uint32_t k)
{
    uint32_t *old_g = &d->adjoint[r].g, *old_k = &d->adjoint[r].k;

    if (!d->active[r] || zero(d, k))
        return;
    if (*old_g == NONE || zero(d, *old_k)) {
        *old_g = g;
        *old_k = k;
    } else if (*old_g == g) {
        *old_k = op2(d, TN_E_ADD, *old_k, k);
    } else if (*old_k == k) {
        *old_g = op2(d, TN_E_ADD, *old_g, g);
    } else {
        *old_g = op2(d, TN_E_ADD, times(d, *old_k, *old_g), times(d, k, g));
        *old_k = number(d, 1);
    }
}

/* Adds g*k*f, f being register r of the expr. */
static void add_times(struct grad *d, uint32_t to, uint32_t g, uint32_t k, uint32_t r)
{
    if (!d->active[to])
        return;
    if (d->tensor[r])
        add(d, to, times(d, g, d->at[r]), k);
    else
        add(d, to, g, times(d, k, d->at[r]));
}

static void add_over(struct grad *d, uint32_t to, uint32_t g, uint32_t k, uint32_t r)
{
    if (!d->active[to])
        return;
    if (d->tensor[r])
        add(d, to, op2(d, TN_E_DIV, g, d->at[r]), k);
    else
        add(d, to, g, op2(d, TN_E_DIV, k, d->at[r]));
}

/* yes and no get the adjoint where c holds and where it does not. */
static void add_choice(struct grad *d, uint32_t yes, uint32_t no, uint32_t c, uint32_t g, uint32_t k)
{
    add(d, yes, tn_expr_emit(&d->s, TN_E_SELECT, c, g, number(d, 0)), k);
    add(d, no, tn_expr_emit(&d->s, TN_E_SELECT, c, number(d, 0), g), k);
}

/* a^b: b*a^(b-1) and y*log(a), which is 0 at a = 0. */
static void power(struct grad *d, uint32_t i, struct tn_instr x, uint32_t g, uint32_t k)
{
    uint32_t a = d->at[x.a], b = d->at[x.b], y = d->at[i];

    if (d->active[x.a])
        add_times(d, x.a, times(d, g, op2(d, TN_E_POW, a, op2(d, TN_E_SUB, b, number(d, 1)))), k, x.b);
    if (d->active[x.b])
        add(d, x.b, times(d, g, tn_expr_emit(&d->s, TN_E_SELECT, a, times(d, y, op1(d, TN_E_LOG, a)),
                                             number(d, 0))), k);
}

/* The z of 1 + exp(-z), or NONE. */
static uint32_t logistic(const struct grad *d, uint32_t r)
{
    struct tn_instr x = d->instr[r];
    uint32_t one = x.a, e = x.b;

    if (x.op != TN_E_ADD)
        return NONE;
    if (tn_expr_is(d->instr, d->constant, e, 1)) {
        one = x.b;
        e = x.a;
    }
    if (!tn_expr_is(d->instr, d->constant, one, 1) || d->instr[e].op != TN_E_EXP ||
        d->instr[d->instr[e].a].op != TN_E_NEG)
        return NONE;
    return d->instr[d->instr[e].a].a;
}

static void quotient(struct grad *d, uint32_t i, struct tn_instr x, uint32_t g, uint32_t k)
{
    uint32_t y = d->at[i], z = logistic(d, x.b), one = number(d, 1);

    add_over(d, x.a, g, k, x.b);
    if (z == NONE)
        add_over(d, x.b, times(d, g, y), op1(d, TN_E_NEG, k), x.b);
    else
        add(d, z, times(d, g, times(d, y, op2(d, TN_E_SUB, one, op2(d, TN_E_DIV, one, d->at[x.b])))), k);
}

/* Hands the adjoint of register i to its operands. */
static void back(struct grad *d, uint32_t i)
{
    struct tn_instr x = d->instr[i];
    uint32_t g = d->adjoint[i].g, k = d->adjoint[i].k, y = d->at[i], a = d->at[x.a];

    switch (x.op) {
    case TN_E_NEG:
        add(d, x.a, g, op1(d, TN_E_NEG, k));
        return;
    case TN_E_EXP:
        add_times(d, x.a, g, k, i);
        return;
    case TN_E_LOG:
        add_over(d, x.a, g, k, x.a);
        return;
    case TN_E_SQRT:
        add_over(d, x.a, g, times(d, k, number(d, 0.5)), i);
        return;
    case TN_E_TANH:
        add(d, x.a, times(d, g, op2(d, TN_E_SUB, number(d, 1), times(d, y, y))), k);
        return;
    case TN_E_ERF:                               /* 2/√π·exp(−a²) */
        add(d, x.a, times(d, g, op1(d, TN_E_EXP, op1(d, TN_E_NEG, times(d, a, a)))),
            times(d, k, number(d, 1.1283791670955126)));
        return;
    case TN_E_ADD:
        add(d, x.a, g, k);
        add(d, x.b, g, k);
        return;
    case TN_E_SUB:
        add(d, x.a, g, k);
        add(d, x.b, g, op1(d, TN_E_NEG, k));
        return;
    case TN_E_MUL:
        add_times(d, x.a, g, k, x.b);
        add_times(d, x.b, g, k, x.a);
        return;
    case TN_E_DIV:
        quotient(d, i, x, g, k);
        return;
    case TN_E_MIN:
        add_choice(d, x.a, x.b, op2(d, TN_E_GE, d->at[x.b], a), g, k);
        return;
    case TN_E_MAX:
        add_choice(d, x.a, x.b, op2(d, TN_E_GE, a, d->at[x.b]), g, k);
        return;
    case TN_E_POW:
        power(d, i, x, g, k);
        return;
    case TN_E_SELECT:
        add_choice(d, x.b, x.c, a, g, k);
        return;
    }
}

static void mark(const struct tn_instr *instr, uint32_t n, uint32_t inputs, uint8_t *depends)
{
    for (uint32_t i = 0; i < n; i++) {
        struct tn_instr x = instr[i];
        const uint16_t operand[3] = {x.a, x.b, x.c};

        depends[i] = x.op == TN_E_IN && inputs >> x.a & 1;
        for (uint32_t k = 0; k < tn_expr_arity(x.op); k++)
            depends[i] |= depends[operand[k]];
    }
}

static void begin(struct grad *d, const struct tn_expr *e, uint32_t input)
{
    uint32_t in[TN_EXPR_INPUTS];

    tn_expr_start(&d->s);
    d->instr = e->whole.instr;
    d->constant = e->whole.constant;
    mark(d->instr, e->whole.n_instr, UINT32_MAX, d->tensor);
    mark(d->instr, e->whole.n_instr, 1u << input, d->active);
    for (uint32_t i = 0; i < e->n_input; i++)
        in[i] = tn_expr_emit(&d->s, TN_E_IN, i, 0, 0);
    tn_expr_append(&d->s, e, in, d->at);
    for (uint32_t i = 0; i < e->whole.n_instr; i++)
        d->adjoint[i].g = NONE;
}

const struct tn_expr *tn_expr_grad(struct tn_arena *m, const struct tn_expr *e, uint32_t result,
                                   uint32_t input)
{
    struct grad d;
    uint32_t g = NONE, k = 0;

    if (e->n_input == TN_EXPR_INPUTS || result >= e->whole.n_result || input >= e->n_input) {
        tn_error(TN_ERR, "no derivative of result %u of %u by input %u of %u; with dy there can be %u inputs",
                 result, e->whole.n_result, input, e->n_input, TN_EXPR_INPUTS);
        return NULL;
    }
    begin(&d, e, input);
    add(&d, e->whole.result[result], tn_expr_emit(&d.s, TN_E_IN, e->n_input, 0, 0), number(&d, 1));
    for (uint32_t i = e->whole.n_instr; i-- > 0;) {
        if (d.adjoint[i].g == NONE || zero(&d, d.adjoint[i].k))
            continue;
        g = d.adjoint[i].g;
        k = d.adjoint[i].k;
        if (d.instr[i].op == TN_E_IN)
            break;
        back(&d, i);
        g = NONE;
    }
    if (g == NONE && !d.s.full)
        return NULL;
    tn_expr_result(&d.s, times(&d, k, g));
    return tn_expr_finish(m, &d.s, e->n_input + 1);
}

/* --- degree in some inputs */

enum { FREE, LINEAR, OTHER, ZERO };              /* ZERO: the constant, which goes with FREE and LINEAR */

static int choice(int b, int c)
{
    return b == ZERO ? c : c == ZERO || b == c ? b : OTHER;
}

static int degree(struct tn_instr x, const int *of)
{
    int a = of[x.a], b = of[x.b], free_a = a == FREE || a == ZERO, free_b = b == FREE || b == ZERO;

    switch (x.op) {
    case TN_E_NEG:
        return a;
    case TN_E_ADD:
    case TN_E_SUB:
        return choice(a, b);
    case TN_E_MUL:
        return free_a ? (b == ZERO ? FREE : b) : free_b ? a : OTHER;
    case TN_E_DIV:
        return free_b ? (a == ZERO ? FREE : a) : OTHER;
    case TN_E_SELECT:
        return free_a ? choice(b, of[x.c]) : OTHER;
    }
    return free_a && (tn_expr_arity(x.op) < 2 || free_b) ? FREE : OTHER;
}

int tn_expr_linear(const struct tn_expr *e, uint32_t mask)
{
    const struct tn_program *p = &e->whole;
    int of[TN_EXPR_INSTR];

    for (uint32_t i = 0; i < p->n_instr; i++) {
        if (tn_expr_arity(p->instr[i].op))
            of[i] = degree(p->instr[i], of);
        else if (p->instr[i].op == TN_E_IN)
            of[i] = mask >> p->instr[i].a & 1 ? LINEAR : FREE;
        else
            of[i] = tn_expr_is(p->instr, p->constant, i, 0) ? ZERO : FREE;
    }
    for (uint32_t i = 0; i < p->n_result; i++)
        if (of[p->result[i]] != LINEAR)
            return 0;
    return p->n_result > 0;
}
