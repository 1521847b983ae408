/* test_expr.c - element-wise expressions: parsing, canonical text, uniforms, linearity, derivatives. */
#include "base/arena.h"
#include "base/status.h"
#include "graph/expr.h"
#include <check.h>
#include <math.h>
#include <stdlib.h>

static struct tn_arena *m;

/* a, b, c, d are inputs 0 to 3, s and t symbols 0 and 1. */
static const struct tn_expr_name names[] = {
    {"a", TN_EXPR_INPUT, 0, 0},   {"b", TN_EXPR_INPUT, 1, 0},   {"c", TN_EXPR_INPUT, 2, 0},
    {"d", TN_EXPR_INPUT, 3, 0},   {"s", TN_EXPR_UNIFORM, 0, 0}, {"t", TN_EXPR_UNIFORM, 1, 0},
    {"two", TN_EXPR_VALUE, 0, 2},
};
#define N_NAMES (sizeof names / sizeof *names)

static const char adamw[] = "m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g^2; "
                            "w = w - lr*(m/(1-beta1^t)/(sqrt(v/(1-beta2^t)) + eps) + weight_decay*w)";
static const struct tn_expr_name adamw_names[] = {
    {"w", TN_EXPR_INPUT, 0, 0},       {"g", TN_EXPR_INPUT, 1, 0},       {"m", TN_EXPR_INPUT, 2, 0},
    {"v", TN_EXPR_INPUT, 3, 0},       {"lr", TN_EXPR_UNIFORM, 0, 0},    {"t", TN_EXPR_UNIFORM, 1, 0},
    {"beta1", TN_EXPR_VALUE, 0, 0.9}, {"beta2", TN_EXPR_VALUE, 0, 0.95}, {"eps", TN_EXPR_VALUE, 0, 1e-8},
    {"weight_decay", TN_EXPR_VALUE, 0, 0.1},
};
static const char *const adamw_results[] = {"w", "m", "v"};

static void setup(void)
{
    m = tn_arena_new();
}

static void teardown(void)
{
    tn_arena_free(m);
}

static const struct tn_expr *parse(const char *text)
{
    const struct tn_expr *e = tn_expr_parse(m, text, names, N_NAMES, NULL, 0);

    ck_assert_msg(e != NULL, "%s: %s", text, tn_error_text());
    return e;
}

static const struct tn_expr *parse_adamw(void)
{
    const struct tn_expr *e = tn_expr_parse(m, adamw, adamw_names, sizeof adamw_names / sizeof *adamw_names,
                                            adamw_results, 3);

    ck_assert_msg(e != NULL, "%s", tn_error_text());
    return e;
}

static void same_program(const struct tn_program *x, const struct tn_program *y)
{
    ck_assert_uint_eq(x->n_instr, y->n_instr);
    ck_assert_uint_eq(x->n_constant, y->n_constant);
    ck_assert_uint_eq(x->n_uniform, y->n_uniform);
    ck_assert_uint_eq(x->n_result, y->n_result);
    ck_assert_int_eq(memcmp(x->instr, y->instr, x->n_instr * sizeof *x->instr), 0);
    ck_assert_int_eq(memcmp(x->constant, y->constant, x->n_constant * sizeof *x->constant), 0);
    ck_assert_int_eq(memcmp(x->result, y->result, x->n_result * sizeof *x->result), 0);
    ck_assert_str_eq(x->text, y->text);
}

