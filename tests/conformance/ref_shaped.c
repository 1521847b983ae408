/* ref_shaped.c - tests of the operations with a shape of their own: embed, pick, norms, attention, loss,
 * head. */
#include <tenon/philox.h>
#include "check_ref.h"

/* The local row of a number: where the whole table is here, where rows 4 to 12 are, where some are. */
static int row_of(int where, int id)
{
    static const int table[] = {1, 2, 3, 4, 12, 13, 14, 15, 16};

    if (where == 0)
        return id;
    if (where == 1)
        return id >= 4 && id < 13 ? id - 4 : -1;
    for (int i = 0; i < 9; i++)
        if (table[i] == id)
            return i;
    return -1;
}
static const char *const table_sizes[] = {"v17 b3 t7 c5", "v9@4/17 b3 t7 c5", "v9~/17 b3 t7 c5"};

START_TEST(embed)
{
    struct tn_bench *f = ran(BUILD("embed", table_sizes[_i], "vc/cv bt:i17/tb", "btc+", NULL, NULL, 1, 0));
    struct tn_bench *g = ran(BUILD("embed_bwd", table_sizes[_i], "btc bt:i17 vc?", "vc", NULL, NULL, 1, 0));
    const int rows = _i ? 9 : 17;

    for (int p = 0; p < 21; p++)
        for (int c = 0; c < 5; c++) {
            const int r = row_of(_i, (int)tn_bench_get(f, 1, p));

            NEAR(tn_bench_result(f, 0, p * 5 + c),
                 (r < 0 ? 0 : tn_bench_get(f, 0, r * 5 + c)) + tn_bench_get(f, 2, p * 5 + c));
        }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 5; c++) {
            double sum = tn_bench_get(g, 3, r * 5 + c);

            for (int p = 0; p < 21; p++)
                if (row_of(_i, (int)tn_bench_get(g, 1, p)) == r)
                    sum += tn_bench_get(g, 0, p * 5 + c);
            NEAR(tn_bench_result(g, 0, r * 5 + c), sum);
        }
    tn_bench_free(f), tn_bench_free(g);
}
END_TEST

START_TEST(pick)
{
    struct tn_bench *f = ran(BUILD("pick", table_sizes[_i], "btv+ bt:i17", "bt", NULL, NULL, 0, 0));
    struct tn_bench *g =
        ran(BUILD("pick_bwd", table_sizes[_i], "bt bt:i17 btv?", "btv/vbt", NULL, NULL, 0, 0));
    const int V = _i ? 9 : 17;

    for (int p = 0; p < 21; p++) {
        const int r = row_of(_i, (int)tn_bench_get(f, 1, p));

        NEAR(tn_bench_result(f, 0, p), r < 0 ? 0 : tn_bench_get(f, 0, p * V + r));
        for (int v = 0; v < V; v++)
            NEAR(tn_bench_result(g, 0, p * V + v),
                 row_of(_i, (int)tn_bench_get(g, 1, p)) == v ? tn_bench_get(g, 0, p) : 0);
    }
    tn_bench_free(f), tn_bench_free(g);
}
END_TEST

