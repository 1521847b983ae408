/* test_autodiff.c - the backward as graph: adjoints of conversions, where partial sums are closed and where
 * they are kept, what is accumulated, what is dead. */
#include "../pass/build.h"

static struct tn_graph *g;
static struct tn_value *x, *w;

/* loss = Σ f(x·w): x an input [batch, embed], w a parameter [mlp, embed]; count is an input. */
static void begin(int64_t d, int64_t t)
{
    static const char *const rows[] = {"batch", "embed"}, *const out[] = {"mlp", "embed"};
    struct tn_param_spec spec = {
        .dim = out, .size = (const int64_t[]){8, 6}, .rank = 2, .file_rank = 2, .file_shape = {8, 6}};
    struct tn_mesh m = tn_mesh_single();
    struct tn_value *count;

    m.size[0] = d, m.size[4] = t;
    g = tn_graph_new(&m);
    x = tn_graph_input(g, "x", TN_F32, 2, rows, (const int64_t[]){4, 6}, 1);
    w = tn_graph_param(g, "w", &spec);
    count = tn_graph_input(g, "n", TN_F32, 0, NULL, NULL, 0);
    tn_at_end(g, TN_PROLOGUE, "head");
    tn_graph_output(g, "count", tn_expr(g, "a", TN_IN(count)));
    tn_at_end(g, TN_FORWARD, "u");
    tn_set_role(g, "part");
}

static struct tn_value *product(void)
{
    return tn_add(g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "batch", "mlp")));
}

static void end(struct tn_value *y)
{
    const struct tn_attr none = {"out", TN_ATTR_NAMES, 0, {.names = NULL}};

    tn_graph_output(g, "loss", tn_add(g, "sum", TN_IN(y), &none, 1));
    ck_assert_msg(tn_graph_autodiff(g) == TN_OK && tn_graph_verify(g) == TN_OK, "%s", tn_error_text());
}

static uint32_t backward(const char *op)
{
    return count_nodes(g, op, TN_BACKWARD, NULL);
}

START_TEST(plain)
{
    begin(1, 1);
    end(product());
    ck_assert_str_eq(tn_op(tn_producer(tn_grad(w))), "accum");
    ck_assert_str_eq(tn_role(tn_producer(tn_grad(w))), "grad_accum");
    ck_assert_str_eq(tn_op(tn_producer(tn_input(tn_producer(tn_grad(w)), 0))), "einsum");
    ck_assert_uint_eq(backward("einsum"), 1);                /* the gradient of x is nobody's business */
    ck_assert_str_eq(tn_op(tn_producer(tn_graph_find_output(g, "loss"))), "accum");
    tn_graph_free(g);
}
END_TEST

START_TEST(what_does_not_reach_the_loss_is_dead)
{
    begin(1, 1);
    tn_expr(g, "exp(a)", TN_IN(product()));
    end(product());
    ck_assert_uint_eq(count_nodes(g, "einsum", TN_FORWARD, NULL), 1);
    ck_assert_uint_eq(count_nodes(g, "expr", TN_FORWARD, NULL), 0);
    tn_graph_free(g);
}
END_TEST

START_TEST(a_parameter_out_of_use)
{
    begin(1, 1);
    tn_graph_output(g, "loss",
                    tn_add(g, "sum", TN_IN(tn_expr(g, "a*2", TN_IN(x))),
                           TN_WITH({"out", TN_ATTR_NAMES, 0, {.names = NULL}})));
    ck_assert_int_ne(tn_graph_autodiff(g), TN_OK);
    ck_assert_ptr_nonnull(
        strstr(tn_error_text(), "parameter w has no gradient: the loss does not depend on it"));
    tn_graph_free(g);
}
END_TEST

START_TEST(no_loss)
{
    begin(1, 1);
    product();
    ck_assert_int_ne(tn_graph_autodiff(g), TN_OK);
    ck_assert_ptr_nonnull(strstr(tn_error_text(), "the model gives no output named loss"));
    tn_graph_free(g);
}
END_TEST