/* Parses canonical text with the canonical names. */
static const struct tn_expr *again(const struct tn_program *p, char letter)
{
    static char buffer[TN_EXPR_INPUTS + TN_EXPR_INSTR][8];
    static struct tn_expr_name all[TN_EXPR_INPUTS + TN_EXPR_INSTR];
    static char result_name[TN_EXPR_RESULTS][12];
    const char *results[TN_EXPR_RESULTS];
    const struct tn_expr *e;

    for (uint32_t i = 0; i < TN_EXPR_INPUTS + TN_EXPR_INSTR; i++) {
        int input = i < TN_EXPR_INPUTS;

        if (input)
            snprintf(buffer[i], 8, i < 26 ? "%c" : "%c1", 'a' + (int)i % 26);
        else
            snprintf(buffer[i], 8, "%c%u", letter, i - TN_EXPR_INPUTS);
        all[i] = (struct tn_expr_name){buffer[i], input ? TN_EXPR_INPUT : TN_EXPR_UNIFORM,
                                       input ? i : i - TN_EXPR_INPUTS, 0};
    }
    for (uint32_t i = 0; i < p->n_result; i++) {
        snprintf(result_name[i], 12, "r%u", i);
        results[i] = result_name[i];
    }
    e = tn_expr_parse(m, p->text, all, TN_EXPR_INPUTS + TN_EXPR_INSTR, p->n_result > 1 ? results : NULL,
                      p->n_result);
    ck_assert_msg(e != NULL, "%s", tn_error_text());
    return e;
}

static void round_trip(const struct tn_expr *e)
{
    same_program(&e->program, &again(&e->program, 'u')->program);
    same_program(&e->whole, &again(&e->whole, 's')->whole);
}

static double value(const struct tn_expr *e, const double *input, const double *symbol)
{
    double out[TN_EXPR_RESULTS];

    tn_expr_eval(e, input, symbol, out);
    return out[0];
}

/* --- text */

static const struct { const char *text, *canonical; } canon[] = {
    {"a + b*c", "a + b*c"},
    {"(a + b)*c", "(a + b)*c"},
    {"a + (b + c)", "a + (b + c)"},
    {"a - b - c", "a - b - c"},
    {"a - (b - c)", "a - (b - c)"},
    {"a/b/c", "a/b/c"},
    {"a/(b*c)", "a/(b*c)"},
    {"a*(b/c)", "a*(b/c)"},
    {"-a^b", "-a^b"},
    {"(-a)^b", "(-a)^b"},
    {"a^b^c", "a^b^c"},
    {"(a^b)^c", "(a^b)^c"},
    {"a^-b", "a^-b"},
    {"-a*b", "-a*b"},
    {"-(a*b)", "-(a*b)"},
    {"(-2)^a", "(-2)^a"},
    {"2^a", "2^a"},
    {"-2*a", "-2*a"},
    {"a - 2 - -3", "a - 2 - -3"},
    {"min(a, max(b, c))", "min(a, max(b, c))"},
    {"select(ge(a, b), exp(a), log(b))", "select(ge(a, b), exp(a), log(b))"},
    {"2*3 + a", "6 + a"},
    {"two*a", "2*a"},
    {"0.1*a + 1e-8", "0.1*a + 1e-08"},
    {"max(a, -inf)", "max(a, -inf)"},
    {"a + nan", "a + nan"},
    {"-0*a", "-0*a"},
    {"(1 - 0.9)*a", "0.09999999999999998*a"},
    {"a^2", "a*a"},
    {"a^1", "a"},
    {"a^0", "1"},
    {"1*a", "a"},
    {"a*1", "a"},
    {"0 + a", "a"},
    {"a + 0", "a"},
    {"a/1", "a"},
    {"a - 0", "a"},
    {"--a", "a"},
    {"a*-1", "-a"},
    {"a - -b", "a + b"},
    {"a + -b", "a - b"},
    {"0*a", "0*a"},
    {"select(1, a, b)", "a"},
    {"exp(a) + exp(a)*b", "t0 = exp(a); t0 + t0*b"},
    {"a*b + exp(b*a)", "t0 = a*b; t0 + exp(t0)"},
    {"x = a; a = b; b = x; a - b", "b - a"},
    {"x = a*a; x = x + 1; x/b", "(a*a + 1)/b"},
    {"dead = exp(a); b", "b"},
    {"a;", "a"},
    {"s*a + t", "u0*a + u1"},
    {"t*a + s", "u0*a + u1"},
    {"(1 - two^t)*a + exp(s)", "u0*a + u1"},
    {"s*2", "u0"},
    {"3", "3"},
    {"gelu(a)", "0.5*a*(1 + erf(0.7071067811865476*a))"},
    {"gelu_tanh(a)", "0.5*a*(1 + tanh(0.7978845608028654*(a + 0.044715*(a*a*a))))"},
    {"silu(a)", "a/(1 + exp(-a))"},
    {"sigmoid(a)", "1/(1 + exp(-a))"},
    {"relu(a)", "max(0, a)"},
    {"rsqrt(a)", "1/sqrt(a)"},
    {"square(a + b)", "t0 = a + b; t0*t0"},
};

