/* idiom.c - what element-wise programs often say in many instructions and can be done in one.
 *
 * gelu and its derivative, as the graph writes them: products with 1 + erf(x/√2) and exp(-x²/2) in some order. A
 * product is compared as a constant times factors, so that the order does not matter. And what is divided by 1 + exp(-x)
 * (silu, its derivative): one division makes the sigmoid, products the rest. What a found idiom made useless is left
 * out. */
#include <math.h>
#include "cpu.h"

#define FACTORS 6
#define NOWHERE UINT16_MAX

struct code {
    struct tn_instr *instr;
    const double *constant;
    uint8_t is_result[TN_CPU_INSTR];
};
struct product {
    double constant;
    uint32_t n;
    uint16_t factor[FACTORS];
};

static int is_near(double x, double y)
{
    return fabs(x - y) <= 1e-6 * fabs(y);
}

/* Multiplies y by register r; 0 if there are too many factors. */
static int take_factors(const struct code *c, uint16_t r, struct product *y)
{
    const struct tn_instr *i = &c->instr[r];

    if (i->op == TN_E_CONST)
        return y->constant *= c->constant[i->a], 1;
    if (i->op == TN_E_NEG)
        return y->constant = -y->constant, take_factors(c, i->a, y);
    if (i->op == TN_E_MUL)
        return take_factors(c, i->a, y) && take_factors(c, i->b, y);
    if (y->n == FACTORS)
        return 0;
    y->factor[y->n++] = r;
    return 1;
}

static int product_of(const struct code *c, uint16_t r, struct product *y)
{
    *y = (struct product){.constant = 1};
    return take_factors(c, r, y);
}

/* x where r is 1 + erf(x/√2). */
static uint16_t of_normal(const struct code *c, uint16_t r)
{
    const struct tn_instr *i = &c->instr[r];
    struct product p;
    uint16_t one = i->a, erf = i->b;

    if (i->op != TN_E_ADD)
        return NOWHERE;
    if (c->instr[erf].op != TN_E_ERF)
        one = i->b, erf = i->a;
    if (c->instr[erf].op != TN_E_ERF || c->instr[one].op != TN_E_CONST ||
        !is_near(c->constant[c->instr[one].a], 1) || !product_of(c, c->instr[erf].a, &p) || p.n != 1 ||
        !is_near(p.constant, 0.70710678118654752))
        return NOWHERE;
    return p.factor[0];
}

/* x where r is exp(-x²/2). */
static uint16_t of_density(const struct code *c, uint16_t r)
{
    struct product p;

    if (c->instr[r].op != TN_E_EXP || !product_of(c, c->instr[r].a, &p) || p.n != 2 ||
        p.factor[0] != p.factor[1] || !is_near(p.constant, -0.5))
        return NOWHERE;
    return p.factor[0];
}

/* Takes the factor out that `of` knows; its x. */
static uint16_t take(const struct code *c, struct product *p, uint16_t (*of)(const struct code *, uint16_t))
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint16_t x = of(c, p->factor[i]);

        if (x != NOWHERE)
            return p->factor[i] = p->factor[--p->n], x;
    }
    return NOWHERE;
}
static int take_register(struct product *p, uint16_t r)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->factor[i] == r)
            return p->factor[i] = p->factor[--p->n], 1;
    return 0;
}

/* r is ½·x·(1 + erf(x/√2)). */
static void find_gelu(struct code *c, uint16_t r)
{
    struct product p;
    uint16_t x;

    if (c->instr[r].op != TN_E_MUL || !product_of(c, r, &p) || p.n != 2 || !is_near(p.constant, 0.5) ||
        (x = take(c, &p, of_normal)) == NOWHERE || p.factor[0] != x)
        return;
    c->instr[r] = (struct tn_instr){.op = TN_CPU_E_GELU, .a = x};
}

static uint32_t reads(const struct tn_instr *i, uint16_t r)
{
    const uint16_t *operand = &i->a;
    uint32_t n = 0;

    for (uint32_t k = 0; k < tn_cpu_operands(i->op); k++)
        n += operand[k] == r;
    return n;
}

/* r is g·½·(1 + erf(x/√2)) + g·x·exp(-x²/2)/√(2π). The first of these products then holds the derivative, if nobody
 * else reads it. */