/* What is used twice gets both contributions, added. */
START_TEST(contributions_add_up)
{
    struct tn_value *y;

    begin(1, 1);
    y = product();
    end(tn_expr(g, "a + b", TN_IN(tn_expr(g, "a*2", TN_IN(y)), tn_expr(g, "exp(a)", TN_IN(y)))));
    ck_assert_uint_eq(backward("einsum"), 1);
    ck_assert_str_eq(tn_op(tn_producer(tn_input(tn_producer(tn_input(tn_producer(tn_grad(w)), 0)), 0))),
                     "expr");
    tn_graph_free(g);
}
END_TEST

/* dp: the gradient of a parameter stays partial, for the strategy to reduce. */
START_TEST(a_parameter_keeps_its_partial_sum)
{
    begin(2, 1);
    tn_set_layout(x, "dp", tn_shard(g, "batch"));
    end(product());
    ck_assert_uint_eq(tn_layout_of(tn_grad(w), "dp"), TN_P);
    ck_assert_uint_eq(backward("all_reduce"), 0);
    tn_graph_free(g);
}
END_TEST

/* What is made of parameters alone keeps it too, so a cast or scaled weight is reduced once per update, not
 * here. */
START_TEST(so_does_what_is_made_of_it)
{
    begin(2, 1);
    tn_set_layout(x, "dp", tn_shard(g, "batch"));
    w = tn_expr(g, "a*3", TN_IN(w));
    end(product());
    ck_assert_uint_eq(tn_layout_of(tn_grad(g->params), "dp"), TN_P);
    ck_assert_uint_eq(backward("all_reduce"), 0);
    tn_graph_free(g);
}
END_TEST

/* tp: the activations before a cut projection have a partial gradient, which one all_reduce closes. */
START_TEST(an_activation_is_closed)
{
    struct tn_value *h;

    begin(1, 2);
    tn_set_layout(w, "tp", tn_shard(g, "mlp"));
    h = x = tn_expr(g, "exp(a*b)",
                    TN_IN(x, tn_graph_param(g, "v",
                                            &(struct tn_param_spec){.dim = (const char *const[]){"embed"},
                                                                    .size = (const int64_t[]){6},
                                                                    .rank = 1,
                                                                    .file_rank = 1,
                                                                    .file_shape = {6}})));
    end(tn_expr(g, "a*a", TN_IN(product())));
    ck_assert_uint_eq(backward("all_reduce"), 1);
    ck_assert_uint_eq(tn_layout_of(tn_grad(w), "tp"), tn_shard(g, "mlp"));
    ck_assert_uint_eq(tn_layout_of(tn_grad(g->last_param), "tp"), TN_R);
    ck_assert_uint_eq(tn_layout_of(h, "tp"), TN_R);
    tn_graph_free(g);
}
END_TEST

/* A branch that is partial and one that is whole: the partial one is closed before they meet. */
START_TEST(mixed_contributions)
{
    begin(1, 2);
    tn_set_layout(w, "tp", tn_shard(g, "mlp"));
    x = tn_expr(g, "a*b",
                TN_IN(x, tn_graph_param(g, "v",
                                        &(struct tn_param_spec){.dim = (const char *const[]){"embed"},
                                                                .size = (const int64_t[]){6},
                                                                .rank = 1,
                                                                .file_rank = 1,
                                                                .file_shape = {6}})));
    end(tn_expr(
        g, "a + b",
        TN_IN(tn_add(g, "sum", TN_IN(tn_convert(product(), "tp", TN_R)), TN_WITH(TN_NAMES("out", "batch"))),
              tn_add(g, "sum", TN_IN(tn_expr(g, "exp(a)", TN_IN(x))), TN_WITH(TN_NAMES("out", "batch"))))));
    ck_assert_uint_eq(backward("all_reduce"), 1);
    ck_assert_uint_eq(tn_layout_of(tn_grad(g->last_param), "tp"), TN_R);
    tn_graph_free(g);
}
END_TEST

