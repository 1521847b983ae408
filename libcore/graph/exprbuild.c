/* exprbuild.c - see exprbuild.h. Simplification, common subexpressions, canonical order, the uniform split.
 *
 * Canonical order is that of a walk from the results, operands first, left to right. It depends on nothing
 * but the graph of operands, and emit leaves alone what it has made before; so writing a program as text and
 * parsing that again gives the same bytes. */
#include "graph/exprbuild.h"
#include "base/arena.h"
#include <math.h>

void tn_expr_start(struct tn_expr_build *s)
{
    s->n = s->n_constant = s->n_result = 0;
    s->full = 0;
}

uint32_t tn_expr_arity(uint32_t op)
{
    return op < TN_E_NEG ? 0 : op < TN_E_ADD ? 1 : op < TN_E_SELECT ? 2 : 3;
}

int tn_expr_is(const struct tn_instr *instr, const double *constant, uint32_t r, double x)
{
    return instr[r].op == TN_E_CONST && constant[instr[r].a] == x;
}

/* a+b and b+a give the same bits, and so do products. */
static uint32_t unique(struct tn_expr_build *s, uint32_t op, uint32_t a, uint32_t b, uint32_t c)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct tn_instr x = s->instr[i];

        if (x.op == op && x.c == c && ((x.a == a && x.b == b) ||
            ((op == TN_E_ADD || op == TN_E_MUL) && x.a == b && x.b == a)))
            return i;
    }
    if (s->n == TN_EXPR_WORK) {
        s->full = 1;
        return 0;
    }
    s->instr[s->n] = (struct tn_instr){(uint16_t)op, (uint16_t)a, (uint16_t)b, (uint16_t)c};
    return s->n++;
}

/* By bits: -0 is not 0. One NaN serves for all. */
uint32_t tn_expr_number(struct tn_expr_build *s, double x)
{
    uint32_t k = 0;

    if (isnan(x))
        x = NAN;
    while (k < s->n_constant && memcmp(&s->constant[k], &x, sizeof x))
        k++;
    if (k == TN_EXPR_WORK) {
        s->full = 1;
        return 0;
    }
    if (k == s->n_constant)
        s->constant[s->n_constant++] = x;
    return unique(s, TN_E_CONST, k, 0, 0);
}

static int is(const struct tn_expr_build *s, uint32_t r, double x)
{
    return tn_expr_is(s->instr, s->constant, r, x);
}

static int negated(const struct tn_expr_build *s, uint32_t r)
{
    return s->instr[r].op == TN_E_NEG;
}

static uint32_t power(struct tn_expr_build *s, uint32_t a, uint32_t b)
{
    if (is(s, b, 0))
        return tn_expr_number(s, 1);
    if (is(s, b, 1))
        return a;
    if (is(s, b, 2))
        return tn_expr_emit(s, TN_E_MUL, a, a, 0);
    if (is(s, b, 3))
        return tn_expr_emit(s, TN_E_MUL, tn_expr_emit(s, TN_E_MUL, a, a, 0), a, 0);
    return unique(s, TN_E_POW, a, b, 0);
}

static uint32_t sum(struct tn_expr_build *s, uint32_t a, uint32_t b)
{
    if (is(s, a, 0))
        return b;
    if (is(s, b, 0))
        return a;
    if (negated(s, b))
        return tn_expr_emit(s, TN_E_SUB, a, s->instr[b].a, 0);
    if (negated(s, a))
        return tn_expr_emit(s, TN_E_SUB, b, s->instr[a].a, 0);
    return unique(s, TN_E_ADD, a, b, 0);
}

static uint32_t difference(struct tn_expr_build *s, uint32_t a, uint32_t b)
{
    if (is(s, b, 0))
        return a;
    if (is(s, a, 0))
        return tn_expr_emit(s, TN_E_NEG, b, 0, 0);
    if (negated(s, b))
        return tn_expr_emit(s, TN_E_ADD, a, s->instr[b].a, 0);
    return unique(s, TN_E_SUB, a, b, 0);
}