START_TEST(test_canonical)
{
    const struct tn_expr *e = parse(canon[_i].text);

    ck_assert_str_eq(e->program.text, canon[_i].canonical);
    round_trip(e);
}
END_TEST

START_TEST(test_results)
{
    static const char *const results[] = {"y", "x", "y", "a"};
    const struct tn_expr *e = tn_expr_parse(m, "x = exp(a)*b; y = x - s", names, N_NAMES, results, 4);

    ck_assert_ptr_nonnull(e);
    ck_assert_str_eq(e->program.text, "t0 = exp(a)*b; t1 = t0 - u0; r0 = t1; r1 = t0; r2 = t1; r3 = a");
    ck_assert_uint_eq(e->program.n_result, 4);
    ck_assert_uint_eq(e->n_input, 4);
    ck_assert_uint_eq(tn_expr_reads(e), 3);
    round_trip(e);
}
END_TEST

static const struct { const char *text; int column; } wrong[] = {
    {"", 1},           {"a +", 4},       {"a b", 3},        {"(a", 3},          {"a)", 2},
    {"foo + a", 1},    {"a + foo(b)", 5}, {"exp(a, b)", 1},  {"min(a)", 1},      {"gelu(a, b)", 1},
    {"a = ", 5},       {"1e999", 1},     {"1.2.3", 4},      {"2x", 1},          {".", 1},
    {"0x10", 1},       {"a $ b", 3},     {"a; ; b", 4},     {"exp a", 1},       {"exp()", 5},
    {"select(a,b)", 1}, {"a ^", 4},      {"= a", 1},        {"select(a,b,c,d)", 1},
};

START_TEST(test_wrong)
{
    char column[24];

    snprintf(column, sizeof column, "column %d:", wrong[_i].column);
    ck_assert_ptr_null(tn_expr_parse(m, wrong[_i].text, names, N_NAMES, NULL, 0));
    ck_assert_msg(strstr(tn_error_text(), column) != NULL, "%s: %s", wrong[_i].text, tn_error_text());
}
END_TEST

/* a-(a-(…a-b)): n + 3 instructions. */
static void nest(char *text, int n)
{
    *text = 0;
    for (int i = 0; i < n; i++)
        strcat(text, "a-(");
    strcat(text, "a-b");
    for (int i = 0; i < n; i++)
        strcat(text, ")");
}

START_TEST(test_limits)
{
    static const struct tn_expr_name many[] = {{"x", TN_EXPR_INPUT, 31, 0}, {"y", TN_EXPR_INPUT, 32, 0}};
    static const char *const missing[] = {"nowhere"};
    static char text[1 << 20] = "a";
    const struct tn_expr *e;

    ck_assert_ptr_nonnull(e = tn_expr_parse(m, "x", many, 1, NULL, 0));
    ck_assert_str_eq(e->program.text, "f1");
    round_trip(e);
    ck_assert_ptr_null(tn_expr_grad(m, e, 0, 31));
    ck_assert_ptr_null(tn_expr_parse(m, "x", many, 2, NULL, 0));
    ck_assert_ptr_null(tn_expr_parse(m, "a", names, N_NAMES, missing, 1));
    ck_assert_ptr_null(tn_expr_parse(m, "a", names, N_NAMES, missing, 0));
    for (int i = 0; i < 127; i++)
        strcat(text, "/a");
    e = parse(text);                             /* 127 divisions and a */
    ck_assert_uint_eq(e->program.n_instr, TN_EXPR_INSTR);
    round_trip(e);
    strcat(text, "/a");
    ck_assert_ptr_null(tn_expr_parse(m, text, names, N_NAMES, NULL, 0));
    for (int i = 0; i < 2000; i++)
        strcat(text, "/a");
    ck_assert_ptr_null(tn_expr_parse(m, text, names, N_NAMES, NULL, 0));
    memset(text, '(', sizeof text - 1);
    ck_assert_ptr_null(tn_expr_parse(m, text, names, N_NAMES, NULL, 0));
    memset(text, '-', sizeof text - 1);
    ck_assert_ptr_null(tn_expr_parse(m, text, names, N_NAMES, NULL, 0));
    nest(text, 126);
    ck_assert_ptr_null(tn_expr_parse(m, text, names, N_NAMES, NULL, 0));
    nest(text, 125);                             /* as deep as 128 instructions go */
    e = parse(text);
    ck_assert_uint_eq(e->program.n_instr, TN_EXPR_INSTR);
    round_trip(e);
}
END_TEST