/* At a parameter too, though it would keep a partial sum: with a whole one it cannot be added. */
START_TEST(mixed_at_a_parameter)
{
    struct tn_value *cut, *z;

    begin(2, 1);
    tn_set_layout(x, "dp", tn_shard(g, "batch"));
    cut = tn_add(g, "sum", TN_IN(product()), TN_WITH(TN_NAMES("out", "mlp")));
    z = tn_add(g, "sum", TN_IN(tn_expr(g, "exp(a)", TN_IN(w))), TN_WITH(TN_NAMES("out", "mlp")));
    end(tn_expr(g, "a + b", TN_IN(tn_convert(cut, "dp", TN_R), z)));
    ck_assert_uint_eq(backward("all_reduce"), 1);
    ck_assert_uint_eq(tn_layout_of(tn_grad(w), "dp"), TN_R);
    tn_graph_free(g);
}
END_TEST

/* The adjoint of from -> to takes the gradient from dual(to) to dual(from). */
static const struct {
    const char *from, *to, *forward, *adjoint, *absent;
} adjoints[] = {
    {"F", "R", "all_gather", "reduce_scatter", "all_reduce"}, /* its gradient is partial, and kept so */
    {"S", "R", "all_gather", "reduce_scatter", "all_reduce"},
    {"R", "S", "slice", "all_gather", "reduce_scatter"},
};

START_TEST(adjoints_of_conversions)
{
    tn_layout s, from, to;

    begin(2, 1);
    s = tn_shard(g, "mlp");
    from = *adjoints[_i].from == 'F' ? TN_F : *adjoints[_i].from == 'S' ? s : TN_R;
    to = *adjoints[_i].to == 'S' ? s : TN_R;
    tn_set_layout(w, "dp", from);
    if (to == TN_R)
        tn_set_layout(x, "dp", tn_shard(g, "batch"));
    w = tn_convert(w, "dp", to);
    end(tn_expr(g, "a*a", TN_IN(product())));
    ck_assert_uint_eq(count_nodes(g, adjoints[_i].forward, TN_FORWARD, NULL), 1);
    ck_assert_uint_eq(backward(adjoints[_i].adjoint), 1);
    ck_assert_uint_eq(backward(adjoints[_i].absent), 0);
    ck_assert_uint_eq(tn_layout_of(tn_grad(g->params), "dp"), from);
    tn_graph_free(g);
}
END_TEST

/* all_reduce backward is nothing; reduce_scatter gathers; a ring turns back; a move returns. */
START_TEST(adjoints_that_turn_back)
{
    static const struct {
        const char *words, *forward, *unit, *adjoint;
        uint32_t n, m;
    } t[] = {
        {"tp=2 sp=1", "reduce_scatter", "block0", "all_gather", 2, 2},
        {"tp=2 sp=1", "all_gather", "block0", "reduce_scatter", 2, 2},
        {"pp=2", "move", NULL, "move", 1, 1},
    };
    struct tn_graph *f = finished(t[_i].words);

    ck_assert_uint_eq(count_nodes(f, t[_i].forward, TN_FORWARD, t[_i].unit), t[_i].n);
    ck_assert_uint_eq(count_nodes(f, t[_i].adjoint, TN_BACKWARD, t[_i].unit), t[_i].m);
    tn_graph_free(f);
}
END_TEST