static void find_derivative(struct code *c, uint16_t r, uint32_t n)
{
    for (int turn = 0; turn < 2 && c->instr[r].op == TN_E_ADD; turn++) {
        uint16_t first = turn ? c->instr[r].b : c->instr[r].a, second = turn ? c->instr[r].a : c->instr[r].b, x;
        struct product p, q;
        uint32_t readers = 0;

        if (!product_of(c, first, &p) || !product_of(c, second, &q) || p.n != 2 || q.n != 3 ||
            !is_near(p.constant, 0.5) || !is_near(q.constant, 0.39894228040143268) ||
            (x = take(c, &p, of_normal)) == NOWHERE || take(c, &q, of_density) != x || !take_register(&q, x) ||
            p.factor[0] != q.factor[0])
            continue;
        for (uint32_t i = first + 1u; i < n; i++)
            readers += reads(&c->instr[i], first);
        if (readers != 1 || c->is_result[first])
            continue;
        c->instr[first] = (struct tn_instr){.op = TN_CPU_E_DGELU, .a = x};
        c->instr[r] = (struct tn_instr){.op = TN_E_MUL, .a = first, .b = p.factor[0]};
    }
}

/* x where r is 1 + exp(-x). */
static uint16_t of_logistic(const struct code *c, uint16_t r)
{
    const struct tn_instr *i = &c->instr[r];
    struct product p;
    uint16_t one = i->a, power = i->b;

    if (i->op != TN_E_ADD)
        return NOWHERE;
    if (c->instr[power].op != TN_E_EXP)
        one = i->b, power = i->a;
    if (c->instr[power].op != TN_E_EXP || c->instr[one].op != TN_E_CONST || c->constant[c->instr[one].a] != 1 ||
        !product_of(c, c->instr[power].a, &p) || p.n != 1 || p.constant != -1)
        return NOWHERE;
    return p.factor[0];
}

/* r is 1 + exp(-x), and all that anybody does with it is to divide by it. */
static void find_sigmoid(struct code *c, uint16_t r, uint32_t n)
{
    uint16_t x = of_logistic(c, r);
    uint32_t divides = 0, readers = 0;

    if (x == NOWHERE || c->is_result[r])
        return;
    for (uint32_t i = r + 1u; i < n; i++) {
        readers += reads(&c->instr[i], r);
        divides += c->instr[i].op == TN_E_DIV && c->instr[i].b == r && c->instr[i].a != r;
    }
    if (readers != divides)
        return;
    c->instr[r] = (struct tn_instr){.op = TN_CPU_E_SIGMOID, .a = x};
    for (uint32_t i = r + 1u; i < n; i++)
        if (c->instr[i].op == TN_E_DIV && c->instr[i].b == r)
            c->instr[i].op = TN_E_MUL;
}

/* Leaves out what no result needs; where the others went is in `moved`. */
static uint32_t sweep(struct code *c, uint32_t n, uint16_t *moved)
{
    uint8_t needed[TN_CPU_INSTR];
    uint32_t left = 0;

    memcpy(needed, c->is_result, n);
    for (uint32_t i = n; i-- > 0;)
        for (uint32_t k = 0; k < tn_cpu_operands(c->instr[i].op) && needed[i]; k++)
            needed[(&c->instr[i].a)[k]] = 1;
    for (uint32_t i = 0; i < n; i++) {
        if (!needed[i])
            continue;
        for (uint32_t k = 0; k < tn_cpu_operands(c->instr[i].op); k++)
            (&c->instr[i].a)[k] = moved[(&c->instr[i].a)[k]];
        moved[i] = (uint16_t)left;
        c->instr[left++] = c->instr[i];
    }
    return left;
}

uint32_t tn_cpu_idioms(const struct tn_program *e, struct tn_instr *instr, uint16_t *result)
{
    struct code c = {.instr = instr, .constant = e->constant};
    uint16_t moved[TN_CPU_INSTR];
    uint32_t n = e->n_instr;

    memcpy(instr, e->instr, n * sizeof *instr);
    for (uint32_t i = 0; i < e->n_result; i++)
        c.is_result[e->result[i]] = 1;
    for (uint32_t i = n; i-- > 0;) {
        find_derivative(&c, (uint16_t)i, n);
        find_gelu(&c, (uint16_t)i);
        find_sigmoid(&c, (uint16_t)i, n);
    }
    n = sweep(&c, n, moved);
    for (uint32_t i = 0; i < e->n_result; i++)
        result[i] = moved[e->result[i]];
    return n;
}