/* --- uniforms */

START_TEST(test_adamw)
{
    const struct tn_expr *e = parse_adamw();
    double symbol[] = {1e-3, 3}, input[] = {0.5, -0.25, 0.01, 0.002}, out[3], mom, var, w;
    float uniform[3];

    ck_assert_str_eq(e->program.text, "t0 = 0.9*c + 0.09999999999999998*b; "
                     "t1 = 0.95*d + 0.050000000000000044*(b*b); "
                     "r0 = a - u0*(t0/u1/(sqrt(t1/u2) + 1e-08) + 0.1*a); r1 = t0; r2 = t1");
    ck_assert_uint_eq(e->program.n_uniform, 3);
    for (uint32_t i = 0; i < e->program.n_instr; i++)
        ck_assert_uint_ne(e->program.instr[i].op, TN_E_POW);
    tn_expr_uniforms(e, symbol, uniform);
    ck_assert(uniform[0] == 1e-3f);
    ck_assert(uniform[1] == (float)(1 - pow(0.9, 3)));
    ck_assert(uniform[2] == (float)(1 - pow(0.95, 3)));
    tn_expr_eval(e, input, symbol, out);
    mom = 0.9 * 0.01 + (1 - 0.9) * -0.25;
    var = 0.95 * 0.002 + (1 - 0.95) * 0.0625;
    w = 0.5 - 1e-3 * (mom / (1 - pow(0.9, 3)) / (sqrt(var / (1 - pow(0.95, 3))) + 1e-8) + 0.1 * 0.5);
    ck_assert_double_eq_tol(out[0], w, 1e-15);
    ck_assert_double_eq_tol(out[1], mom, 1e-15);
    ck_assert_double_eq_tol(out[2], var, 1e-15);
    round_trip(e);
}
END_TEST

/* The kernels' program with the uniforms is the whole one with the symbols. */
START_TEST(test_split)
{
    const struct tn_expr *e = parse("x = exp(s)/t; select(ge(s, t), a*x + s, b*(x - s)) + x^2*max(t, 3)"), *k;
    double symbol[] = {0.75, 1.5}, input[] = {0.3, 0.7, 0, 0}, u[8];
    float uniform[8];

    ck_assert_uint_le(e->program.n_uniform, 8);
    tn_expr_uniforms(e, symbol, uniform);
    for (uint32_t i = 0; i < e->program.n_uniform; i++)
        u[i] = uniform[i];
    k = again(&e->program, 'u');
    ck_assert_double_eq_tol(value(k, input, u), value(e, input, symbol), 1e-6);
    round_trip(e);
}
END_TEST

