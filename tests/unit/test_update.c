/* test_update.c - one parameter update, with the numbers that are known by hand.
 *
 * Every graph is made node by node, differentiated, finished with an optimizer plugin, planned and run by
 * kernel plugins, so a wrong number anywhere between the model and the new weight is seen here. fp32 rounds
 * to 6e-8; where a known number is a short decimal, the tolerance is a few roundings. */
#include "trial.h"

#define CLOSE 2e-6

/* pred = w·x + b over a batch, w and b scalars, mean squared error against y. */
struct line {
    struct trial t;
    struct tn_value *w, *b;
};

static struct line line(int kernels, int64_t batch, const float *x, const float *y, const char *optimizer)
{
    struct line l = {.t = trial_begin(kernels)};
    struct tn_value *in, *want;

    l.t.optimizer = optimizer;
    l.w = trial_param(&l.t, "w", SCALAR);
    l.b = trial_param(&l.t, "b", SCALAR);
    in = trial_input(&l.t, "x", TN_F32, 1, DIMS("batch"), SIZES(batch), x);
    want = trial_input(&l.t, "y", TN_F32, 1, DIMS("batch"), SIZES(batch), y);
    trial_mse(&l.t, tn_expr(l.t.g, "a*b + c", TN_IN(in, l.w, l.b)), want);
    trial_open(&l.t);
    return l;
}

static double scalar(struct trial *t, const char *name)
{
    float x;

    trial_get(t, name, &x, 1);
    return (double)x;
}

static double gradient(struct trial *t, const struct tn_value *param)
{
    float x;

    trial_gradient(t, param, &x);
    return (double)x;
}

START_TEST(line_is_found_in_200_updates)
{
    float x[100], y[100];
    struct line l;

    for (int i = 0; i < 100; i++) {
        x[i] = (float)(-1 + 2.0 * i / 99);
        y[i] = 2 * x[i] + 1;
    }
    l = line(_i, 100, x, y, "sgd");
    for (int i = 0; i < 200; i++)
        trial_step(&l.t, 0.1);
    trial_near(scalar(&l.t, "w"), 2, 1e-4, "w");
    trial_near(scalar(&l.t, "b"), 1, 1e-4, "b");
    trial_near(scalar(&l.t, "w") * 3 + scalar(&l.t, "b"), 7, 3e-4, "f(3)");
    ck_assert(trial_compute(&l.t) < 1e-8);
    trial_close(&l.t);
}
END_TEST

START_TEST(two_points_one_step)
{
    const float x[] = {1, 2}, y[] = {3, 5};
    struct line l = line(_i, 2, x, y, "sgd");
    float gnorm;

    trial_near(trial_step(&l.t, 0.1), 17, 0, "loss");
    trial_near(gradient(&l.t, l.w), -13, 0, "dw");
    trial_near(gradient(&l.t, l.b), -8, 0, "db");
    trial_read(&l.t, tn_graph_find_output(l.t.g, "gnorm"), &gnorm, 1);
    trial_near((double)gnorm, sqrt(13 * 13 + 8 * 8), CLOSE * 16, "norm");
    trial_near(scalar(&l.t, "w"), 1.3, CLOSE, "w");
    trial_near(scalar(&l.t, "b"), 0.8, CLOSE, "b");
    trial_near(trial_compute(&l.t), 1.685, CLOSE, "loss after");
    trial_close(&l.t);
}
END_TEST

START_TEST(one_point_one_step)
{
    const float x = 3, y = 6, one = 1;
    struct trial t = trial_begin(_i);
    struct tn_value *w = trial_param(&t, "w", SCALAR);
    struct tn_value *in = trial_input(&t, "x", TN_F32, 1, DIMS("batch"), SIZES(1), &x);

    trial_mse(&t, tn_expr(t.g, "a*b", TN_IN(in, w)),
              trial_input(&t, "y", TN_F32, 1, DIMS("batch"), SIZES(1), &y));
    trial_open(&t);
    trial_set(&t, "w", &one, 1);
    trial_near(trial_step(&t, 0.05), 9, 0, "loss");
    trial_near(gradient(&t, w), -18, 0, "dw");
    trial_near(scalar(&t, "w"), 1.9, CLOSE, "w");
    trial_near(trial_compute(&t), 0.09, CLOSE, "loss after");
    trial_close(&t);
}
END_TEST