START_TEST(layernorm)
{
    struct tn_bench *f =
        ran(BUILD("layernorm", "b3 t7 c17", "btc/tbc+ c c", "btc bt bt", "eps=0.01", NULL, 0, 0));
    struct tn_bench *n = ran(BUILD("layernorm", "b3 c17", "bc c", "bc b b", "eps=0.01", NULL, 0, 0));

    for (int r = 0; r < 21; r++) {
        double sum = 0, squares = 0, mean, var;

        for (int c = 0; c < 17; c++) {
            const double x = tn_bench_get(f, 0, r * 17 + c);

            sum += x, squares += x * x;
        }
        mean = sum / 17, var = squares / 17 - mean * mean;
        ck_assert(fabs(tn_bench_result(f, 1, r) - mean) < 1e-7);
        ck_assert(fabs(tn_bench_result(f, 2, r) - 1 / sqrt(var + 0.01)) < 1e-6);
        for (int c = 0; c < 17; c++) {
            const double y =
                (tn_bench_get(f, 0, r * 17 + c) - mean) / sqrt(var + 0.01) * tn_bench_get(f, 1, c);

            ck_assert(fabs(tn_bench_result(f, 0, r * 17 + c) - y - tn_bench_get(f, 2, c)) < 1e-6);
        }
    }
    for (int c = 0; c < 17; c++)                 /* without a bias */
        ck_assert(fabs(tn_bench_result(n, 0, c) - (tn_bench_get(n, 0, c) - tn_bench_result(n, 1, 0)) *
                                                      tn_bench_result(n, 2, 0) * tn_bench_get(n, 1, c)) <
                  1e-6);
    tn_bench_free(f), tn_bench_free(n);
}
END_TEST

struct shape {
    int B, T, S, H, R, D, first_query, first_key;
    double scale, p;
};

/* Whether the pair is kept: the global index written out. */
static int kept(const struct shape *s, int b, int h, int r, int qpos, int kpos)
{
    const uint64_t g = (((uint64_t)(3 * s->B + b) * (uint64_t)(s->H * s->R) + (uint64_t)(h * s->R + r)) * 64 +
                        (uint64_t)qpos) *
                           64 +
                       (uint64_t)kpos;

    return tn_philox_at(99, 5, 4, g) >= (uint32_t)(s->p * 4294967296.0);
}

static void check_query(const struct tn_bench *f, const struct shape *s, int b, int t, int h, int r)
{
    const int q = (((b * s->T + t) * s->H + h) * s->R + r) * s->D;
    double sum = 0, o[8] = {0};

    for (int k = 0; k < s->S; k++) {
        const int at = ((b * s->S + k) * s->H + h) * s->D;
        double score = 0;

        if (s->first_key + k > s->first_query + t)
            continue;
        for (int d = 0; d < s->D; d++)
            score += tn_bench_get(f, 0, q + d) * tn_bench_get(f, 1, at + d);
        score = exp(score * s->scale);
        sum += score;
        for (int d = 0; d < s->D; d++)
            if (s->p == 0 || kept(s, b, h, r, s->first_query + t, s->first_key + k))
                o[d] += score * tn_bench_get(f, 2, at + d) / (1 - s->p);
    }
    for (int d = 0; d < s->D; d++)
        ck_assert(fabs(tn_bench_result(f, 0, q + d) - (sum > 0 ? o[d] / sum : 0)) < 1e-6);
    if (sum > 0)
        ck_assert(fabs(tn_bench_result(f, 1, q / s->D) - log(sum)) < 1e-6);
    else
        ck_assert(tn_bench_result(f, 1, q / s->D) == -INFINITY);
}

