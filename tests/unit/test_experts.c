/* test_experts.c - mixtures of experts in the graph: what cannot be, who pays for what, the dense form, and the tensors of
 * files that one parameter is. */
#include "graph/internal.h"
#include "../pass/build.h"

/* --- operations that do not fit */

static struct tn_value *given(struct tn_graph *g, const char *name, uint32_t dtype, uint32_t rank, const char *const *dim, const int64_t *size)
{
    return tn_graph_input(g, name, dtype, rank, dim, size, 1);
}
#define DIMS(...) (const char *const[]){__VA_ARGS__}
#define SIZES(...) (const int64_t[]){__VA_ARGS__}
#define CHOICES given(g, "choice", TN_I32, 3, DIMS("batch", "seq", "expert"), SIZES(4, 3, 5))
#define ROWS given(g, "x", TN_F32, 3, DIMS("batch", "seq", "embed"), SIZES(4, 3, 6))
#define VISITS given(g, "visits", TN_F32, 4, DIMS("batch", "seq", "choice", "embed"), SIZES(4, 3, 2, 6))
#define WEIGHTS given(g, "w", TN_F32, 3, DIMS("expert", "mlp", "embed"), SIZES(5, 7, 6))
#define COUNTS given(g, "count", TN_I32, 2, DIMS("block", "expert"), SIZES(1, 5))

static void too_many_visits(struct tn_graph *g)
{
    tn_add(g, "route", TN_IN(given(g, "l", TN_F32, 2, DIMS("seq", "expert"), SIZES(3, 5))), TN_WITH(TN_INT("k", 6)));
}
static void choices_with_a_point(struct tn_graph *g)
{
    tn_add(g, "arrange", TN_IN(ROWS), TN_NONE);
}
static void other_rows(struct tn_graph *g)
{
    tn_add(g, "dispatch", TN_IN(given(g, "y", TN_F32, 3, DIMS("batch", "seq", "embed"), SIZES(4, 2, 6)), CHOICES), TN_WITH(TN_INT("k", 2)));
}
static void other_width(struct tn_graph *g)
{
    tn_add(g, "grouped", TN_IN(VISITS, given(g, "w", TN_F32, 3, DIMS("expert", "mlp", "embed"), SIZES(5, 7, 5)), COUNTS), TN_NONE);
}
static void other_experts(struct tn_graph *g)
{
    tn_add(g, "grouped", TN_IN(VISITS, WEIGHTS, given(g, "n", TN_I32, 2, DIMS("block", "expert"), SIZES(1, 4))), TN_NONE);
}
static void not_packed(struct tn_graph *g)
{
    tn_convert_rows(ROWS, COUNTS, given(g, "n", TN_I32, 2, DIMS("block", "expert"), SIZES(2, 5)), "ep", tn_shard(g, "seq"));
}

static const struct {
    void (*build)(struct tn_graph *g);
    const char *words;
} wrong[] = {
    {too_many_visits, "k is 6, of 5 experts"},  {choices_with_a_point, "choices are whole numbers"}, {other_rows, "have other rows"},
    {other_width, "no dim embed of 6"},         {other_experts, "does not count the rows"},          {not_packed, "cannot go from R to S(seq)"},
};

START_TEST(what_does_not_fit)
{
    struct tn_mesh mesh = mesh_of("ep=2");
    struct tn_graph *g = tn_graph_new(&mesh);

    tn_at_end(g, TN_FORWARD, "block0");
    wrong[_i].build(g);
    ck_assert_int_ne(tn_graph_status(g), TN_OK);
    ck_assert_msg(strstr(tn_error_text(), wrong[_i].words) != NULL, "%s", tn_error_text());
    tn_graph_free(g);
}
END_TEST

/* --- who reduces, who computes what */

static struct tn_value *expert_weight(struct tn_graph *g)
{
    for (struct tn_value *v = g->params; v; v = v->next)
        if (tn_value_slices(v))
            return v;
    return NULL;
}

/* Is a gradient of a parameter like this among what an all_reduce of gradients takes on the axis? */
static int reduced(struct tn_graph *g, const char *axis, int of_expert)
{
    tn_each_node(g, n)
        if (tn_is(tn_op(n), "all_reduce") && tn_on_axis(n, axis) && tn_is(tn_role(n), "grad_reduce"))
            for (uint32_t i = 0; i < n->n_in; i++)
                if ((n->in[i]->rank == 3 && n->in[i]->dim[0] == tn_graph_name(g, "expert")) == of_expert)
                    return 1;
    return 0;
}

START_TEST(gradients_of_experts)
{
    struct tn_graph *g = finished("experts=4 dp=2 ep=2");

    ck_assert(reduced(g, "dp", 1) && reduced(g, "dp", 0));
    ck_assert(!reduced(g, "ep", 1) && reduced(g, "ep", 0));
    tn_graph_free(g);
}
END_TEST

static double flops_of(struct tn_graph *g, const char *op, int64_t rank)
{
    struct tn_mesh at = tn_mesh_at(&g->mesh, rank);
    double sum = 0;

    tn_each_node(g, n)
        sum += tn_is(tn_op(n), op) ? tn_node_flops(n, &at) : 0;
    return sum;
}

