/* test_numerics.c - where fp32 could overflow or round the wrong way: softmax of any size, and the small
 * formats.
 *
 * Softmax knows differences only, so all logits moved by 1000 must give the same numbers in every place where
 * one is computed, as a whole and in parts; exp(1000) is not a number of fp32. */
#include "trial.h"

static const float logit[] = {2, 1, -1};
static const double probability[] = {0.7054, 0.2595, 0.0351};

/* exp(x - max)/sum; its place in the graph is a parameter's user, so that the pipeline has something to
 * train. */
static void softmax_by_parts(int kernels, float shift)
{
    const float one = 1;
    float x[3], is[3];
    struct trial t = trial_begin(kernels);
    struct tn_value *w = trial_param(&t, "w", SCALAR), *in, *e, *p;
    struct tn_attr none = {"out", TN_ATTR_NAMES, 0, {.names = NULL}};

    for (int i = 0; i < 3; i++)
        x[i] = logit[i] + shift;
    in = tn_expr(t.g, "a*b", TN_IN(trial_input(&t, "x", TN_F32, 1, DIMS("vocab"), SIZES(3), x), w));
    e = tn_expr(t.g, "exp(a - b)", TN_IN(in, tn_add(t.g, "rowmax", TN_IN(in), &none, 1)));
    p = tn_expr(t.g, "a/b", TN_IN(e, trial_sum(&t, e)));
    trial_keep(&t, p);
    trial_loss(&t, p);
    trial_count(&t, t.g->inputs, ALL);
    trial_open(&t);
    trial_set(&t, "w", &one, 1);
    trial_compute(&t);
    trial_read(&t, p, is, 3);
    for (int i = 0; i < 3; i++)
        trial_near((double)is[i], probability[i], 5e-5, "softmax");
    trial_close(&t);
}

/* Its place in attention: one query that sees three keys; the values are the unit vectors, so o is softmax.
 */