START_TEST(attention)
{
    static const struct {
        struct tn_bench_case c;
        struct shape s;
    } cases[] = {
        {{"attention", "b2 t7 s7 h3 d5", "bthd bshd bshd t:p0? s:p0?", "bthd bth", "scale=0.4 causal=1", NULL,
          0, 0},
         {2, 7, 7, 3, 1, 5, 0, 0, 0.4, 0}},
        {{"attention", "b2 t3 s9 h3 d5", "bthd/bhtd+ bshd bshd/hsbd t:p4 s:p0", "bthd+ bth",
          "scale=0.4 causal=0", NULL, 0, 0},
         {2, 3, 9, 3, 1, 5, 4, 0, 0.4, 0}},
        {{"attention", "b1 t7 s3 h1 d1", "bthd bshd bshd t:p0 s:p4", "bthd bth", "scale=1.0 causal=0", NULL,
          0, 0},
         {1, 7, 3, 1, 1, 1, 0, 4, 1, 0}},
        {{"attention", "b2 t7 s7 h3 r2 d5", "bthrd bshd bshd t:p0? s:p0?", "bthrd bthr", "scale=0.4 causal=1",
          NULL, 0, 0},
         {2, 7, 7, 3, 2, 5, 0, 0, 0.4, 0}},
        {{"attention", "b2 t7 s9 h3 r2 d5", "bthrd bshd bshd t:p20 s:p15", "bthrd bthr",
          "scale=0.4 causal=0 dropout=0.25 key=5 block=64 micro_dim=0", NULL, 0, 0},
         {2, 7, 9, 3, 2, 5, 20, 15, 0.4, 0.25}},
    };
    const struct shape *s = &cases[_i].s;
    struct tn_bench *f = tn_bench_new(&cases[_i].c, 8);

    tn_bench_set_key(f, 99, 4), tn_bench_set_micro(f, 3);
    run(f);
    for (int b = 0; b < s->B; b++)
        for (int t = 0; t < s->T; t++)
            for (int h = 0; h < s->H; h++)
                for (int r = 0; r < s->R; r++)
                    check_query(f, s, b, t, h, r);
    tn_bench_free(f);
}
END_TEST

/* What lies in keys that no query sees yet stays out of everything. */
START_TEST(masked_keys_are_not_touched)
{
    struct tn_bench *f = BUILD("attention", "b1 t3 s3 h1 d2", "bthd bshd bshd t:p0 s:p0", "bthd bth",
                               "scale=1.0 causal=0", NULL, 0, 0);

    tn_bench_set(f, 1, 4, NAN), tn_bench_set(f, 2, 5, INFINITY);
    run(f);
    for (int e = 0; e < 4; e++)
        ck_assert(isfinite(tn_bench_result(f, 0, e)));
    ck_assert(isfinite(tn_bench_result(f, 1, 1)) && isnan(tn_bench_result(f, 1, 2)) &&
              isnan(tn_bench_result(f, 0, 5)));
    tn_bench_free(f);
}
END_TEST

START_TEST(cross_entropy)
{
    struct tn_bench *f = ran(BUILD("ce", "b3 t7 v17", "btv/vbt+ bt:i17", "bt", NULL, NULL, 0, 0));
    struct tn_bench *g = ran(BUILD("ce_bwd", "b3 t7 v17", "bt btv bt:i17", "btv", NULL, NULL, 0, 0));
    int ignored = 0;

    for (int p = 0; p < 21; p++) {
        const int id = (int)tn_bench_get(f, 1, p), back = (int)tn_bench_get(g, 2, p);
        double sum = 0, other = 0;

        ignored += id < 0;
        for (int v = 0; v < 17; v++)
            sum += exp(tn_bench_get(f, 0, p * 17 + v)), other += exp(tn_bench_get(g, 1, p * 17 + v));
        ck_assert(fabs(tn_bench_result(f, 0, p) - (id < 0 ? 0 : log(sum) - tn_bench_get(f, 0, p * 17 + id))) <
                  1e-6);
        for (int v = 0; v < 17; v++) {
            const double d = exp(tn_bench_get(g, 1, p * 17 + v)) / other - (v == back);

            ck_assert(fabs(tn_bench_result(g, 0, p * 17 + v) - (back < 0 ? 0 : d * tn_bench_get(g, 0, p))) <
                      1e-7);
        }
    }
    ck_assert_int_gt(ignored, 0);
    tn_bench_free(f), tn_bench_free(g);
}
END_TEST

