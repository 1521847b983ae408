/* test_gradient.c - the gradient of every operation against differences of its values, and every
 * decomposition against the operation as a whole.
 *
 * The loss of a case (gradient_cases.h) is Σ r·out with random r, so that every output and every element has
 * a gradient of its own. Each element of each parameter is moved by ±h and ±2h; the two central differences
 * are extrapolated (Richardson), so that the error is h⁴ and a step of 0.02, large beside fp32's rounding, is
 * still small beside the function.
 *
 * The cases are found by the names in the op table: an operation that has a gradient or a decomposition and
 * no case here is a failure. Collectives have none: on one process there is nothing to convert, so none can
 * be made. */
#include "gradient_cases.h"
#include "graph/op.h"

#define H 0.02
#define TOLERANCE 5e-4 /* of the largest gradient; wrong ones are off by its size */
#define SAME 3e-6      /* whole and in parts, of the largest number */

/* --- a case as a graph that runs. 0: no kernel knows it as a whole. */

static void add_loss(struct graph *c)
{
    struct tn_value *loss = NULL;
    uint64_t s = 11;

    for (uint32_t o = 0; o < c->n_out; o++) {
        struct tn_value *v = c->out[o], *r;
        char *name;

        ck_assert_msg(v != NULL, "%s", tn_graph_status(c->t.g) ? tn_error_text() : "nothing");
        name = tn_text(c->t.g->arena, "r%u", o);
        ck_assert_int_le(tn_value_count(v), 256);
        for (int64_t i = 0; i < tn_value_count(v); i++)
            c->r[o][i] = trial_random(&s);
        r = trial_input(&c->t, name, TN_F32, v->rank, v->dim, v->size, c->r[o]);
        trial_keep(&c->t, c->prod[o] = tn_expr(c->t.g, "a*b", TN_IN(v, r)));
        v = c->prod[o]->rank ? trial_sum(&c->t, c->prod[o]) : c->prod[o];
        loss = loss ? tn_expr(c->t.g, "a + b", TN_IN(loss, v)) : v;
    }
    trial_loss(&c->t, loss);
    c->one = 1;
    trial_count(&c->t, trial_input(&c->t, "one", TN_F32, 1, DIMS("one"), SIZES(1), &c->one), ALL);
}

static int open_case(struct graph *c, uint32_t number, int kernels, int parts)
{
    const struct tn_op *op = tn_op_find(cases[number].op);
    uint64_t s = 17 + number;

    memset(c, 0, sizeof *c);
    c->t = trial_begin(kernels);
    ck_assert_msg(op != NULL, "the op table has no %s", cases[number].op);
    if (parts ? !op->decompose : op->decompose && !trial_claims(&c->t, op->name)) {
        tn_graph_free(c->t.g);
        return 0;
    }
    c->t.without = parts ? op->name : NULL;
    cases[number].build(c);
    add_loss(c);
    trial_open(&c->t);
    for (struct tn_value *p = c->t.g->params; p; p = p->next) {
        float w[256];
        for (int64_t i = 0; i < tn_value_count(p); i++)
            w[i] = trial_random(&s);
        trial_set(&c->t, p->name, w, (uint64_t)tn_value_count(p));
    }
    return 1;
}

static int uses(const struct graph *c, const char *op)
{
    for (const struct tn_node *n = tn_graph_first(c->t.g); n; n = tn_node_next(n))
        if (!strcmp(n->op->name, op))
            return 1;
    return 0;
}

/* --- differences */

static double loss_at(struct graph *c, const char *name, float *w, uint64_t n, uint64_t i, double x)
{
    float before = w[i];
    double loss;

    w[i] = (float)x;
    trial_set(&c->t, name, w, n);
    loss = trial_compute(&c->t);
    w[i] = before;
    trial_set(&c->t, name, w, n);
    return loss;
}

/* (f(x + h) - f(x - h)) / 2h, with the step that fp32 really made. */
static double central(struct graph *c, const char *name, float *w, uint64_t n, uint64_t i, double h)
{
    double up = (double)(float)((double)w[i] + h), down = (double)(float)((double)w[i] - h);

    return (loss_at(c, name, w, n, i, up) - loss_at(c, name, w, n, i, down)) / (up - down);
}

