/* formula.c - see formula.h. Unary minus binds less than ^, which binds to the right: -x^2 is -(x^2). */
#include "formula.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct formula *f;
    const char *text, *at;                       /* the whole, and how far it was read */
    int depth;
};

static double sum(struct reader *r);

static int find(const struct formula *f, const char *name)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (!strcmp(f->name[i], name))
            return (int)i;
    return -1;
}

void formula_set(struct formula *f, const char *name, double value)
{
    int i = find(f, name);

    if (i < 0 && f->n < FORMULA_NAMES)
        snprintf(f->name[i = (int)f->n++], sizeof f->name[0], "%s", name);
    if (i >= 0)
        f->value[i] = value;
}

double formula_get(const struct formula *f, const char *name)
{
    const int i = find(f, name);

    return i < 0 ? NAN : f->value[i];
}

/* at: where it is, which is not always how far it was read. */
static double fail_at(struct reader *r, const char *at, const char *what)
{
    if (!*r->f->error)
        snprintf(r->f->error, sizeof r->f->error, "column %d: %s at \"%.40s\"", (int)(at - r->text) + 1, what, at);
    return NAN;
}

static double fail(struct reader *r, const char *what)
{
    return fail_at(r, r->at, what);
}

static void skip(struct reader *r)
{
    r->at += strspn(r->at, " \t\r\n");
}

static int eat(struct reader *r, char c)
{
    skip(r);
    return *r->at == c ? r->at++, 1 : 0;
}

static size_t word(struct reader *r, char *out, size_t room)
{
    size_t n = 0;

    skip(r);
    if (isalpha((unsigned char)*r->at) || *r->at == '_')
        while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_')
            n++;
    snprintf(out, room, "%.*s", (int)n, r->at);
    return n;
}

static double larger(double a, double b, int least)
{
    return isnan(a) || isnan(b) ? NAN : least ? fmin(a, b) : fmax(a, b);
}

static double apply(struct reader *r, const char *name, const char *at, const double *x, uint32_t n)
{
    static const char *const known[] = {"exp", "log", "sqrt", "tanh", "erf", "square", "rsqrt", "sigmoid", "relu", "silu",
                                        "gelu", "gelu_tanh", "min", "max", "ge", "select"};
    static const uint8_t takes[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3};
    const double a = x[0];
    size_t k = 0;

    while (k < sizeof takes && strcmp(known[k], name))
        k++;
    if (k == sizeof takes || takes[k] != n)
        return fail_at(r, at, k == sizeof takes ? "no such function" : "another number of arguments");
    switch (k) {
    case 0: return exp(a);
    case 1: return log(a);
    case 2: return sqrt(a);
    case 3: return tanh(a);
    case 4: return erf(a);
    case 5: return a * a;
    case 6: return 1 / sqrt(a);
    case 7: return 1 / (1 + exp(-a));
    case 8: return larger(a, 0, 0);
    case 9: return a / (1 + exp(-a));
    case 10: return 0.5 * a * (1 + erf(a / sqrt(2)));
    case 11: return 0.5 * a * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (a + 0.044715 * a * a * a)));
    case 12: return larger(a, x[1], 1);
    case 13: return larger(a, x[1], 0);
    case 14: return a >= x[1];
    default: return a != 0 ? x[1] : x[2];
    }
}

static double call(struct reader *r, const char *name, const char *at)
{
    double x[3] = {0};
    uint32_t n = 0;

    do {
        const double v = sum(r);

        if (n == 3)
            return fail(r, "too many arguments");
        x[n++] = v;
    } while (eat(r, ','));
    return eat(r, ')') ? apply(r, name, at, x, n) : fail(r, "')' expected");
}

static double atom(struct reader *r)
{
    char name[40], *end;
    size_t n;

    if (r->depth++ > 200)
        return fail(r, "too deep");
    if (eat(r, '(')) {
        const double v = sum(r);

        return eat(r, ')') ? v : fail(r, "')' expected");
    }
    n = word(r, name, sizeof name);
    if (!n) {
        const double v = strtod(r->at, &end);

        if (end == r->at)
            return fail(r, "a number or a name expected");
        r->at = end;
        return v;
    }
    if (find(r->f, name) < 0 && !strcmp(name, "inf"))
        return r->at += n, INFINITY;
    if (r->at[n + strspn(r->at + n, " ")] == '(') {
        const char *at = r->at;

        r->at += n;
        eat(r, '(');
        return call(r, name, at);
    }
    if (find(r->f, name) < 0)
        return fail(r, "no such name");
    r->at += n;
    return formula_get(r->f, name);
}

static double unary(struct reader *r)
{
    double v;

    if (eat(r, '-'))
        return -unary(r);
    v = atom(r);
    r->depth--;
    return eat(r, '^') ? pow(v, unary(r)) : v;
}

static double product(struct reader *r)
{
    double v = unary(r);

    for (;;)
        if (eat(r, '*'))
            v *= unary(r);
        else if (eat(r, '/'))
            v /= unary(r);
        else
            return v;
}

static double sum(struct reader *r)
{
    double v = product(r);

    for (;;)
        if (eat(r, '+'))
            v += product(r);
        else if (eat(r, '-'))
            v -= product(r);
        else
            return v;
}

int formula_run(struct formula *f, const char *text)
{
    struct reader r = {f, text, text, 0};

    *f->error = 0;
    for (skip(&r); *r.at && !*f->error; skip(&r)) {
        char name[40];
        const size_t n = word(&r, name, sizeof name);

        if (!n || r.at[n + strspn(r.at + n, " \t\r\n")] != '=') {
            fail(&r, "NAME = expected");
            break;
        }
        r.at += n;
        eat(&r, '=');
        formula_set(f, name, sum(&r));
        if (!eat(&r, ';') && *r.at)
            fail(&r, "';' expected");
    }
    return !*f->error;
}