START_TEST(test_nan)
{
    const double one[] = {1, NAN, 0, 0}, other[] = {NAN, 1, 0, 0};

    ck_assert(isnan(value(parse("min(a, b)"), one, NULL)));
    ck_assert(isnan(value(parse("max(a, b)"), one, NULL)));
    ck_assert(isnan(value(parse("min(a, b)"), other, NULL)));
    ck_assert(isnan(value(parse("max(a, b)"), other, NULL)));
    ck_assert(isnan(value(parse("0*a"), other, NULL)));
    ck_assert(isnan(value(parse("relu(a)"), other, NULL)));
    ck_assert_str_eq(parse("min(1, nan)")->program.text, "nan");
    ck_assert_str_eq(parse("max(nan, 1)")->program.text, "nan");
    ck_assert_str_eq(parse("-(0/0) + a")->program.text, "nan + a");
}
END_TEST

/* --- linearity */

static const struct { const char *text; uint32_t mask; int linear; } linear[] = {
    {"a", 1, 1},                          {"a", 2, 0},
    {"a + b", 3, 1},                      {"a + b", 1, 0},
    {"a - b", 3, 1},                      {"a*b", 1, 1},
    {"a*b", 2, 1},                        {"a*b", 3, 0},
    {"a/b", 1, 1},                        {"a/b", 2, 0},
    {"-a", 1, 1},                         {"2*a", 1, 1},
    {"a + 1", 1, 0},                      {"s*a", 1, 1},
    {"a + s", 1, 0},                      {"a*a", 1, 0},
    {"exp(a)", 1, 0},                     {"exp(b)*a", 1, 1},
    {"exp(b)*a + c", 5, 1},               {"exp(b)*a + c", 1, 0},
    {"max(a, b)", 3, 0},                  {"min(a, 0)", 1, 0},
    {"ge(a, 0)", 1, 0},                   {"select(b, a, 0)", 1, 1},
    {"select(b, a, c)", 5, 1},            {"select(b, a, c)", 1, 0},
    {"select(a, b, c)", 1, 0},            {"select(b, a, 1)", 1, 0},
    {"select(ge(0, b), 0, a)", 1, 1},     {"a^b", 1, 0},
    {"a^1", 1, 1},                        {"0", 1, 0},
    {"3", 1, 0},                          {"a/(b + c*d)", 1, 1},
    {"0*a", 1, 1},                        {"a*b + a*c", 1, 1},
    {"select(b, 0*c, a)", 1, 0},          {"exp(b)", 1, 0},
    {"select(b, c*0, a)", 1, 0},          {"select(b, 0/c, a)", 1, 0},
    {"select(a, a, 0)", 1, 0},            {"a/a", 1, 0},
    {"max(b, a)*a", 1, 0},                {"a + 0*b", 1, 0},
};

START_TEST(test_linear)
{
    ck_assert_msg(tn_expr_linear(parse(linear[_i].text), linear[_i].mask) == linear[_i].linear, "%s by %x",
                  linear[_i].text, linear[_i].mask);
}
END_TEST

START_TEST(test_linear_results)
{
    static const char *const results[] = {"x", "y"};

    const struct tn_expr *both = tn_expr_parse(m, "x = a*b; y = 2*a", names, N_NAMES, results, 2),
                         *one = tn_expr_parse(m, "x = a*b; y = a + 2", names, N_NAMES, results, 2);

    ck_assert_int_eq(tn_expr_linear(both, 1), 1);
    ck_assert_int_eq(tn_expr_linear(one, 1), 0);
}
END_TEST

/* --- derivatives */

static const char *const smooth[] = {
    "-a", "exp(a)", "log(a)", "sqrt(a)", "tanh(a)", "erf(a)", "a + b", "a - b", "a*b", "a/b", "min(a, b)",
    "max(a, b)", "a^b", "a^2", "a^3", "a^-1.5", "2^a", "a^s", "s^a", "ge(a, b)*a",
    "select(ge(a, b), a*b, a/b)",
    "gelu(a)", "gelu_tanh(a)", "silu(a)", "relu(a)", "sigmoid(a)", "rsqrt(a)", "square(a)",
    "gelu(a - 2)", "gelu_tanh(a - 2)", "silu(a - 2)", "relu(a - 2)", "sigmoid(a - 2)", "relu(-a)",
    "s*a*b/t + a", "a*a*a/b - exp(-a*b)", "x = a*b; x*exp(x) + sqrt(x)/b", "a/s/b*3", "3/(a*s)",
    "1/(exp(-a) + 1)", "1/(2 + exp(-a))", "1/(1 + exp(a))", "sigmoid(a*b)*sigmoid(b)",
    "2*a - 3*a*b - (a - b)/4",
    "x = a - a; x*b + a", "(a + b)/(a - 3*b)", "log(exp(a) + exp(b))", "c/a + d^b", "b/(1 + exp(-a))*c",
    "x = 1 + exp(-a); b/x + 1/x + x", "a*b*c*d", "b*a - b*a + a/b", "select(b - b, a, a*a)",
};

