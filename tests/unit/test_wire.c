/* test_wire.c - who talks to whom, and how many bytes: groups of the mesh, and what strategies send. And what a ring makes of
 * what arrives. */
#include <math.h>
#include "../pass/build.h"
#include "run/collective.h"

static void groups(const struct tn_mesh *m, const char *axis, const char *expected)
{
    int a = tn_axis_find(axis);
    char text[200] = "";

    for (int64_t r = 0; r < tn_mesh_world(m); r++) {
        struct tn_mesh at = tn_mesh_at(m, r);
        int64_t rank[8];

        ck_assert_int_eq(tn_mesh_rank(&at), r);
        tn_mesh_group(&at, a, rank);
        ck_assert_int_eq(rank[at.coord[a]], r);
        if (!at.coord[a])
            snprintf(text + strlen(text), sizeof text - strlen(text), "[%lld,%lld]", (long long)rank[0], (long long)rank[1]);
    }
    ck_assert_str_eq(text, expected);
}

START_TEST(groups_of_ranks)
{
    struct tn_mesh m = tn_mesh_single();

    m.size[0] = m.size[2] = m.size[4] = 2;
    groups(&m, "tp", "[0,1][2,3][4,5][6,7]");
    groups(&m, "pp", "[0,2][1,3][4,6][5,7]");
    groups(&m, "dp", "[0,4][1,5][2,6][3,7]");
}
END_TEST

/* Bytes that a rank sends for collectives of an operation, a phase and a unit (NULL: any), one micro-batch. */
static double sent(struct tn_graph *g, int64_t rank, const char *op, uint32_t phase, const char *unit)
{
    struct tn_mesh at = tn_mesh_at(&g->mesh, rank);
    double bytes = 0;

    tn_each_node(g, n)
        if (tn_is(tn_op(n), op) && tn_phase(n) == phase && (!unit || tn_is(tn_unit(n), unit)) && !tn_node_last(n))
            bytes += tn_collective_bytes(n, &at, g->arena);
    return bytes;
}

/* The output of a row-parallel projection, (2, 8, 16) in fp32: two in a block, forward and backward; with sp the same in
 * halves. */
START_TEST(tensor_parallel)
{
    struct tn_graph *g = finished("tp=2 batch=2 seq=8"), *s = finished("tp=2 sp=1 batch=2 seq=8");

    for (int64_t r = 0; r < 2; r++)
        for (uint32_t phase = TN_FORWARD; phase <= TN_BACKWARD; phase++) {
            ck_assert_double_eq(sent(g, r, "all_reduce", phase, "block0"), 2 * 1024);
            ck_assert_double_eq(sent(s, r, "all_gather", phase, "block0"), 2 * 512);
            ck_assert_double_eq(sent(s, r, "reduce_scatter", phase, "block0"), 2 * 512);
        }
    tn_graph_free(g), tn_graph_free(s);
}
END_TEST

START_TEST(pipeline)
{
    struct tn_graph *g = finished("pp=2 batch=2 seq=8 micro=4");

    ck_assert_double_eq(4 * sent(g, 0, "move", TN_FORWARD, NULL), 4096);
    ck_assert_double_eq(4 * sent(g, 1, "move", TN_BACKWARD, NULL), 4096);
    ck_assert_double_eq(sent(g, 1, "move", TN_FORWARD, NULL) + sent(g, 0, "move", TN_BACKWARD, NULL), 0);
    tn_graph_free(g);
}
END_TEST

/* Keys and values of (2, 8, 16), positions of 8: round a ring of two, or gathered, each rank sends its half once. dk and dv
 * are on their way twice in a ring, for it closes; gathered keys' are scattered. */
START_TEST(context_parallel)
{
    const double half = 512, positions = 16;
    struct tn_graph *ring = finished("cp=2 batch=2 seq=8"), *all = finished("cp=2 ring=0 batch=2 seq=8");

    ck_assert_double_eq(sent(ring, 0, "ring", TN_FORWARD, "block0"), 2 * half + positions);
    ck_assert_double_eq(sent(all, 0, "all_gather", TN_FORWARD, "block0"), 2 * half + positions);
    ck_assert_double_eq(sent(ring, 0, "ring", TN_BACKWARD, "block0"), 2 * half + positions + 4 * half);
    ck_assert_double_eq(sent(all, 0, "reduce_scatter", TN_BACKWARD, "block0"), 2 * half);
    tn_graph_free(ring), tn_graph_free(all);
}
END_TEST

/* Two parts of attention with unnormalised masses of 1 and 3, so log-sum-exp 0 and log 3, weigh a quarter and three quarters;
 * their mass is 4. As large as exp of them would not be. */
START_TEST(parts_of_a_ring_are_weighed_by_their_mass)
{
    struct tn_graph *g = finished("cp=2 batch=2 seq=8");
    const struct tn_node *merge = NULL;

    for (struct tn_node *n = g->first[TN_FORWARD]; n; n = n->next)
        if (n->expr && n->n_in == 5 && !strcmp(n->in[4]->producer->op->name, "expr") && !strcmp(n->in[0]->producer->op->name, "attention"))
            merge = n;
    ck_assert_ptr_nonnull(merge);
    for (int large = 0; large < 2; large++) {
        double lse[2] = {large * 1000.0, large * 1000.0 + log(3)}, sum, weight;

        tn_expr_eval(merge->in[4]->producer->expr, lse, NULL, &sum);
        ck_assert_double_eq_tol(sum, large * 1000.0 + log(4), 1e-12);
        tn_expr_eval(merge->expr, (double[]){1, lse[0], 0, lse[1], sum}, NULL, &weight);
        ck_assert_double_eq_tol(weight, 0.25, 1e-12);
        tn_expr_eval(merge->expr, (double[]){0, lse[0], 1, lse[1], sum}, NULL, &weight);
        ck_assert_double_eq_tol(weight, 0.75, 1e-12);
    }
    tn_graph_free(g);
}
END_TEST

/* Gradients of S bytes: an all_reduce sends 2(D-1)S/D, scattering or gathering (D-1)S/D. */
START_TEST(data_parallel)
{
    struct tn_graph *d = finished("dp=2"), *z = finished("dp=2 zero=2");
    double bytes = 0, reduced = 0;

    for (const struct tn_value *v = d->params; v; v = v->next)
        bytes += 4 * (double)tn_value_count(v);
    tn_each_node(d, n)
        reduced += tn_is(tn_role(n), "grad_reduce") ? tn_collective_bytes(n, &d->mesh, d->arena) : 0;
    ck_assert_double_eq(reduced, bytes);
    ck_assert_double_eq_tol(sent(z, 0, "reduce_scatter", TN_BACKWARD, NULL), bytes / 2, 1);
    ck_assert_double_eq_tol(sent(z, 0, "all_gather", TN_AFTER, NULL), bytes / 2, 1);
    tn_graph_free(d), tn_graph_free(z);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("wire");
    TCase *c = tcase_create("wire");
    SRunner *r = srunner_create(s);
    int failed;

    tcase_set_timeout(c, 120);
    tcase_add_test(c, groups_of_ranks);
    tcase_add_test(c, tensor_parallel);
    tcase_add_test(c, pipeline);
    tcase_add_test(c, context_parallel);
    tcase_add_test(c, parts_of_a_ring_are_weighed_by_their_mass);
    tcase_add_test(c, data_parallel);
    suite_add_tcase(s, c);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