static void check_param(struct graph *c, const struct tn_value *p, const char *what)
{
    uint64_t n = (uint64_t)tn_value_count(p);
    double difference[256], largest = 0;
    float w[256], grad[256];

    trial_compute(&c->t);
    trial_gradient(&c->t, p, grad);
    trial_get(&c->t, p->name, w, n);
    for (uint64_t i = 0; i < n; i++) {
        difference[i] = (4 * central(c, p->name, w, n, i, H) - central(c, p->name, w, n, i, 2 * H)) / 3;
        largest = fmax(largest, fabs(difference[i]));
    }
    ck_assert_msg(largest > 1e-2, "%s: %s has no gradient to speak of", what, p->name);
    for (uint64_t i = 0; i < n; i++)
        ck_assert_msg(fabs((double)grad[i] - difference[i]) <= TOLERANCE * largest,
                      "%s: gradient of %s[%u] is %g, by differences %g", what, p->name, (unsigned)i,
                      (double)grad[i], difference[i]);
}

static void differences(int number, int kernels)
{
    static const char *const way[] = {"whole", "in parts"};
    static struct graph c;
    int ways = 0;

    for (int parts = 0; parts < 2; parts++) {
        char what[100];

        if (!open_case(&c, (uint32_t)number, kernels, parts))
            continue;
        ways++;
        snprintf(what, sizeof what, "%s (case %d, %s, kernels %s)", cases[number].op, number, way[parts],
                 c.t.kernels[0].name);
        for (const struct tn_value *p = c.t.g->params; p; p = p->next)
            check_param(&c, p, what);
        trial_close(&c.t);
    }
    ck_assert_msg(ways > 0, "%s was never run", cases[number].op);
}

START_TEST(gradients_are_differences)
{
    differences(_i, 0);
}
END_TEST

START_TEST(gradients_are_differences_on_cpu)
{
    differences(_i, 1);
}
END_TEST

/* --- whole and in parts */