START_TEST(test_differences)
{
    static const double points[][5] = {
        {0.7, 1.3, 0.4, 1.9, 1}, {2.1, 0.6, 1.1, 0.3, -2}, {1.4, 1.5, 0.2, 2.2, 0.5},
    };
    const double symbol[] = {0.8, 1.7}, h = 1e-6;
    const struct tn_expr *e = parse(smooth[_i]);

    for (uint32_t input = 0; input < 4; input++) {
        const struct tn_expr *grad = tn_expr_grad(m, e, 0, input);

        if (grad)
            round_trip(grad);
        if (grad)
            ck_assert_uint_eq(grad->n_input, 5);
        if (!(tn_expr_reads(e) >> input & 1))
            ck_assert_ptr_null(grad);
        for (size_t k = 0; k < sizeof points / sizeof *points; k++) {
            double up[5], down[5], want, is;

            memcpy(up, points[k], sizeof up);
            memcpy(down, points[k], sizeof down);
            up[input] += h;
            down[input] -= h;
            want = points[k][4] * (value(e, up, symbol) - value(e, down, symbol)) / (2 * h);
            is = grad ? value(grad, points[k], symbol) : 0;
            ck_assert_msg(fabs(is - want) < 1e-7 * (1 + fabs(want)), "%s by %u: %.12g, not %.12g; %s",
                          smooth[_i], input, is, want, grad ? grad->program.text : "nothing");
        }
    }
}
END_TEST

/* dy is e. */
static const struct { const char *text; uint32_t input; const char *grad; } exact[] = {
    {"a", 0, "e"},
    {"a + b", 1, "e"},
    {"a - b", 1, "-e"},
    {"3*a + 1", 0, "3*e"},
    {"2*(3*a)/4", 0, "1.5*e"},
    {"a + a", 0, "2*e"},
    {"a*a", 0, "2*(e*a)"},
    {"a*b", 0, "e*b"},
    {"a/b", 0, "e/b"},
    {"exp(a)", 0, "e*exp(a)"},
    {"s*a*2 + s*a", 0, "u0*e"},
    {"s*a/t", 0, "u0*e"},
    {"relu(a)", 0, "select(ge(0, a), 0, e)"},
    {"max(a, b)", 0, "select(ge(a, b), e, 0)"},
    {"max(a, b)", 1, "select(ge(a, b), 0, e)"},
    {"min(a, b)", 0, "select(ge(b, a), e, 0)"},
    {"select(a, b, c)", 2, "select(a, 0, e)"},
    {"a - a", 0, NULL},
    {"ge(a, b)", 0, NULL},
    {"select(a, b, c)", 0, NULL},
    {"a*b", 2, NULL},
    {"0*a", 0, NULL},
    {"s", 0, NULL},
    {"3", 0, NULL},
    {"x = a - a; x*b + b*c", 0, NULL},
    {"exp(a) + (a - a)", 0, "e*exp(a)"},
    {"0*a + exp(a)", 0, "e*exp(a)"},
};

START_TEST(test_exact)
{
    const struct tn_expr *grad = tn_expr_grad(m, parse(exact[_i].text), 0, exact[_i].input);

    if (exact[_i].grad) {
        ck_assert_ptr_nonnull(grad);
        ck_assert_str_eq(grad->program.text, exact[_i].grad);
        ck_assert_int_eq(tn_expr_linear(grad, 1u << 4), 1);
    } else
        ck_assert_ptr_null(grad);
}
END_TEST