/* 4·16 rows, two visits each; three products of 16 by 24 in each of two layers, and twice that in the backward. Room for
 * the rows of all ranks does not count. */
START_TEST(flops_count_rows_that_come)
{
    static const char *const words[] = {"experts=4", "experts=4 ep=2", "experts=4 dp=2 ep=2", "experts=4 tp=2", "experts=8 ep=4"};
    struct tn_graph *g = finished(words[_i]);
    double all = 0, want = 2.0 * 4 * 16 * 2 * 3 * 16 * 24 * 2;
    int64_t world = tn_mesh_world(&g->mesh);

    for (int64_t r = 0; r < world; r++)
        all += flops_of(g, "grouped", r) + flops_of(g, "grouped_dw", r);
    ck_assert_msg(all == 3 * want, "%s: %.0f, should be %.0f", words[_i], all, 3 * want);
    tn_graph_free(g);
}
END_TEST

/* --- the dense form */

static int claims_base(void *ctx, const char *op)
{
    (void)ctx;
    return !tn_is(op, "route", "arrange", "dispatch", "combine", "gate_bwd", "grouped", "grouped_dw");
}
static int claims_most(void *ctx, const char *op)
{
    (void)ctx;
    return strcmp(op, "gate_bwd") != 0;
}

START_TEST(packed_operations_go_together)
{
    static const char *const packed[] = {"arrange", "dispatch", "combine", "gate_bwd", "grouped", "grouped_dw", "exchange"};
    struct tn_graph *g = model_of("experts=5 ep=2 tp=2");
    struct tn_pass_entry entry[8];
    struct tn_finish finish = adamw_finish("");
    struct tn_pipeline p = {.pass = entry, .n_pass = passes_of("experts=5 ep=2 tp=2", entry), .finish = &finish,
                            .claims = _i ? claims_most : claims_base};

    ck_assert_msg(tn_pipeline_run(&p, g) == TN_OK, "%s", tn_error_text());
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        ck_assert_msg(!count_nodes(g, packed[i], 0, NULL), "%s is left", packed[i]);
    ck_assert_uint_eq(count_nodes(g, "route", 0, NULL), _i ? 2 : 0);
    ck_assert_uint_eq(count_nodes(g, "all_to_all", TN_FORWARD, "block0"), 2);
    tn_graph_free(g);
}
END_TEST

/* --- tensors of files */

static const char *const cuts[] = {"experts=5 ep=2", "experts=5 ep=3 batch=6", "experts=5 tp=2", "experts=4 dp=2 zero=3", "experts=5 dp=2 ep=2 zero=3",
                                   "experts=3 dp=3 batch=6 tp=2 zero=3"};

/* Every element of every slice is held once, and where it begins is where it lies in what is held of all. */
START_TEST(slices_are_the_whole)
{
    struct tn_graph *g = finished(cuts[_i]);
    struct tn_value *w = expert_weight(g);
    int64_t world = tn_mesh_world(&g->mesh), each = w->size[1] * w->size[2], held = 0, seen = 0;

    ck_assert_int_eq(tn_value_slices(w), w->size[0]);
    for (int64_t r = 0; r < world; r++) {
        struct tn_mesh m = tn_mesh_at(&g->mesh, r);
        struct tn_local all;
        int64_t next = 0;

        tn_value_local(w, &m, g->arena, &all);
        for (int64_t e = 0; e < w->size[0]; e++) {
            struct tn_value *s = tn_value_slice(w, e, g->arena);
            struct tn_local l;

            tn_value_local(s, &m, g->arena, &l);
            ck_assert_int_eq(s->rank, 2);
            ck_assert_int_ge(l.count, 0);
            if (l.count)
                ck_assert_int_eq(tn_value_slice_start(s, &m), next);
            next += l.count;
        }
        ck_assert_int_eq(next, all.count);
        held += all.count;
    }
    for (int64_t e = 0; e < w->size[0]; e++)
        seen += each;
    ck_assert_int_eq(held % seen, 0);                        /* replicas */
    tn_graph_free(g);
}
END_TEST

START_TEST(names_of_slices)
{
    struct tn_graph *g = model_of("experts=3");
    struct tn_value *w = expert_weight(g);

    ck_assert_str_eq(w->name, "model.layers.0.block_sparse_moe.experts.*.w1.weight");
    ck_assert_str_eq(tn_value_slice(w, 2, g->arena)->name, "model.layers.0.block_sparse_moe.experts.2.w1.weight");
    ck_assert_int_eq(tn_value_slices(g->params), 0);
    tn_graph_free(g);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("experts");
    TCase *c = tcase_create("graph");
    SRunner *r;
    int failed;

    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, what_does_not_fit, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(c, gradients_of_experts);
    tcase_add_loop_test(c, flops_count_rows_that_come, 0, 5);
    tcase_add_loop_test(c, packed_operations_go_together, 0, 2);
    tcase_add_loop_test(c, slices_are_the_whole, 0, (int)(sizeof cuts / sizeof *cuts));
    tcase_add_test(c, names_of_slices);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
