/* test_head.c - when the head and its gradient become one launch, and when they do not. What they compute is compared in
 * test_run.c (every option of the planner on and off) and in tests/conformance. */
#include "plan_kit.h"

#define TEXT(s) TN_TEXT("f", s)

/* Rows of each kind: "head", "head_bwd", "head_train". */
static void has(const struct tn_plan *plan, int head, int back, int train)
{
    ck_assert_int_eq(kit_count(plan, "head"), head);
    ck_assert_int_eq(kit_count(plan, "head_bwd"), back);
    ck_assert_int_eq(kit_count(plan, "head_train"), train);
}

static void drop(struct tn_graph *g, struct tn_plan *plan)
{
    tn_plan_free(plan);
    if (g)
        tn_graph_free(g);
}

static uint32_t row_of(const struct tn_plan *plan, const char *op)
{
    uint32_t r = 0;

    while (r < plan->n_row && strcmp(plan->row[r].op, op))
        r++;
    ck_assert_uint_lt(r, plan->n_row);
    return r;
}

START_TEST(training_makes_the_logits_once)
{
    for (int tied = 0; tied < 2; tied++) {
        struct tn_graph *g = kit_gpt2(2, 4, 0.1, tied, NULL);
        struct tn_plan *plan = kit_plan(g, NULL, &(struct tn_plan_options){.n_micro = 2});
        const struct tn_row *row = &plan->row[row_of(plan, "head_train")];

        has(plan, 0, 0, 1);
        ck_assert_uint_eq(row->list, TN_LIST_FORWARD);
        ck_assert_uint_eq(row->n_in, 5);
        ck_assert_uint_eq(row->n_out, 4);
        ck_assert_double_eq(row->flops, 6.0 * 4 * 5 * 8 * 13);
        ck_assert_int_ne(row->kernel[0], row->kernel[1]);  /* the gradient is overwritten, then added to */
        drop(g, plan);
    }
}
END_TEST

static int refuses_train(const struct tn_problem *p)
{
    return !strcmp(p->op, "head_train");
}

START_TEST(not_if_the_plugin_or_the_options_will_not)
{
    struct tn_graph *g = kit_gpt2(1, 8, 0, 1, NULL);
    struct tn_plan *plan = kit_plan(g, NULL, &(struct tn_plan_options){.no_fuse = 1});

    has(plan, 1, 1, 0);
    drop(NULL, plan);
    kit_refuses = refuses_train;
    plan = kit_plan(g, kit_picky(), NULL);
    kit_refuses = NULL;
    has(plan, 1, 1, 0);
    drop(g, plan);
}
END_TEST

/* loss = sum of text(lse, z) over rows; its gradient, as a plan with the parameters' gradients kept. */
static struct tn_plan *plan_of(const char *text, struct tn_graph **out)
{
    struct tn_graph *g = kit_graph();
    struct tn_value *x = tn_graph_input(g, "x", TN_F32, 2, DIMS("batch", "embd"), SIZES(6, 4), 0), *i, *ones, *h, *row, *keep[2];
    struct tn_value *w = kit_param(g, "w", 2, DIMS("vocab", "embd"), SIZES(9, 4));
    struct tn_value *v = kit_param(g, "v", 1, DIMS("embd"), SIZES(4));
    struct tn_attr none = {"out", TN_ATTR_NAMES, 0, {.names = NULL}};

    i = tn_graph_input(g, "i", TN_I32, 1, DIMS("batch"), SIZES(6), 0);
    tn_at_end(g, TN_PROLOGUE, "count");
    ones = tn_add(g, "expr", TN_IN(i), TN_WITH(TEXT("ge(a, 0)")));
    tn_graph_output(g, "count", tn_add(g, "sum", TN_IN(ones), &none, 1));
    tn_at_end(g, TN_FORWARD, "unit");
    h = tn_add(g, "head", TN_IN(tn_expr(g, "a*b", TN_IN(x, v)), w, i), TN_NONE);
    row = tn_add(g, "expr", TN_IN(h, tn_output(tn_producer(h), 1)), TN_WITH(TEXT(text)));
    tn_graph_output(g, "loss", tn_add(g, "sum", TN_IN(row), &none, 1));
    ck_assert_msg(!tn_graph_autodiff(g), "%s", tn_error_text());
    keep[0] = tn_grad(w), keep[1] = tn_grad(v);
    *out = g;
    return kit_plan(g, NULL, &(struct tn_plan_options){.keep = keep, .n_keep = 2});
}

/* A loss that bends needs the log-sum-exp before its gradient is known. */
START_TEST(not_if_the_gradient_depends_on_the_logits)
{
    struct tn_graph *g;
    struct tn_plan *plan = plan_of("a - b", &g);
    uint32_t train = row_of(plan, "head_train");

    has(plan, 0, 0, 1);
    for (uint32_t r = 0; r < plan->n_row; r++)   /* what it reads is made before it, and lists stay together */
        ck_assert(r >= train ? plan->row[r].list >= TN_LIST_FORWARD : plan->row[r].list <= TN_LIST_FORWARD);
    drop(g, plan);
    plan = plan_of("a*a - b", &g);
    has(plan, 1, 1, 0);
    drop(g, plan);
    plan = plan_of("a - b*b", &g);
    has(plan, 1, 1, 0);
    drop(g, plan);
}
END_TEST

KIT_MAIN("head", training_makes_the_logits_once, not_if_the_plugin_or_the_options_will_not,
         not_if_the_gradient_depends_on_the_logits)