static double largest_of(const float *x, uint32_t n)
{
    double most = 0;

    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

static void compare(struct graph *c, const struct tn_value *const v[2], const char *what)
{
    float x[2][256];
    uint32_t n = (uint32_t)tn_value_count(v[0]);

    for (int i = 0; i < 2; i++)
        trial_read(&c[i].t, v[i], x[i], n);
    trial_same(x[1], x[0], n, SAME * fmax(1, largest_of(x[0], n)), what);
}

/* In cases with dropout equal numbers mean equal masks. */
static int whole_and_parts(int number, int kernels)
{
    static struct graph c[2];
    const char *op = cases[number].op;

    if (!open_case(&c[0], (uint32_t)number, kernels, 0))
        return 0;
    ck_assert(open_case(&c[1], (uint32_t)number, kernels, 1));
    ck_assert(uses(&c[0], op) && !uses(&c[1], op));
    for (int i = 0; i < 2; i++)
        trial_compute(&c[i].t);
    for (uint32_t o = 0; o < c[0].n_out; o++)
        compare(c, (const struct tn_value *const[]){c[0].prod[o], c[1].prod[o]},
                tn_text(c[0].t.g->arena, "output %u of %s in parts", o, op));
    for (struct tn_value *p = c[0].t.g->params, *q = c[1].t.g->params; p; p = p->next, q = q->next)
        compare(c, (const struct tn_value *const[]){p->param->grad, q->param->grad},
                tn_text(c[0].t.g->arena, "gradient of %s of %s in parts", p->name, op));
    for (int i = 0; i < 2; i++)
        trial_close(&c[i].t);
    return 1;
}

START_TEST(parts_are_the_whole)
{
    int compared = 0;

    for (int i = 0; i < (int)CASES; i++)
        if (tn_op_find(cases[i].op)->decompose)
            compared += whole_and_parts(i, _i);
    ck_assert_int_ge(compared, 17); /* attention, both norms, rope, ce, head */
}
END_TEST

/* The kernels see an expression; to the layouts it is more. */
START_TEST(lse_open_is_an_exponential)
{
    static struct graph c;
    float x[B * T], y[B * T];

    for (uint32_t i = 0; i < CASES; i++)
        if (!strcmp(cases[i].op, "lse_open"))
            ck_assert(open_case(&c, i, _i, 0));
    trial_compute(&c.t);
    trial_get(&c.t, "p0", x, B * T);
    trial_read(&c.t, c.prod[0], y, B * T);
    for (int i = 0; i < B * T; i++) {
        const float *max = c.t.given[0].data;
        double want = exp((double)x[i] - (double)max[i]) * (double)c.r[0][i];
        trial_near((double)y[i], want, 1e-6, "exp(lse - max)");
    }
    trial_close(&c.t);
}
END_TEST

/* --- nothing is forgotten, nothing is passed over in silence */

START_TEST(every_operation_has_a_case)
{
    const struct tn_op *op;
    int n = 0;

    for (uint32_t k = 0; (op = tn_op_at(k)); k++) {
        uint32_t i = 0;

        if ((!op->grad && !op->decompose) || op->flags & TN_OP_COLLECTIVE)
            continue;
        while (i < CASES && strcmp(cases[i].op, op->name))
            i++;
        ck_assert_msg(i < CASES, "%s has a gradient or a decomposition, and no case in test_gradient.c",
                      op->name);
        n++;
    }
    ck_assert_int_gt(n, 10);
}
END_TEST

/* Rounding has no derivative: the gradient passes it as if it were not there. */
START_TEST(rounding_passes_the_gradient_on)
{
    static struct graph c;
    float grad[2], w[] = {1.0f / 3, 70000}, y[2];
    struct tn_value *p;

    memset(&c, 0, sizeof c);
    c.t = trial_begin(_i);
    p = param(&c, 1, DIMS("embed"), SIZES(2));
    give(&c, tn_add(c.t.g, "cast", TN_IN(p), TN_WITH(TN_INT("to", TN_BF16))));
    add_loss(&c);
    trial_open(&c.t);
    trial_set(&c.t, "p0", w, 2);
    trial_compute(&c.t);
    trial_read(&c.t, c.prod[0], y, 2);
    trial_gradient(&c.t, p, grad);
    trial_same(grad, c.r[0], 2, 0, "gradient");
    trial_near((double)y[0], 0.333984375 * (double)c.r[0][0], 1e-7, "bf16(1/3)");
    trial_close(&c.t);
}
END_TEST

/* The statistics of a norm are there for its own backward; a loss that depends on them is refused. */
START_TEST(statistics_of_a_norm_have_no_gradient)
{
    static struct graph c;
    struct tn_value *y;

    for (uint32_t o = 1; o < 3; o++) {
        memset(&c, 0, sizeof c);
        c.t = trial_begin(0);
        y = tn_add(
            c.t.g, "layernorm",
            TN_IN(param(&c, 2, DIMS("seq", "embed"), SIZES(T, 5)), param(&c, 1, DIMS("embed"), SIZES(5))),
            TN_NONE);
        give(&c, y);
        give(&c, tn_output(tn_producer(y), o));
        add_loss(&c);
        ck_assert_int_ne(tn_graph_autodiff(c.t.g), TN_OK);
        ck_assert_ptr_nonnull(strstr(tn_error_text(), "layernorm"));
        tn_graph_free(c.t.g);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gradient");
    TCase *c = tcase_create("all");

    tcase_set_timeout(c, 120);
    tcase_add_test(c, every_operation_has_a_case);
    tcase_add_test(c, statistics_of_a_norm_have_no_gradient);
    tcase_add_loop_test(c, rounding_passes_the_gradient_on, 0, 1 + trial_has_cpu());
    tcase_add_loop_test(c, gradients_are_differences, 0, CASES);
    if (trial_has_cpu())
        tcase_add_loop_test(c, gradients_are_differences_on_cpu, 0, CASES);
    tcase_add_loop_test(c, parts_are_the_whole, 0, 1 + trial_has_cpu());
    tcase_add_loop_test(c, lse_open_is_an_exponential, 0, 1 + trial_has_cpu());
    suite_add_tcase(s, c);
    return plugin_suite_run(s);
}
