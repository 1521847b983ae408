/* program.c - element-wise programs from text, for the bench.
 *
 * Statements are separated by semicolons: "t0 = ..." names a register, "r0 = ..." a result, an expression
 * alone is result 0. Operators + - * / ^ and unary -, functions exp log sqrt tanh erf min max ge select,
 * inputs a, b, c,
 * ..., uniforms u0, u1, ... An instruction that is there already is used again. */
#include <ctype.h>
#include <stdlib.h>
#include "bench.h"

struct parser {
    struct tn_bench_program *out;
    const char *text, *at;
    uint16_t temporary[TN_BENCH_INSTR];
};

static const struct {
    const char *name;
    uint16_t op, n;
} functions[] = {
    {"exp", TN_E_EXP, 1},   {"log", TN_E_LOG, 1}, {"sqrt", TN_E_SQRT, 1},
    {"tanh", TN_E_TANH, 1}, {"erf", TN_E_ERF, 1}, {"min", TN_E_MIN, 2},
    {"max", TN_E_MAX, 2},   {"ge", TN_E_GE, 2},   {"select", TN_E_SELECT, 3},
};

static uint16_t sum(struct parser *s);

static void skip(struct parser *s)
{
    s->at += strspn(s->at, " \n");
}

static int eat(struct parser *s, char c)
{
    skip(s);
    if (*s->at != c)
        return 0;
    s->at++;
    return 1;
}

static void want(struct parser *s, char c)
{
    if (!eat(s, c))
        tn_bench_stop("program \"%s\": '%c' expected at \"%s\"", s->text, c, s->at);
}

static uint16_t emit(struct parser *s, uint16_t op, uint16_t a, uint16_t b, uint16_t c)
{
    struct tn_program *p = &s->out->p;
    const struct tn_instr i = {op, a, b, c};

    for (uint32_t k = 0; k < p->n_instr; k++)
        if (!memcmp(&s->out->instr[k], &i, sizeof i))
            return (uint16_t)k;
    if (p->n_instr == TN_BENCH_INSTR)
        tn_bench_stop("program \"%s\" is too long", s->text);
    s->out->instr[p->n_instr] = i;
    return (uint16_t)p->n_instr++;
}

static uint16_t constant(struct parser *s, double v)
{
    struct tn_program *p = &s->out->p;
    uint32_t k = 0;

    while (k < p->n_constant && s->out->constant[k] != v)
        k++;
    if (k == p->n_constant)
        s->out->constant[p->n_constant++] = v;
    return emit(s, TN_E_CONST, (uint16_t)k, 0, 0);
}

static uint16_t call(struct parser *s, const char *name, size_t length)
{
    uint16_t arg[3] = {0, 0, 0};

    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        if (strlen(functions[f].name) != length || memcmp(functions[f].name, name, length))
            continue;
        want(s, '(');
        for (uint16_t i = 0; i < functions[f].n; i++) {
            if (i)
                want(s, ',');
            arg[i] = sum(s);
        }
        want(s, ')');
        return emit(s, functions[f].op, arg[0], arg[1], arg[2]);
    }
    tn_bench_stop("program \"%s\": no function \"%.*s\"", s->text, (int)length, name);
}

static uint16_t atom(struct parser *s)
{
    const char *name;
    size_t length = 0;
    uint16_t r;

    if (eat(s, '(')) {
        r = sum(s);
        want(s, ')');
        return r;
    }
    name = s->at;
    if (isdigit((unsigned char)*name) || *name == '.') {
        char *end;
        double v = strtod(name, &end);

        s->at = end;
        return constant(s, v);
    }
    while (isalnum((unsigned char)name[length]))
        length++;
    s->at += length;
    if (length == 1)
        return emit(s, TN_E_IN, (uint16_t)(*name - 'a'), 0, 0);
    if (*name == 't' && isdigit((unsigned char)name[1]))
        return s->temporary[atoi(name + 1)];
    if (*name == 'u' && isdigit((unsigned char)name[1])) {
        uint16_t u = (uint16_t)atoi(name + 1);

        s->out->p.n_uniform = u >= s->out->p.n_uniform ? u + 1u : s->out->p.n_uniform;
        return emit(s, TN_E_UNIFORM, u, 0, 0);
    }
    return call(s, name, length);
}

static uint16_t unary(struct parser *s)
{
    uint16_t r;

    if (eat(s, '-'))
        return emit(s, TN_E_NEG, unary(s), 0, 0);
    r = atom(s);
    return eat(s, '^') ? emit(s, TN_E_POW, r, unary(s), 0) : r;
}

static uint16_t product(struct parser *s)
{
    uint16_t r = unary(s);

    for (;;)
        if (eat(s, '*'))
            r = emit(s, TN_E_MUL, r, unary(s), 0);
        else if (eat(s, '/'))
            r = emit(s, TN_E_DIV, r, unary(s), 0);
        else
            return r;
}

static uint16_t sum(struct parser *s)
{
    uint16_t r = product(s);

    for (;;)
        if (eat(s, '+'))
            r = emit(s, TN_E_ADD, r, product(s), 0);
        else if (eat(s, '-'))
            r = emit(s, TN_E_SUB, r, product(s), 0);
        else
            return r;
}

static void statement(struct parser *s)
{
    const char kind = (skip(s), *s->at);
    const char *rest = s->at + 1;
    const int number = atoi(rest);
    uint16_t r;

    rest += strspn(rest, "0123456789");
    if (rest > s->at + 1 && (kind == 't' || kind == 'r') && rest[strspn(rest, " ")] == '=') {
        s->at = rest;
        want(s, '=');
        r = sum(s);
        if (kind == 't') {
            s->temporary[number] = r;
            return;
        }
        s->out->result[number] = r;
        s->out->p.n_result = (uint32_t)number + 1;
        return;
    }
    s->out->result[0] = sum(s), s->out->p.n_result = 1;
}

void tn_bench_parse(const char *text, struct tn_bench_program *out)
{
    struct parser s = {.out = out, .text = text, .at = text};

    memset(out, 0, sizeof *out);
    do
        statement(&s);
    while (eat(&s, ';'));
    skip(&s);
    if (*s.at)
        tn_bench_stop("program \"%s\": not understood at \"%s\"", text, s.at);
    out->p.struct_size = sizeof out->p;
    out->p.instr = out->instr, out->p.constant = out->constant, out->p.result = out->result,
    out->p.text = text;
}