START_TEST(test_edges)
{
    const double zero[] = {0, 0, 0, 0, 1}, far[] = {-1000, 0, 0, 0, 1}, masked[] = {-1, 0, 0, 0, INFINITY};
    const double power[] = {0, 2, 0, 0, 1};

    ck_assert(value(tn_expr_grad(m, parse("relu(a)"), 0, 0), zero, NULL) == 0);
    ck_assert(value(tn_expr_grad(m, parse("relu(a)"), 0, 0), masked, NULL) == 0);
    ck_assert(value(tn_expr_grad(m, parse("max(a, b)"), 0, 0), zero, NULL) == 1);
    ck_assert(value(tn_expr_grad(m, parse("max(a, b)"), 0, 1), zero, NULL) == 0);
    ck_assert(value(tn_expr_grad(m, parse("min(a, b)"), 0, 0), zero, NULL) == 1);
    ck_assert(value(tn_expr_grad(m, parse("min(a, b)"), 0, 1), zero, NULL) == 0);
    ck_assert(value(tn_expr_grad(m, parse("sigmoid(a)"), 0, 0), far, NULL) == 0);
    ck_assert(value(tn_expr_grad(m, parse("1/(exp(-a) + 1)"), 0, 0), far, NULL) == 0);
    ck_assert(value(tn_expr_grad(m, parse("silu(a)"), 0, 0), far, NULL) == 0);
    ck_assert(value(tn_expr_grad(m, parse("a^b"), 0, 1), power, NULL) == 0);
}
END_TEST

START_TEST(test_grad_of_result)
{
    static const char *const results[] = {"x", "y"};
    const struct tn_expr *e = tn_expr_parse(m, "x = a*b; y = exp(x)*c", names, N_NAMES, results, 2);

    ck_assert_str_eq(tn_expr_grad(m, e, 0, 0)->program.text, "e*b");
    ck_assert_str_eq(tn_expr_grad(m, e, 1, 2)->program.text, "e*exp(a*b)");
    ck_assert_ptr_null(tn_expr_grad(m, e, 0, 2));
    ck_assert_ptr_null(tn_expr_grad(m, e, 2, 0));
}
END_TEST

/* --- joins */

START_TEST(test_renumber)
{
    const struct tn_expr *e = parse("a - s*b"), *x;

    x = tn_expr_renumber(m, e, (const uint32_t[]){2, 0, 9, 9}, 3);
    ck_assert_ptr_nonnull(x);
    ck_assert_str_eq(x->program.text, "c - u0*a");
    ck_assert_uint_eq(x->n_input, 3);
    x = tn_expr_renumber(m, parse("exp(a) + exp(b)"), (const uint32_t[]){0, 0, 0, 0}, 1);
    ck_assert_str_eq(x->program.text, "t0 = exp(a); t0 + t0");
    ck_assert_ptr_null(tn_expr_renumber(m, e, (const uint32_t[]){2, 3, 0, 0}, 3));
    ck_assert_ptr_null(tn_expr_renumber(m, e, (const uint32_t[]){0, 1, 2, 3}, 33));
}
END_TEST

START_TEST(test_compose)
{
    static const char *const results[] = {"x", "y"};
    const struct tn_expr_name two[] = {{"a", TN_EXPR_INPUT, 0, 0}, {"b", TN_EXPR_INPUT, 1, 0},
                                       {"s", TN_EXPR_UNIFORM, 0, 0}};
    const struct tn_expr *a = tn_expr_parse(m, "x = a + b; y = s*x", two, 3, results, 2),
                         *b = tn_expr_parse(m, "a*exp(s - b)", two, 3, NULL, 0), *c;

    c = tn_expr_compose(m, a, 1, b, 1, 0);
    ck_assert_str_eq(c->program.text, "c*exp(u0 - u0*(a + b))");
    ck_assert_uint_eq(c->n_input, 3);
    c = tn_expr_compose(m, a, 1, b, 0, 1);
    ck_assert_str_eq(c->program.text, "t0 = a + b; t1 = u0*t0; r0 = t0; r1 = t1; r2 = t1*exp(u0 - c)");
    round_trip(c);
    ck_assert_ptr_null(tn_expr_compose(m, a, 2, b, 0, 0));
    ck_assert_ptr_null(tn_expr_compose(m, a, 0, b, 2, 0));
    c = tn_expr_compose(m, parse("1 + exp(-a)"), 0, parse("1/a"), 0, 0);
    ck_assert_str_eq(c->program.text, parse("sigmoid(a)")->program.text);
}
END_TEST

