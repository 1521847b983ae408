/* test_optimizers.c - the optimizer plugins against the algorithms of torch.optim, written out as they are there.
 *
 * A plugin's update is text; it is compiled by the core and evaluated in double for one weight over some steps.
 * The other side is PyTorch's own order of operations (bias corrections on step size and root, the first momentum
 * a copy of the gradient), so what agrees to 1e-12 is the same formula. */
#include <math.h>
#include <tenon/optimizer.h>

#include "base/arena.h"
#include "graph/expr.h"
#include "plugin_file.h"

#define STEPS 6
#define MAX_OPTIONS 8

struct state {
    double w, g, a, b;                           /* a, b: the memory */
    int t;
};
typedef void reference(struct state *s, const double *o, double lr);

static void ref_sgd(struct state *s, const double *o, double lr)
{
    double g = s->g + o[2] * s->w;

    if (o[0] != 0) {
        s->a = s->t == 1 ? g : o[0] * s->a + g;
        g = o[1] != 0 ? g + o[0] * s->a : s->a;
    }
    s->w -= lr * g;
}

static void ref_adagrad(struct state *s, const double *o, double lr)
{
    double g = s->g + o[1] * s->w;

    s->a += g * g;
    s->w -= lr * g / (sqrt(s->a) + o[0]);
}

static void ref_rmsprop(struct state *s, const double *o, double lr)
{
    double g = s->g + o[3] * s->w;

    s->a = o[0] * s->a + (1 - o[0]) * g * g;
    double root = sqrt(s->a) + o[1];
    if (o[2] != 0) {
        s->b = o[2] * s->b + g / root;
        s->w -= lr * s->b;
    } else {
        s->w -= lr * g / root;
    }
}

static void adam_step(struct state *s, const double *o, double lr, double g)
{
    double c1 = 1 - pow(o[0], s->t), c2 = 1 - pow(o[1], s->t);

    s->a += (g - s->a) * (1 - o[0]);
    s->b = o[1] * s->b + (1 - o[1]) * g * g;
    s->w -= lr / c1 * s->a / (sqrt(s->b) / sqrt(c2) + o[2]);
}

static void ref_adam(struct state *s, const double *o, double lr)
{
    adam_step(s, o, lr, s->g + o[3] * s->w);
}

static void ref_adamw(struct state *s, const double *o, double lr)
{
    s->w *= 1 - lr * o[3];
    adam_step(s, o, lr, s->g);
}

/* Of its paper's algorithm 2; torch.optim has none. */
static void ref_lion(struct state *s, const double *o, double lr)
{
    double c = o[0] * s->a + (1 - o[0]) * s->g, sign = c > 0 ? 1 : c < 0 ? -1 : 0;

    s->a = o[1] * s->a + (1 - o[1]) * s->g;
    s->w -= lr * (sign + o[2] * s->w);
}

static const struct {
    const char *name;
    reference *step;
    uint32_t slots;
    double value[MAX_OPTIONS];                   /* of the options in order */
    const char *presets;                         /* "" : not looked at */
} cases[] = {
    {"sgd", ref_sgd, 0, {0, 0, 0}, "momentum=0 nesterov=no weight_decay=0 "},
    {"sgd", ref_sgd, 0, {0, 1, 0.1}, ""},
    {"sgd", ref_sgd, 1, {0.9, 0, 0.1}, ""},
    {"sgd", ref_sgd, 1, {0.9, 1, 0.1}, ""},
    {"adagrad", ref_adagrad, 1, {1e-10, 0}, "eps=1e-10 weight_decay=0 "},
    {"adagrad", ref_adagrad, 1, {1e-3, 0.1}, ""},
    {"rmsprop", ref_rmsprop, 1, {0.99, 1e-8, 0, 0}, "alpha=0.99 eps=1e-8 momentum=0 weight_decay=0 "},
    {"rmsprop", ref_rmsprop, 1, {0.9, 1e-2, 0, 0.1}, ""},
    {"rmsprop", ref_rmsprop, 2, {0.9, 1e-2, 0.8, 0.1}, ""},
    {"adam", ref_adam, 2, {0.9, 0.999, 1e-8, 0}, "beta1=0.9 beta2=0.999 eps=1e-8 weight_decay=0 "},
    {"adam", ref_adam, 2, {0.8, 0.9, 1e-2, 0.1}, ""},
    {"adamw", ref_adamw, 2, {0.9, 0.95, 1e-8, 0.1}, "beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.1 "},
    {"adamw", ref_adamw, 2, {0.8, 0.9, 1e-2, 0.3}, ""},
    {"lion", ref_lion, 1, {0.95, 0.98, 0}, "beta1=0.9 beta2=0.99 weight_decay=0 "},
    {"lion", ref_lion, 1, {0.5, 0.8, 0.3}, ""},
};

struct compiled {
    const struct tn_expr *expr;
    uint32_t slots, options;
};

/* Inputs: w, g, slots; symbols: lr, t, options; results: w, slots. */
static struct compiled compile(struct tn_arena *arena, const struct tn_optimizer *o, const double *value)
{
    struct tn_expr_name name[4 + MAX_OPTIONS + 2] = {{"w", TN_EXPR_INPUT, 0, 0}, {"g", TN_EXPR_INPUT, 1, 0},
                                                     {"lr", TN_EXPR_UNIFORM, 0, 0}, {"t", TN_EXPR_UNIFORM, 1, 0}};
    const char *result[3] = {"w"}, *update = o->update;
    const struct tn_slot *slot = o->slots;
    struct compiled c = {0};
    uint32_t n = 4;