/* The gradient of a batch replaces that of the one before, and neither touches the optimizer's memory. */
static void first_adam_update(int kernels, const char *optimizer)
{
    const float x[] = {1, 2}, y[] = {3, 5}, other[] = {0, 0};
    struct line l = line(kernels, 2, x, y, optimizer);
    double moved = 0.1 * 13 / (13 + 1e-8), v_scale = strcmp(optimizer, "adam") ? 0.05 : 0.001;

    trial_step(&l.t, 0.1);
    trial_near(scalar(&l.t, "w:m"), -1.3, CLOSE, "m");
    trial_near(scalar(&l.t, "w:v"), 169 * v_scale, CLOSE * 10, "v");
    trial_near(scalar(&l.t, "w"), moved, CLOSE, "w");
    trial_near(scalar(&l.t, "b"), 0.1 * 8 / (8 + 1e-8), CLOSE, "b");
    TRIAL_OK(tn_run_input(l.t.run, "x", other, sizeof other));
    trial_compute(&l.t);
    trial_near(gradient(&l.t, l.w), 0, 0, "dw of inputs that are zero");
    trial_near(scalar(&l.t, "w:m"), -1.3, CLOSE, "m");
    trial_near(scalar(&l.t, "w:v"), 169 * v_scale, CLOSE * 10, "v");
    trial_close(&l.t);
}

START_TEST(adam_first_update)
{
    first_adam_update(_i, "adam");  /* v = (1 - 0.999)·169 = 0.169 */
    first_adam_update(_i, "adamw"); /* v = (1 - 0.95)·169; w = 0, so nothing decays */
}
END_TEST

START_TEST(two_paths_add)
{
    const float a0 = 2, b0 = -3, one = 1;
    struct trial t = trial_begin(_i);
    struct tn_value *a = trial_param(&t, "a", SCALAR), *b = trial_param(&t, "b", SCALAR);

    trial_loss(&t, tn_expr(t.g, "a + b", TN_IN(tn_expr(t.g, "a*b", TN_IN(a, b)), a)));
    trial_count(&t, trial_input(&t, "one", TN_F32, 1, DIMS("batch"), SIZES(1), &one), ALL);
    trial_open(&t);
    trial_set(&t, "a", &a0, 1);
    trial_set(&t, "b", &b0, 1);
    trial_near(trial_compute(&t), -4, 0, "f");
    trial_near(gradient(&t, a), -2, 0, "df/da");
    trial_near(gradient(&t, b), 2, 0, "df/db");
    trial_close(&t);
}
END_TEST

/* --- two layers */

/* x·w + b; w [in, out]. */
static struct tn_value *linear(struct trial *t, struct tn_value *x, struct tn_value *w, struct tn_value *b)
{
    struct tn_value *y = tn_add(t->g, "einsum", TN_IN(x, w), TN_WITH(TN_NAMES("out", "batch", w->dim[1])));

    return tn_expr(t->g, "a + b", TN_IN(y, b));
}

START_TEST(mlp_with_relu)
{
    const float x[] = {1, 2, 3, 4, 5, 6}, y[] = {1, 4};
    const float w1_0[] = {1, 0, 0, 1, 1, 1}, b1_0[] = {-5, -6}, w2_0[] = {1, -0.5f}, b2_0[] = {0.5f};
    struct trial t = trial_begin(_i);
    struct tn_value *w1 = trial_param(&t, "w1", 2, DIMS("in", "mlp"), SIZES(3, 2)),
                    *b1 = trial_param(&t, "b1", 1, DIMS("mlp"), SIZES(2));
    struct tn_value *w2 = trial_param(&t, "w2", 2, DIMS("mlp", "out"), SIZES(2, 1)),
                    *b2 = trial_param(&t, "b2", 1, DIMS("out"), SIZES(1));
    struct tn_value *h, *pred;
    float is[6];

    h = linear(&t, trial_input(&t, "x", TN_F32, 2, DIMS("batch", "in"), SIZES(2, 3), x), w1, b1);
    pred = linear(&t, tn_expr(t.g, "relu(a)", TN_IN(h)), w2, b2);
    trial_keep(&t, pred);
    trial_mse(&t, pred, trial_input(&t, "y", TN_F32, 2, DIMS("batch", "out"), SIZES(2, 1), y));
    trial_open(&t);
    trial_set(&t, "w1", w1_0, 6);
    trial_set(&t, "b1", b1_0, 2);
    trial_set(&t, "w2", w2_0, 2);
    trial_set(&t, "b2", b2_0, 1);
    trial_near(trial_step(&t, 0.001), 0.625, 0, "loss");
    trial_read(&t, pred, is, 2);
    trial_same(is, (float[]){0.5f, 3}, 2, 0, "pred");
    trial_gradient(&t, w1, is);
    trial_same(is, (float[]){-4, 2, -5, 2.5f, -6, 3}, 6, 0, "dw1");
    trial_gradient(&t, b1, is);
    trial_same(is, (float[]){-1, 0.5f}, 2, 0, "db1");
    trial_gradient(&t, w2, is);
    trial_same(is, (float[]){-5, -5}, 2, 0, "dw2");
    trial_gradient(&t, b2, is);
    trial_same(is, (float[]){-1.5f}, 1, 0, "db2");
    trial_near(trial_compute(&t), 0.486185699, CLOSE, "loss after");
    trial_close(&t);
}
END_TEST