/* --- bad text never harms */

START_TEST(test_fuzz)
{
    static const char *const seeds[] = {
        "c = two*c + (1-0.9)*b; d = 0.95*d + 0.05*b^2; "
            "a = a - s*(c/(1-0.9^t)/(sqrt(d/(1-0.95^t)) + 1e-8) + 0.1*a)",
        "gelu(a)*silu(b) + select(ge(c, d), min(a, -inf), 1e-6^t)", "x = a*b; y = x^2 - (s/t); max(x, y)*2",
    };
    static const char pieces[] = "abcdstxyw019.eE+-*/^()=;, \t_$\x80";
    uint32_t state = 1, good = 0, bad = 0;

    for (int round = 0; round < 20000; round++) {
        char text[512];
        struct tn_arena *mine = tn_arena_new();
        const struct tn_expr *e;

        snprintf(text, sizeof text, "%s", seeds[round % 3]);
        for (int i = 0; i < 1 + round % 3; i++) {
            size_t n = strlen(text), at, from;

            state = state * 1664525u + 1013904223u;
            at = (state >> 8) % n;
            from = (state >> 16) % n;
            switch (state >> 29) {
            case 0:
            case 1:
                memmove(text + at, text + at + 1, n - at);
                break;
            case 2:
                text[at] = 0;
                break;
            case 3:
                memmove(text + at, text + from, n - (at > from ? at : from));
                break;
            default:
                text[at] = pieces[(state >> 4) % (sizeof pieces - 1)];
            }
            if (!*text)
                text[0] = 'a', text[1] = 0;
        }
        tn_error_clear();
        e = tn_expr_parse(mine, text, names, N_NAMES, NULL, 0);
        if (e) {
            struct tn_arena *outer = m;

            good++;
            m = mine;
            round_trip(e);
            for (uint32_t input = 0; input < 4; input++) {
                const struct tn_expr *grad = tn_expr_grad(mine, e, 0, input);

                if (grad)
                    round_trip(grad);
            }
            m = outer;
        } else {
            bad++;
            ck_assert_msg(strstr(tn_error_text(), "column ") != NULL, "%s: %s", text, tn_error_text());
        }
        tn_arena_free(mine);
    }
    ck_assert_uint_gt(good, 1000);
    ck_assert_uint_gt(bad, 1000);
}
END_TEST

#define COUNT(x) (int)(sizeof(x) / sizeof *(x))

int main(void)
{
    Suite *s = suite_create("expr");
    TCase *t = tcase_create("expr");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, test_canonical, 0, COUNT(canon));
    tcase_add_test(t, test_results);
    tcase_add_loop_test(t, test_wrong, 0, COUNT(wrong));
    tcase_add_test(t, test_limits);
    tcase_add_test(t, test_adamw);
    tcase_add_test(t, test_split);
    tcase_add_test(t, test_nan);
    tcase_add_loop_test(t, test_linear, 0, COUNT(linear));
    tcase_add_test(t, test_linear_results);
    tcase_add_loop_test(t, test_differences, 0, COUNT(smooth));
    tcase_add_loop_test(t, test_exact, 0, COUNT(exact));
    tcase_add_test(t, test_edges);
    tcase_add_test(t, test_grad_of_result);
    tcase_add_test(t, test_renumber);
    tcase_add_test(t, test_compose);
    tcase_add_test(t, test_fuzz);
    suite_add_tcase(s, t);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