static void softmax_in_attention(int kernels, float shift, const char *without)
{
    const float unit[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    float k[9] = {0}, q[9] = {0}, is[9];
    struct trial t = trial_begin(kernels);
    struct tn_value *in[4], *pos = tn_graph_positions(t.g, "seq", 3), *o;
    const char *const dim[] = {"batch", "seq", "heads", "head_dim"};
    const int64_t size[] = {1, 3, 1, 3};

    t.without = without;
    for (int i = 0; i < 3; i++)
        k[3 * i] = logit[i] + shift, q[3 * i] = 1;
    in[0] = trial_param(&t, "q", 4, dim, size);
    in[1] = trial_input(&t, "k", TN_F32, 4, dim, size, k);
    in[2] = trial_input(&t, "v", TN_F32, 4, dim, size, unit);
    o = tn_add(t.g, "attention", TN_IN(in[0], in[1], in[2], pos, pos),
               TN_WITH({"scale", TN_ATTR_FLOAT, 1, {.f = 1}}, TN_INT("block", 3)));
    o = tn_expr(t.g, "a*1.5", TN_IN(o));
    trial_keep(&t, o);
    trial_loss(&t, o);
    trial_count(&t, in[1], ALL);
    trial_open(&t);
    trial_set(&t, "q", q, 9);
    trial_compute(&t);
    trial_read(&t, o, is, 9);
    for (int i = 0; i < 3; i++)
        trial_near((double)is[6 + i] / 1.5, probability[i], 5e-5, "attention");
    trial_same(is, (float[]){1.5f, 0, 0}, 3, 0, "the first query's");
    trial_close(&t);
}

/* Cross-entropy of ce and of head, whose logits are a weight's rows. -log p of each target. */
static void softmax_in_the_loss(int kernels, float shift, const char *op, const char *without)
{
    const int32_t target[] = {0, 1, 2};
    const float one[] = {1, 1, 1};
    float x[9], w0[3], g[9], loss[3];
    struct trial t = trial_begin(kernels);
    struct tn_value *w, *want, *l;

    t.without = without;
    for (int i = 0; i < 9; i++)
        x[i] = w0[i % 3] = logit[i % 3] + shift;
    want = trial_input(&t, "targets", TN_I32, 1, DIMS("seq"), SIZES(3), target);
    if (!strcmp(op, "ce")) {
        w = trial_param(&t, "w", 2, DIMS("seq", "vocab"), SIZES(3, 3));
        l = tn_expr(t.g, "a*1.5", TN_IN(tn_add(t.g, "ce", TN_IN(w, want), TN_NONE)));
    } else {
        w = trial_param(&t, "w", 2, DIMS("vocab", "embed"), SIZES(3, 1));
        l = tn_add(t.g, "head",
                   TN_IN(trial_input(&t, "x", TN_F32, 2, DIMS("seq", "embed"), SIZES(3, 1), one), w, want),
                   TN_NONE);
        l = tn_expr(t.g, "1.5*(a - b)", TN_IN(l, tn_output(tn_producer(l), 1)));
    }
    trial_keep(&t, l);
    trial_loss(&t, l);
    trial_count(&t, want, VALID);
    trial_open(&t);
    trial_set(&t, "w", *op == 'c' ? x : w0, *op == 'c' ? 9 : 3);
    trial_compute(&t);
    trial_read(&t, l, loss, 3);
    trial_gradient(&t, w, g);
    for (int i = 0; i < 3; i++) {
        trial_near(exp(-(double)loss[i] / 1.5), probability[i], 6e-5, op);
        if (*op == 'c') /* 1.5/3 (p - onehot), of the first row */
            trial_near((double)g[i], 0.5 * (probability[i] - (i == 0)), 5e-5, "its gradient");
    }
    trial_close(&t);
}

START_TEST(softmax)
{
    for (int s = 0; s < 3; s++) {
        const float shift = (const float[]){0, 1000, -1000}[s];

        softmax_by_parts(_i, shift);
        softmax_in_attention(_i, shift, NULL);
        softmax_in_attention(_i, shift, "attention");
        softmax_in_the_loss(_i, shift, "ce", NULL);
        softmax_in_the_loss(_i, shift, "ce", "ce");
        softmax_in_the_loss(_i, shift, "head", NULL);
        softmax_in_the_loss(_i, shift, "head", "head");
    }
}
END_TEST

/* --- number formats */

/* There and back; a parameter, so that the pipeline has something to train. */
static void there_and_back(int kernels, uint32_t dtype, const float *x, const float *want, uint32_t n)
{
    struct trial t = trial_begin(kernels);
    struct tn_value *w = trial_param(&t, "w", 1, DIMS("embed"), SIZES(n)), *y;
    float is[8];

    y = tn_add(t.g, "cast", TN_IN(w), TN_WITH(TN_INT("to", dtype)));
    y = tn_add(t.g, "cast", TN_IN(y), TN_WITH(TN_INT("to", TN_F32)));
    trial_keep(&t, y);
    trial_loss(&t, y);
    trial_count(&t, trial_input(&t, "one", TN_F32, 1, DIMS("embed"), SIZES(n), x), ALL);
    trial_open(&t);
    trial_set(&t, "w", x, n);
    trial_compute(&t);
    trial_read(&t, y, is, n);
    trial_same(is, want, n, 0, dtype == TN_F16 ? "fp16" : "bf16");
    trial_close(&t);
}

START_TEST(number_formats)
{
    const float x[] = {70000, 1.0f / 3, 1e-8f, -70000, 65504, 1};

    there_and_back(_i, TN_F16, x, (float[]){INFINITY, 0.333251953125f, 0, -INFINITY, 65504, 1}, 6);
    there_and_back(_i, TN_BF16, x, (float[]){70144, 0.333984375f, 0x1.58p-27f, -70144, 65536, 1}, 6);
}
END_TEST

int main(void)
{
    const TTest *const test[] = {softmax, number_formats};

    return trial_main("numerics", test, sizeof test / sizeof *test);
}
