/* expr.c - the parser of element-wise expressions: recursive descent straight into instructions.
 *
 *   text      = statement {";" statement} [";"]      statement = [name "="] sum
 *   sum       = product {("+" | "-") product}        product   = unary {("*" | "/") unary}
 *   unary     = "-" unary | power                    power     = atom ["^" unary]
 *   atom      = number | name | name "(" sum {"," sum} ")" | "(" sum ")"
 *
 * The first error is recorded with its column and moves the parser to the end of the text, so that everything
 * returns by itself; registers made after it are never looked at. */
#include "graph/exprbuild.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#define DEPTH 600                                /* nested constructs: far more than 128 instructions need */

struct local {
    const char *name;
    size_t length;
    uint32_t reg;
};

struct parser {
    struct tn_expr_build *s;
    const char *text, *at;
    const struct tn_expr_name *names;
    uint32_t n_name, n_local, depth, n_input;
    int failed;
    struct local local[TN_EXPR_INSTR];
};

/* Base instructions, and composites of one operand x. relu: of equals the first gets the gradient, so 0 comes
 * first and relu' at 0 is 0. */
static const struct { const char *name; uint32_t op; const char *text; } functions[] = {
    {"exp", TN_E_EXP, NULL}, {"log", TN_E_LOG, NULL}, {"sqrt", TN_E_SQRT, NULL}, {"tanh", TN_E_TANH, NULL},
    {"erf", TN_E_ERF, NULL}, {"min", TN_E_MIN, NULL}, {"max", TN_E_MAX, NULL},   {"ge", TN_E_GE, NULL},
    {"select", TN_E_SELECT, NULL},
    {"gelu", 0, "0.5*x*(1 + erf(0.7071067811865476*x))"},
    {"gelu_tanh", 0, "0.5*x*(1 + tanh(0.7978845608028654*(x + 0.044715*x^3)))"},
    {"sigmoid", 0, "1/(1 + exp(-x))"},
    {"silu", 0, "x/(1 + exp(-x))"},
    {"relu", 0, "max(0, x)"},
    {"rsqrt", 0, "1/sqrt(x)"},
    {"square", 0, "x*x"},
};

static uint32_t parse_sum(struct parser *p);
static uint32_t parse_unary(struct parser *p);

__attribute__((format(printf, 3, 4)))
static uint32_t fail(struct parser *p, const char *where, const char *fmt, ...)
{
    char why[240];
    va_list ap;

    if (p->failed)
        return 0;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    tn_error(TN_ERR, "expression \"%.200s\", column %zu: %s", p->text, (size_t)(where - p->text) + 1, why);
    p->failed = 1;
    p->s->full = 1;                              /* nothing more is made */
    p->at += strlen(p->at);
    return 0;
}

static void skip(struct parser *p)
{
    while (isspace((unsigned char)*p->at))
        p->at++;
}

static int eat(struct parser *p, char c)
{
    skip(p);
    if (*p->at != c)
        return 0;
    p->at++;
    return 1;
}

static uint32_t unexpected(struct parser *p, const char *wanted)
{
    unsigned char c = (unsigned char)*p->at;

    if (!c)
        return fail(p, p->at, "%s expected, but the text ends", wanted);
    return isprint(c) ? fail(p, p->at, "%s expected, not '%c'", wanted, c)
                      : fail(p, p->at, "%s expected, not byte 0x%02x", wanted, c);
}