/* softmax(2, 1, -1) by cross-entropy, far from 0 too: the maximum is taken out. */
START_TEST(cross_entropy_by_hand)
{
    static const double softmax[] = {0.7054, 0.2595, 0.0351};
    struct tn_bench *g = BUILD("ce_bwd", "b2 v3", "b bv b:i3", "bv", NULL, NULL, 0, 0);
    struct tn_bench *f = BUILD("ce", "b2 v2", "bv b:i2", "b", NULL, NULL, 0, 0);

    SET(g, 0, 1, 1);
    SET(g, 1, 2, 1, -1, 1002, 1001, 999);
    SET(g, 2, 0, 2);
    run(g);
    for (int i = 0; i < 6; i++)
        ck_assert(fabs(tn_bench_result(g, 0, i) - softmax[i % 3] + (i == 0 || i == 5)) < 5e-5);
    SET(f, 0, INFINITY, 0, -INFINITY, 0);
    SET(f, 1, 1, 1);
    run(f);
    EXPECT(f, 0, INFINITY, 0);
    tn_bench_free(g), tn_bench_free(f);
}
END_TEST

START_TEST(head)
{
    const int V = _i ? 9 : 17;
    struct tn_bench *f = ran(BUILD("head", table_sizes[_i], "btc/tbc+ vc bt:i17", "bt bt", NULL, NULL, 0, 0));

    for (int p = 0; p < 21; p++) {
        const int r = row_of(_i, (int)tn_bench_get(f, 2, p));
        double sum = 0, z = 0;

        for (int v = 0; v < V; v++) {
            double logit = 0;

            for (int c = 0; c < 5; c++)
                logit += tn_bench_get(f, 0, p * 5 + c) * tn_bench_get(f, 1, v * 5 + c);
            sum += exp(logit);
            z = v == r ? logit : z;
        }
        ck_assert(fabs(tn_bench_result(f, 0, p) - log(sum)) < 1e-6);
        ck_assert(fabs(tn_bench_result(f, 1, p) - z) < 1e-6);
    }
    tn_bench_free(f);
}
END_TEST

/* dlogits written out: here lse is any number, as when the vocabulary is cut. */
START_TEST(head_bwd)
{
    const int V = _i ? 9 : 17;
    struct tn_bench *g =
        ran(BUILD("head_bwd", table_sizes[_i], "btc vc/cv bt:i17 bt bt bt", "btc+ vc", NULL, NULL, 2, 0));
    double dx[21][5] = {{0}}, dw[17][5] = {{0}};

    for (int p = 0; p < 21; p++)
        for (int v = 0; v < V; v++) {
            double logit = 0, d;

            for (int c = 0; c < 5; c++)
                logit += tn_bench_get(g, 0, p * 5 + c) * tn_bench_get(g, 1, v * 5 + c);
            d = tn_bench_get(g, 4, p) * exp(logit - tn_bench_get(g, 3, p));
            if (row_of(_i, (int)tn_bench_get(g, 2, p)) == v)
                d += tn_bench_get(g, 5, p);
            for (int c = 0; c < 5; c++)
                dx[p][c] += d * tn_bench_get(g, 1, v * 5 + c), dw[v][c] += d * tn_bench_get(g, 0, p * 5 + c);
        }
    for (int e = 0; e < 105; e++)
        ck_assert(fabs(tn_bench_result(g, 0, e) - dx[e / 5][e % 5]) < 2e-6);
    for (int e = 0; e < V * 5; e++)
        ck_assert(fabs(tn_bench_result(g, 1, e) - dw[e / 5][e % 5] - tn_bench_get(g, 7, e)) < 2e-6);
    tn_bench_free(g);
}
END_TEST

TCase *tn_test_shaped(void)
{
    TCase *t = tcase_create("shaped");

    tcase_add_loop_test(t, embed, 0, 3);
    tcase_add_loop_test(t, pick, 0, 3);
    tcase_add_test(t, layernorm);
    tcase_add_loop_test(t, attention, 0, 5);
    tcase_add_test(t, masked_keys_are_not_touched);
    tcase_add_test(t, cross_entropy);
    tcase_add_test(t, cross_entropy_by_hand);
    tcase_add_loop_test(t, head, 0, 3);
    tcase_add_loop_test(t, head_bwd, 0, 3);
    return t;
}