START_TEST(a_ring_turns_back)
{
    struct tn_value *y;
    struct tn_node *back = NULL;

    begin(1, 3);
    tn_set_layout(x, "tp", tn_shard(g, "batch"));
    y = product();
    y = tn_convert(y, "tp", tn_layout_shard(g, "batch", "", 1));
    end(tn_expr(g, "a*a", TN_IN(y)));
    for (struct tn_node *n = g->first[TN_BACKWARD]; n; n = n->next)
        if (!strcmp(n->op->name, "ring"))
            back = n;
    ck_assert_ptr_nonnull(back);
    ck_assert_int_eq(tn_node_int(back, "shift", 0), -1);
    ck_assert_uint_eq(tn_layout_of(back->out[0], "tp"), tn_shard(g, "batch"));
    tn_graph_free(g);
}
END_TEST

/* Evaluation: no backward, and every rank knows loss and count. */
START_TEST(without_a_backward)
{
    static const char *const words[] = {"tp=2 sp=1", "dp=2 zero=3", "cp=2 zigzag=1", "pp=2",
                                        "tp=2 cp=2 dp=2 pp=2"};
    struct tn_graph *f = model_of(words[_i]);
    struct tn_pass_entry entry[8];
    struct tn_pipeline p = {.pass = entry, .n_pass = passes_of(words[_i], entry)};

    ck_assert_msg(tn_pipeline_run(&p, f) == TN_OK, "%s", tn_error_text());
    ck_assert_uint_eq(count_nodes(f, NULL, TN_BACKWARD, NULL) + count_nodes(f, "assign", 0, NULL), 0);
    for (int a = 0; a < TN_AXES; a++) {
        ck_assert_uint_eq(tn_graph_find_output(f, "loss")->layout[a], TN_R);
        ck_assert_uint_eq(tn_graph_find_output(f, "count")->layout[a], TN_R);
    }
    tn_graph_free(f);
}
END_TEST

/* Kernels that know base operations only: fused ones give way, before autodiff where their gradients are not
 * known. */
static int base_only(void *ctx, const char *op)
{
    (void)ctx;
    return !tn_is(op, "layernorm", "ln_dx", "ln_dw", "attention", "attn_bwd", "head", "head_bwd", "ce",
                  "ce_bwd");
}

START_TEST(lowered_to_base_operations)
{
    static const char *const words[] = {"", "tp=2", "tp=2 sp=1 pp=2", "dp=2 zero=3", "pp=2"};
    struct tn_graph *f = model_of(words[_i]);
    struct tn_pass_entry entry[8];
    struct tn_finish finish = adamw_finish("");
    struct tn_pipeline p = {
        .pass = entry, .n_pass = passes_of(words[_i], entry), .finish = &finish, .claims = base_only};

    ck_assert_msg(tn_pipeline_run(&p, f) == TN_OK, "%s", tn_error_text());
    for (struct tn_node *n = tn_graph_first(f); n; n = tn_node_next(n))
        ck_assert_msg(base_only(NULL, n->op->name), "%s is left", n->op->name);
    tn_graph_free(f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("autodiff");
    TCase *c = tcase_create("autodiff");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_set_timeout(c, 120);
    tcase_add_test(c, plain);
    tcase_add_test(c, what_does_not_reach_the_loss_is_dead);
    tcase_add_test(c, a_parameter_out_of_use);
    tcase_add_test(c, no_loss);
    tcase_add_test(c, contributions_add_up);
    tcase_add_test(c, a_parameter_keeps_its_partial_sum);
    tcase_add_test(c, so_does_what_is_made_of_it);
    tcase_add_test(c, an_activation_is_closed);
    tcase_add_test(c, mixed_contributions);
    tcase_add_test(c, mixed_at_a_parameter);
    tcase_add_loop_test(c, adjoints_of_conversions, 0, (int)(sizeof adjoints / sizeof *adjoints));
    tcase_add_loop_test(c, adjoints_that_turn_back, 0, 3);
    tcase_add_test(c, a_ring_turns_back);
    tcase_add_loop_test(c, without_a_backward, 0, 5);
    tcase_add_loop_test(c, lowered_to_base_operations, 0, 5);
    suite_add_tcase(s, c);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