/* Letters, digits and _; the first one no digit. */
static size_t word(const char *s)
{
    size_t n = 0;

    if (isdigit((unsigned char)*s))
        return 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

static int same(const char *name, const char *s, size_t n)
{
    return strlen(name) == n && !memcmp(name, s, n);
}

/* Not strtod's idea of a number, which has hexadecimal ones. */
static size_t digits(const char *s)
{
    size_t n = strspn(s, "0123456789"), more;

    if (s[n] == '.')
        n += 1 + strspn(s + n + 1, "0123456789");
    if (s[n] == 'e' || s[n] == 'E') {
        more = n + 1 + (s[n + 1] == '-' || s[n + 1] == '+');
        if (isdigit((unsigned char)s[more]))
            n = more + strspn(s + more, "0123456789");
    }
    return n;
}

static uint32_t parse_number(struct parser *p)
{
    const char *from = p->at;
    size_t n = digits(from);
    char copy[64] = "";
    double x;

    if (n >= sizeof copy)
        return fail(p, from, "a number of %zu characters; %zu are enough", n, sizeof copy - 1);
    memcpy(copy, from, n);
    x = strtod(copy, NULL);
    if (!strpbrk(copy, "0123456789") || word(from + n))
        return fail(p, from, "not a number: '%.*s'", (int)(n + word(from + n)), from);
    if (isinf(x))
        return fail(p, from, "%s is beyond double precision; write inf", copy);
    p->at += n;
    return tn_expr_number(p->s, x);
}

/* A register, or -1. The latest assignment counts. */
static int64_t find(struct parser *p, const char *s, size_t n)
{
    for (uint32_t i = p->n_local; i-- > 0;)
        if (p->local[i].length == n && !memcmp(p->local[i].name, s, n))
            return p->local[i].reg;
    for (uint32_t i = 0; i < p->n_name; i++)
        if (same(p->names[i].name, s, n))
            return p->names[i].kind == TN_EXPR_VALUE ? tn_expr_number(p->s, p->names[i].value)
                   : tn_expr_emit(p->s, p->names[i].kind == TN_EXPR_INPUT ? TN_E_IN : TN_E_UNIFORM,
                                  p->names[i].index, 0, 0);
    if (same("inf", s, n))
        return tn_expr_number(p->s, INFINITY);
    return same("nan", s, n) ? (int64_t)tn_expr_number(p->s, NAN) : -1;
}

static uint32_t no_name(struct parser *p, const char *s, size_t n)
{
    char known[160] = "";
    size_t k = 0;

    for (uint32_t i = 0; i < p->n_name && k < sizeof known; i++)
        k += (size_t)snprintf(known + k, sizeof known - k, " %s", p->names[i].name);
    return fail(p, s, "no name '%.*s'; there are:%s", (int)(n < 40 ? n : 40), s, known);
}

static uint32_t composite(struct parser *p, const char *text, uint32_t x)
{
    struct parser inner = {.s = p->s, .text = text, .at = text, .n_local = 1, .local[0] = {"x", 1, x}};

    return parse_sum(&inner);
}

static uint32_t apply(struct parser *p, const char *f, size_t n, const uint32_t *operand, uint32_t count)
{
    uint32_t wanted;

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!same(functions[i].name, f, n))
            continue;
        wanted = functions[i].text ? 1 : tn_expr_arity(functions[i].op);
        if (count != wanted)
            return fail(p, f, "%s takes %u operands, not %u", functions[i].name, wanted, count);
        return functions[i].text ? composite(p, functions[i].text, operand[0])
                                 : tn_expr_emit(p->s, functions[i].op, operand[0], operand[1], operand[2]);
    }
    return fail(p, f, "no function '%.*s'; there are exp log sqrt tanh erf min max ge select gelu gelu_tanh "
                "silu relu sigmoid rsqrt square", (int)(n < 40 ? n : 40), f);
}

static uint32_t parse_call(struct parser *p, const char *f, size_t n)
{
    uint32_t operand[3] = {0}, count = 0, x;

    do {
        x = parse_sum(p);
        if (count < 3)
            operand[count] = x;
        count++;
    } while (eat(p, ','));
    if (!eat(p, ')'))
        return unexpected(p, "',' or ')'");
    return p->failed ? 0 : apply(p, f, n, operand, count);
}

static uint32_t parse_atom(struct parser *p)
{
    const char *from;
    size_t n;
    int64_t reg;

    if (eat(p, '(')) {
        reg = parse_sum(p);
        return eat(p, ')') ? (uint32_t)reg : unexpected(p, "')'");
    }
    from = p->at;
    if (isdigit((unsigned char)*from) || *from == '.')
        return parse_number(p);
    n = word(from);
    if (!n)
        return unexpected(p, "a number, a name or '('");
    p->at += n;
    if (eat(p, '('))
        return parse_call(p, from, n);
    reg = find(p, from, n);
    return reg < 0 ? no_name(p, from, n) : (uint32_t)reg;
}