/* --- micro-batches */

#define SAMPLES 16
#define WIDTH 5

struct outcome {
    double loss;
    float grad[4 * WIDTH + 1], after[4 * WIDTH + 1]; /* w1 [3, 5], w2 [5, 1], b2 */
};

static struct outcome accumulate(int kernels, const char *optimizer, uint32_t n_micro)
{
    const char *const name[] = {"w1", "w2", "b2"};
    const uint32_t size[] = {3 * WIDTH, WIDTH, 1};
    struct trial t = trial_begin(kernels);
    struct tn_value *p[3], *x, *y, *h;
    float in[3 * SAMPLES], want[SAMPLES], w[3 * WIDTH];
    uint64_t s = 3;
    struct outcome o;

    t.n_micro = n_micro;
    t.optimizer = optimizer;
    for (int i = 0; i < 3 * SAMPLES; i++)
        in[i] = trial_random(&s);
    for (int i = 0; i < SAMPLES; i++)
        want[i] = 2 * trial_random(&s);
    p[0] = trial_param(&t, "w1", 2, DIMS("in", "mlp"), SIZES(3, WIDTH));
    p[1] = trial_param(&t, "w2", 2, DIMS("mlp", "out"), SIZES(WIDTH, 1));
    p[2] = trial_param(&t, "b2", 1, DIMS("out"), SIZES(1));
    x = trial_input(&t, "x", TN_F32, 2, DIMS("batch", "in"), SIZES(SAMPLES / n_micro, 3), in);
    y = trial_input(&t, "y", TN_F32, 2, DIMS("batch", "out"), SIZES(SAMPLES / n_micro, 1), want);
    h = tn_add(t.g, "einsum", TN_IN(x, p[0]), TN_WITH(TN_NAMES("out", "batch", "mlp")));
    trial_mse(&t, linear(&t, tn_expr(t.g, "tanh(a)", TN_IN(h)), p[1], p[2]), y);
    trial_open(&t);
    for (int i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < size[i]; k++)
            w[k] = trial_random(&s);
        trial_set(&t, name[i], w, size[i]);
    }
    o.loss = trial_step(&t, 0.1);
    for (uint32_t i = 0, at = 0; i < 3; at += size[i++]) {
        trial_gradient(&t, p[i], o.grad + at);
        trial_get(&t, name[i], o.after + at, size[i]);
    }
    trial_close(&t);
    return o;
}

START_TEST(four_times_four_is_sixteen)
{
    const char *const optimizer[] = {"sgd", "adam", "adamw"};

    for (int i = 0; i < 3; i++) {
        struct outcome one = accumulate(_i, optimizer[i], 1), four = accumulate(_i, optimizer[i], 4);

        ck_assert(one.loss > 0.1);
        trial_near(four.loss, one.loss, CLOSE, "loss");
        trial_same(four.grad, one.grad, 4 * WIDTH + 1, CLOSE, "gradient");
        trial_same(four.after, one.after, 4 * WIDTH + 1, CLOSE, "parameter");
        for (uint32_t k = 0; k < 4 * WIDTH + 1; k++)
            ck_assert(fabs((double)one.grad[k]) > 1e-4); /* or the comparison would say little */
    }
}
END_TEST

#define VOCAB 4
#define PLACES 4

