/* exprtext.c - the canonical text of a program: infix, no needless parentheses, shortest numbers.
 *
 * "t0 = a*a; 0.5*t0 + exp(-t0)": what is used more than once is a statement of its own, so the text is never
 * longer than a few characters per instruction; several results are "r0 = …; r1 = …". A tuned kernel
 * recognises its problem by this text. */
#include "graph/exprbuild.h"
#include "base/arena.h"
#include <math.h>
#include <stdlib.h>

/* How tightly a construct binds; the operand of a tighter one needs parentheses. */
enum { SUM = 1, PRODUCT, UNARY, POWER, ATOM };

struct text {
    const struct tn_program *p;
    uint16_t uses[TN_EXPR_INSTR];
    uint16_t name[TN_EXPR_INSTR];                /* number + 1 of the statement that holds the register */
    char letter;
    uint32_t n;
    char out[TN_EXPR_INSTR * 256];               /* an instruction has at most three numbers of 24 */
};

static const struct { uint8_t level, left, right; const char *sign; } infix[] = {
    [TN_E_ADD] = {SUM, SUM, PRODUCT, " + "},
    [TN_E_SUB] = {SUM, SUM, PRODUCT, " - "},
    [TN_E_MUL] = {PRODUCT, PRODUCT, UNARY, "*"},
    [TN_E_DIV] = {PRODUCT, PRODUCT, UNARY, "/"},
    [TN_E_POW] = {POWER, ATOM, UNARY, "^"},
    [TN_E_SELECT] = {0},
};
static const char *const function[] = {
    [TN_E_EXP] = "exp", [TN_E_LOG] = "log", [TN_E_SQRT] = "sqrt", [TN_E_TANH] = "tanh", [TN_E_ERF] = "erf",
    [TN_E_MIN] = "min", [TN_E_MAX] = "max", [TN_E_GE] = "ge",     [TN_E_SELECT] = "select",
};

static void expression(struct text *t, uint32_t r, uint32_t level);

__attribute__((format(printf, 2, 3)))
static void put(struct text *t, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    t->n += (uint32_t)vsnprintf(t->out + t->n, sizeof t->out - t->n, fmt, ap);
    va_end(ap);
}

static void number(struct text *t, double x)
{
    char digits[40];

    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, x);
        if (strtod(digits, NULL) == x)
            break;
    }
    put(t, "%s", isnan(x) ? "nan" : digits);
}

static void call(struct text *t, struct tn_instr x)
{
    const uint16_t operand[3] = {x.a, x.b, x.c};

    put(t, "%s(", function[x.op]);
    for (uint32_t k = 0; k < tn_expr_arity(x.op); k++) {
        put(t, "%s", k ? ", " : "");
        expression(t, operand[k], SUM);
    }
    put(t, ")");
}

static uint32_t level_of(const struct text *t, struct tn_instr x)
{
    if (x.op == TN_E_NEG || (x.op == TN_E_CONST && signbit(t->p->constant[x.a])))
        return UNARY;
    return infix[x.op].level ? infix[x.op].level : ATOM;
}

/* Register r even if it has a name. */
static void definition(struct text *t, uint32_t r, uint32_t level)
{
    struct tn_instr x = t->p->instr[r];
    int close = level_of(t, x) < level;

    put(t, "%s", close ? "(" : "");
    if (x.op == TN_E_IN && x.a < 26)
        put(t, "%c", 'a' + x.a);
    else if (x.op == TN_E_IN)
        put(t, "%c%d", 'a' + x.a % 26, x.a / 26);
    else if (x.op == TN_E_UNIFORM)
        put(t, "%c%d", t->letter, x.a);
    else if (x.op == TN_E_CONST)
        number(t, t->p->constant[x.a]);
    else if (x.op == TN_E_NEG) {
        put(t, "-");
        expression(t, x.a, UNARY);
    } else if (infix[x.op].level) {
        expression(t, x.a, infix[x.op].left);
        put(t, "%s", infix[x.op].sign);
        expression(t, x.b, infix[x.op].right);
    } else
        call(t, x);
    put(t, "%s", close ? ")" : "");
}

static void expression(struct text *t, uint32_t r, uint32_t level)
{
    if (t->name[r])
        put(t, "t%d", t->name[r] - 1);
    else
        definition(t, r, level);
}

static void count_uses(struct text *t)
{
    for (uint32_t i = 0; i < t->p->n_instr; i++) {
        struct tn_instr x = t->p->instr[i];
        const uint16_t operand[3] = {x.a, x.b, x.c};

        for (uint32_t k = 0; k < tn_expr_arity(x.op); k++)
            t->uses[operand[k]]++;
    }
    for (uint32_t i = 0; i < t->p->n_result; i++)
        t->uses[t->p->result[i]]++;
}

char *tn_expr_text(struct tn_arena *m, const struct tn_program *p, char letter)
{
    struct text t = {.p = p, .letter = letter};
    uint16_t names = 0;

    count_uses(&t);
    for (uint32_t i = 0; i < p->n_instr; i++)
        if (t.uses[i] > 1 && tn_expr_arity(p->instr[i].op)) {
            put(&t, "t%d = ", names);
            definition(&t, i, SUM);
            put(&t, "; ");
            t.name[i] = ++names;
        }
    for (uint32_t i = 0; i < p->n_result; i++) {
        if (p->n_result > 1)
            put(&t, "%sr%u = ", i ? "; " : "", i);
        expression(&t, p->result[i], SUM);
    }
    return tn_text(m, "%s", t.out);
}