    if (o->choose)
        o->choose(value, &slot, &update);
    for (; slot && slot[c.slots].name; c.slots++) {
        ck_assert_uint_eq(slot[c.slots].dtype, TN_F32);
        name[n++] = (struct tn_expr_name){slot[c.slots].name, TN_EXPR_INPUT, 2 + c.slots, 0};
        result[1 + c.slots] = slot[c.slots].name;
    }
    for (; o->options[c.options].key; c.options++)
        name[n++] = (struct tn_expr_name){o->options[c.options].key, TN_EXPR_UNIFORM, 2 + c.options, 0};
    c.expr = tn_expr_parse(arena, update, name, n, result, 1 + c.slots);
    ck_assert_msg(c.expr != NULL, "%s: %s", update, tn_error_text());
    return c;
}

static void check_presets(const struct tn_optimizer *o, const char *want)
{
    char text[256] = "";

    for (const struct tn_option *k = o->options; k->key; k++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s=%s ", k->key, k->preset);
        ck_assert(k->help && *k->help && k->low < k->high);
    }
    if (*want)
        ck_assert_str_eq(text, want);
}

START_TEST(is_the_formula_of_pytorch)
{
    const struct tn_optimizer *o = plugin_file(cases[_i].name, TN_OPTIMIZER_ID);
    const double *value = cases[_i].value, lr = 0.05;
    struct tn_arena *arena = tn_arena_new();
    struct compiled c = compile(arena, o, value);
    struct state s = {.w = 0.7};
    double input[4] = {0.7}, symbol[2 + MAX_OPTIONS] = {lr}, result[3];

    check_presets(o, cases[_i].presets);
    ck_assert_uint_eq(c.slots, cases[_i].slots);
    memcpy(symbol + 2, value, c.options * sizeof *value);
    for (s.t = 1; s.t <= STEPS; s.t++) {
        s.g = input[1] = sin(3.0 * s.t) + 0.2;
        symbol[1] = s.t;
        cases[_i].step(&s, value, lr);
        tn_expr_eval(c.expr, input, symbol, result);
        ck_assert_msg(fabs(result[0] - s.w) <= 1e-12, "%s, step %d: %.17g, PyTorch %.17g", cases[_i].name, s.t, result[0],
                      s.w);
        input[0] = result[0];
        for (uint32_t i = 0; i < c.slots; i++)
            input[2 + i] = result[1 + i];
    }
    ck_assert(fabs(s.w - 0.7) > 1e-3);           /* it moved at all */
    tn_arena_free(arena);
}
END_TEST

/* Text of the update as libcore/pass/finish.c makes it, and as plugins/cpu/update.c knows it: where the two differ
 * the loop made for it would never run. */
static const struct {
    const char *before, *text;
} known[] = {
    {"", "t0 = 0.75*c + 0.25*b; t1 = 0.875*d + 0.125*b*b; "
         "r0 = a*u0 - u1*(t0/u2/(sqrt(t1/u3) + 1e-08)); r1 = t0; r2 = t1"},
    {"g = g*clip_factor; ", "t0 = b*e; t1 = 0.75*c + 0.25*t0; t2 = 0.875*d + 0.125*t0*t0; "
                            "r0 = a*u0 - u1*(t1/u2/(sqrt(t2/u3) + 1e-08)); r1 = t1; r2 = t2"},
    {"g = g*(1/loss_scale); ", "t0 = b*u2; t1 = 0.75*c + 0.25*t0; t2 = 0.875*d + 0.125*t0*t0; "
                               "r0 = a*u0 - u1*(t1/u3/(sqrt(t2/u4) + 1e-08)); r1 = t1; r2 = t2"},
    {"g = g*(1/loss_scale); g = g*clip_factor; ",
     "t0 = b*u2*e; t1 = 0.75*c + 0.25*t0; t2 = 0.875*d + 0.125*t0*t0; "
     "r0 = a*u0 - u1*(t1/u3/(sqrt(t2/u4) + 1e-08)); r1 = t1; r2 = t2"},
};

START_TEST(adamw_has_the_text_that_cpu_knows)
{
    static const struct tn_expr_name name[] = {
        {"w", TN_EXPR_INPUT, 0, 0},       {"g", TN_EXPR_INPUT, 1, 0},           {"m", TN_EXPR_INPUT, 2, 0},
        {"v", TN_EXPR_INPUT, 3, 0},       {"clip_factor", TN_EXPR_INPUT, 4, 0}, {"lr", TN_EXPR_UNIFORM, 0, 0},
        {"t", TN_EXPR_UNIFORM, 1, 0},     {"loss_scale", TN_EXPR_UNIFORM, 2, 0}, {"beta1", TN_EXPR_VALUE, 0, 0.75},
        {"beta2", TN_EXPR_VALUE, 0, 0.875}, {"eps", TN_EXPR_VALUE, 0, 1e-8},     {"weight_decay", TN_EXPR_VALUE, 0, 0.1},
    };
    const struct tn_optimizer *o = plugin_file("adamw", TN_OPTIMIZER_ID);
    const char *result[] = {"w", "m", "v"};
    struct tn_arena *arena = tn_arena_new();
    const struct tn_expr *e;

    e = tn_expr_parse(arena, tn_text(arena, "%s%s", known[_i].before, o->update), name, sizeof name / sizeof *name,
                      result, 3);
    ck_assert_msg(e != NULL, "%s", tn_error_text());
    ck_assert_str_eq(e->program.text, known[_i].text);
    tn_arena_free(arena);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("optimizers");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, is_the_formula_of_pytorch, 0, sizeof cases / sizeof *cases);
    tcase_add_loop_test(c, adamw_has_the_text_that_cpu_knows, 0, sizeof known / sizeof *known);
    suite_add_tcase(s, c);
    return plugin_suite_run(s);
}