static uint32_t product(struct tn_expr_build *s, uint32_t op, uint32_t a, uint32_t b)
{
    if (is(s, b, 1))
        return a;
    if (is(s, b, -1))
        return tn_expr_emit(s, TN_E_NEG, a, 0, 0);
    if (op == TN_E_MUL && is(s, a, 1))
        return b;
    if (op == TN_E_MUL && is(s, a, -1))
        return tn_expr_emit(s, TN_E_NEG, b, 0, 0);
    if (negated(s, a) && negated(s, b))
        return tn_expr_emit(s, op, s->instr[a].a, s->instr[b].a, 0);
    return unique(s, op, a, b, 0);
}

static int fold(struct tn_expr_build *s, uint32_t op, const uint32_t *operand, uint32_t *reg)
{
    double x[3] = {0};

    for (uint32_t k = 0; k < tn_expr_arity(op); k++) {
        if (s->instr[operand[k]].op != TN_E_CONST)
            return 0;
        x[k] = s->constant[s->instr[operand[k]].a];
    }
    *reg = tn_expr_number(s, tn_expr_scalar(op, x[0], x[1], x[2]));
    return 1;
}

uint32_t tn_expr_emit(struct tn_expr_build *s, uint32_t op, uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t reg;

    if (s->full)
        return 0;
    if (tn_expr_arity(op) && fold(s, op, (const uint32_t[]){a, b, c}, &reg))
        return reg;
    switch (op) {
    case TN_E_NEG:
        return negated(s, a) ? s->instr[a].a : unique(s, op, a, 0, 0);
    case TN_E_ADD:
        return sum(s, a, b);
    case TN_E_SUB:
        return difference(s, a, b);
    case TN_E_MUL:
    case TN_E_DIV:
        return product(s, op, a, b);
    case TN_E_POW:
        return power(s, a, b);
    case TN_E_MIN:
    case TN_E_MAX:
        return a == b ? a : unique(s, op, a, b, 0);
    case TN_E_SELECT:
        if (s->instr[a].op == TN_E_CONST)
            return is(s, a, 0) ? c : b;
        return b == c ? b : unique(s, op, a, b, c);
    }
    return unique(s, op, a, b, c);
}

void tn_expr_result(struct tn_expr_build *s, uint32_t reg)
{
    if (s->n_result == TN_EXPR_RESULTS)
        s->full = 1;
    else
        s->result[s->n_result++] = (uint16_t)reg;
}

void tn_expr_append(struct tn_expr_build *s, const struct tn_expr *e, const uint32_t *in, uint32_t *reg)
{
    const struct tn_program *p = &e->whole;

    for (uint32_t i = 0; i < p->n_instr; i++) {
        struct tn_instr x = p->instr[i];
        uint32_t n = tn_expr_arity(x.op);

        if (x.op == TN_E_IN)
            reg[i] = in[x.a];
        else if (x.op == TN_E_CONST)
            reg[i] = tn_expr_number(s, p->constant[x.a]);
        else if (x.op == TN_E_UNIFORM)
            reg[i] = tn_expr_emit(s, x.op, x.a, 0, 0);
        else
            reg[i] = tn_expr_emit(s, x.op, reg[x.a], n > 1 ? reg[x.b] : 0, n > 2 ? reg[x.c] : 0);
    }
}

/* --- canonical order */

struct walk {
    const struct tn_instr *from;
    const double *constant;
    const uint8_t *uniform;                      /* registers that become uniforms; NULL: none */
    uint16_t place[TN_EXPR_WORK];                /* new register + 1 */
    struct tn_instr instr[TN_EXPR_WORK];
    double value[TN_EXPR_WORK];
    uint16_t source[TN_EXPR_WORK];               /* old register of each uniform */
    uint32_t n, n_constant, n_uniform;
};