static uint32_t parse_unary(struct parser *p)
{
    uint32_t reg;

    if (++p->depth > DEPTH)
        return fail(p, p->at, "nested too deeply");
    if (eat(p, '-'))
        reg = tn_expr_emit(p->s, TN_E_NEG, parse_unary(p), 0, 0);
    else {
        reg = parse_atom(p);
        if (eat(p, '^'))
            reg = tn_expr_emit(p->s, TN_E_POW, reg, parse_unary(p), 0);
    }
    p->depth--;
    return reg;
}

static uint32_t parse_product(struct parser *p)
{
    uint32_t reg = parse_unary(p);

    for (;;) {
        if (eat(p, '*'))
            reg = tn_expr_emit(p->s, TN_E_MUL, reg, parse_unary(p), 0);
        else if (eat(p, '/'))
            reg = tn_expr_emit(p->s, TN_E_DIV, reg, parse_unary(p), 0);
        else
            return reg;
    }
}

static uint32_t parse_sum(struct parser *p)
{
    uint32_t reg = parse_product(p);

    for (;;) {
        if (eat(p, '+'))
            reg = tn_expr_emit(p->s, TN_E_ADD, reg, parse_product(p), 0);
        else if (eat(p, '-'))
            reg = tn_expr_emit(p->s, TN_E_SUB, reg, parse_product(p), 0);
        else
            return reg;
    }
}

static uint32_t parse_statement(struct parser *p)
{
    const char *name;
    size_t n;
    uint32_t reg;

    skip(p);
    name = p->at;
    n = word(name);
    p->at += n;
    if (!n || !eat(p, '=')) {
        p->at = name;
        return parse_sum(p);
    }
    reg = parse_sum(p);
    if (p->n_local == TN_EXPR_INSTR)
        return fail(p, name, "more than %u statements", TN_EXPR_INSTR);
    p->local[p->n_local++] = (struct local){name, n, reg};
    return reg;
}

static uint32_t parse_text(struct parser *p)
{
    uint32_t last = parse_statement(p);

    while (eat(p, ';')) {
        skip(p);
        if (*p->at)
            last = parse_statement(p);
    }
    if (*p->at)
        unexpected(p, "an operator or ';'");
    return last;
}

static void check_names(struct parser *p)
{
    for (uint32_t i = 0; i < p->n_name; i++) {
        const struct tn_expr_name *x = &p->names[i];
        uint32_t end = x->kind == TN_EXPR_INPUT ? TN_EXPR_INPUTS : TN_EXPR_SYMBOLS;

        if (x->kind == TN_EXPR_VALUE)
            continue;
        if (x->index >= end)
            fail(p, p->text, "%s is number %u; there can be %u", x->name, x->index, end);
        if (x->kind == TN_EXPR_INPUT && x->index >= p->n_input)
            p->n_input = x->index + 1;
    }
}

static void name_results(struct parser *p, const char *const *results, uint32_t n_result)
{
    for (uint32_t i = 0; i < n_result && !p->failed; i++) {
        int64_t reg = find(p, results[i], strlen(results[i]));

        if (reg < 0)
            fail(p, p->at, "'%s' is never set", results[i]);
        else
            tn_expr_result(p->s, (uint32_t)reg);
    }
    if (!n_result)
        fail(p, p->at, "no results");
}

const struct tn_expr *tn_expr_parse(struct tn_arena *m, const char *text, const struct tn_expr_name *names,
                                    uint32_t n_name, const char *const *results, uint32_t n_result)
{
    struct tn_expr_build s;
    struct parser p = {.s = &s, .text = text, .at = text, .names = names, .n_name = n_name};
    uint32_t last;

    tn_expr_start(&s);
    check_names(&p);
    last = parse_text(&p);
    if (results)
        name_results(&p, results, n_result);
    else
        tn_expr_result(&s, last);
    return p.failed ? NULL : tn_expr_finish(m, &s, p.n_input);
}