/* Logits are rows of a table, so the mean of each micro-batch can be had alone. */
static double token_mean(int kernels, uint32_t n_micro, const int32_t *token, const int32_t *target,
                         float *grad)
{
    struct trial t = trial_begin(kernels);
    struct tn_value *w, *x, *want;
    float table[3 * VOCAB];
    uint64_t s = 5;
    double loss;

    t.n_micro = n_micro;
    w = trial_param(&t, "w", 2, DIMS("rows", "vocab"), SIZES(3, VOCAB));
    x = tn_add(t.g, "embed",
               TN_IN(w, trial_input(&t, "tokens", TN_I32, 1, DIMS("seq"), SIZES(PLACES), token)), TN_NONE);
    want = trial_input(&t, "targets", TN_I32, 1, DIMS("seq"), SIZES(PLACES), target);
    trial_loss(&t, tn_add(t.g, "ce", TN_IN(x, want), TN_NONE));
    trial_count(&t, want, VALID);
    trial_open(&t);
    for (int i = 0; i < 3 * VOCAB; i++)
        table[i] = 2 * trial_random(&s);
    trial_set(&t, "w", table, 3 * VOCAB);
    loss = trial_compute(&t);
    trial_gradient(&t, w, grad);
    trial_close(&t);
    return loss;
}

START_TEST(weighted_by_valid_tokens)
{
    const int32_t token[2 * PLACES] = {0, 1, 2, 1, 2, 0, 0, 1},
                            target[2 * PLACES] = {3, 0, 2, 1, -1, 1, 2, -1};
    float both[3 * VOCAB], each[2][3 * VOCAB];
    double l1 = token_mean(_i, 1, token, target, each[0]),
           l2 = token_mean(_i, 1, token + PLACES, target + PLACES, each[1]);
    double l = token_mean(_i, 2, token, target, both);

    trial_near(l, (4 * l1 + 2 * l2) / 6, CLOSE, "loss of the update");
    ck_assert(fabs((l1 + l2) / 2 - l) > 0.01); /* another number than the mean of means */
    for (int i = 0; i < 3 * VOCAB; i++)
        trial_near((double)both[i], (4 * (double)each[0][i] + 2 * (double)each[1][i]) / 6, CLOSE, "gradient");
}
END_TEST

/* A batch in which no token counts: a loss of 0, not of 0/0, and nothing to learn. */
START_TEST(no_valid_tokens)
{
    const int32_t token[2 * PLACES] = {0, 1, 2, 1, 2, 0, 0, 1},
                  target[2 * PLACES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    float grad[3 * VOCAB];

    for (uint32_t n_micro = 1; n_micro <= 2; n_micro++) {
        trial_near(token_mean(_i, n_micro, token, target, grad), 0, 0, "loss");
        for (int i = 0; i < 3 * VOCAB; i++)
            trial_near((double)grad[i], 0, 0, "gradient");
    }
}
END_TEST

/* Sums 2 and 90 over 1 and 9 elements. */
START_TEST(sums_over_counts)
{
    const float x[2 * 9] = {2, -1, -1, -1, -1, -1, -1, -1, -1, 10, 10, 10, 10, 10, 10, 10, 10, 10}, one = 1;
    struct trial t = trial_begin(_i);
    struct tn_value *w, *in;
    float g;

    t.n_micro = 2;
    w = trial_param(&t, "w", SCALAR);
    in = trial_input(&t, "x", TN_F32, 1, DIMS("batch"), SIZES(9), x);
    trial_loss(&t, tn_expr(t.g, "select(ge(a, 0), a*b, 0)", TN_IN(in, w)));
    trial_count(&t, in, VALID);
    trial_open(&t);
    trial_set(&t, "w", &one, 1);
    trial_near(trial_compute(&t), 9.2, CLOSE, "mean");
    trial_gradient(&t, w, &g);
    trial_near((double)g, 9.2, CLOSE, "its gradient");
    trial_close(&t);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {
        line_is_found_in_200_updates,
        two_points_one_step,
        one_point_one_step,
        adam_first_update,
        two_paths_add,
        mlp_with_relu,
        four_times_four_is_sixteen,
        weighted_by_valid_tokens,
        no_valid_tokens,
        sums_over_counts,
    };

    return trial_main("update", test, sizeof test / sizeof *test);
}