static uint16_t visit(struct walk *w, uint32_t r)
{
    struct tn_instr x = w->from[r];
    uint32_t n = tn_expr_arity(x.op);

    if (w->place[r])
        return (uint16_t)(w->place[r] - 1);
    if (w->uniform && w->uniform[r]) {
        w->source[w->n_uniform] = (uint16_t)r;
        x = (struct tn_instr){TN_E_UNIFORM, (uint16_t)w->n_uniform++, 0, 0};
    } else if (x.op == TN_E_CONST) {
        w->value[w->n_constant] = w->constant[x.a];
        x.a = (uint16_t)w->n_constant++;
    } else if (n) {
        x.a = visit(w, x.a);
        x.b = n > 1 ? visit(w, x.b) : 0;
        x.c = n > 2 ? visit(w, x.c) : 0;
    }
    w->instr[w->n] = x;
    w->place[r] = (uint16_t)(w->n + 1);
    return (uint16_t)w->n++;
}

static void *keep(struct tn_arena *m, const void *from, size_t bytes)
{
    void *to = tn_alloc(m, bytes);

    memcpy(to, from, bytes);
    return to;
}

static struct tn_program pack(struct tn_arena *m, struct walk *w, const uint16_t *result, uint32_t n_result)
{
    uint16_t moved[TN_EXPR_RESULTS];

    for (uint32_t i = 0; i < n_result; i++)
        moved[i] = visit(w, result[i]);
    return (struct tn_program){
        .struct_size = sizeof(struct tn_program),
        .n_instr = w->n,
        .n_constant = w->n_constant,
        .n_uniform = w->n_uniform,
        .n_result = n_result,
        .instr = keep(m, w->instr, w->n * sizeof *w->instr),
        .constant = keep(m, w->value, w->n_constant * sizeof *w->value),
        .result = keep(m, moved, n_result * sizeof *moved),
    };
}

/* Registers of p that depend on symbols and constants only, and on a symbol. */
static void mark_uniform(const struct tn_program *p, uint8_t *uniform)
{
    for (uint32_t i = 0; i < p->n_instr; i++) {
        struct tn_instr x = p->instr[i];
        const uint16_t operand[3] = {x.a, x.b, x.c};
        uint32_t n = tn_expr_arity(x.op);

        uniform[i] = x.op == TN_E_UNIFORM || n;
        for (uint32_t k = 0; k < n; k++)
            if (!uniform[operand[k]] && p->instr[operand[k]].op != TN_E_CONST)
                uniform[i] = 0;
    }
}

static uint32_t count_leaf(const struct tn_program *p, uint32_t op, uint32_t n)
{
    for (uint32_t i = 0; i < p->n_instr; i++)
        if (p->instr[i].op == op && p->instr[i].a >= n)
            n = p->instr[i].a + 1u;
    return n;
}

const struct tn_expr *tn_expr_finish(struct tn_arena *m, const struct tn_expr_build *s, uint32_t n_input)
{
    struct walk w = {.from = s->instr, .constant = s->constant};
    uint8_t uniform[TN_EXPR_INSTR];
    struct tn_expr *e = tn_alloc(m, sizeof *e);

    if (!s->full)
        e->whole = pack(m, &w, s->result, s->n_result);
    if (s->full || e->whole.n_instr > TN_EXPR_INSTR) {
        tn_error(TN_ERR, "expression longer than %u instructions or %u results: make it two", TN_EXPR_INSTR,
                 TN_EXPR_RESULTS);
        return NULL;
    }
    e->n_input = count_leaf(&e->whole, TN_E_IN, n_input);
    e->n_symbol = e->whole.n_uniform = count_leaf(&e->whole, TN_E_UNIFORM, 0);
    e->whole.text = tn_expr_text(m, &e->whole, 's');
    mark_uniform(&e->whole, uniform);
    w = (struct walk){.from = e->whole.instr, .constant = e->whole.constant, .uniform = uniform};
    e->program = pack(m, &w, e->whole.result, e->whole.n_result);
    e->program.text = tn_expr_text(m, &e->program, 'u');
    e->uniform = keep(m, w.source, w.n_uniform * sizeof *w.source);
    return e;
}
