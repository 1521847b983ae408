/* ref_gradient.c - every *_bwd against differences of its forward, and the device.
 *
 * The objective is a random weighting of the forward's outputs. Each element of an input is moved up and
 * down, and the slope must be what the backward says, within 1e-3 of the largest slope. Steps are large,
 * since outputs are fp32. */
#include <tenon/device.h>
#include "check_ref.h"

#define STEP 0.0078125

/* Sum of weight times output, over the first n outputs; weights are read from inputs of back. */
static double objective(struct tn_bench *f, uint32_t n, const struct tn_bench *back, const uint32_t *weight)
{
    uint32_t n_in;
    double sum = 0;

    tn_bench_operands(f, &n_in);
    run(f);
    for (uint32_t o = 0; o < n; o++)
        for (int64_t e = 0; e < tn_bench_count(f, n_in + o); e++)
            sum += tn_bench_get(back, weight[o], e) * tn_bench_result(f, o, e);
    return sum;
}

/* Input in of f and output out of back, which was run on the same numbers. */
static void check_slopes(struct tn_bench *f, uint32_t in, uint32_t n, const struct tn_bench *back,
                         uint32_t out, const uint32_t *weight)
{
    double largest = 0;

    for (int64_t e = 0; e < tn_bench_count(f, in); e++)
        largest = fmax(largest, fabs(tn_bench_result(back, out, e)));
    ck_assert(largest > 1e-3);
    for (int64_t e = 0; e < tn_bench_count(f, in); e++) {
        const double x = tn_bench_get(f, in, e), g = tn_bench_result(back, out, e);
        double up, down, width, slope;

        tn_bench_set(f, in, e, x + STEP), width = tn_bench_get(f, in, e), up = objective(f, n, back, weight);
        tn_bench_set(f, in, e, x - STEP), width -= tn_bench_get(f, in, e),
            down = objective(f, n, back, weight);
        tn_bench_set(f, in, e, x);
        slope = (up - down) / width;
        ck_assert_msg(fabs(slope - g) <= 1e-3 * largest, "input %u, element %lld: gradient %g, slope %g", in,
                      (long long)e, g, slope);
    }
}

static void take(struct tn_bench *to, uint32_t operand, const struct tn_bench *from, uint32_t source)
{
    for (int64_t e = 0; e < tn_bench_count(to, operand); e++)
        tn_bench_set(to, operand, e, tn_bench_get(from, source, e));
}

static void take_result(struct tn_bench *to, uint32_t operand, const struct tn_bench *from, uint32_t output)
{
    for (int64_t e = 0; e < tn_bench_count(to, operand); e++)
        tn_bench_set(to, operand, e, tn_bench_result(from, output, e));
}

START_TEST(attention)
{
    static const struct {
        const char *size, *in, *out, *lse, *attr;
    } c[] = {
        {"b2 t5 s5 h2 d3", "bthd bshd bshd t:p0? s:p0?", "bthd", "bth", "scale=0.6 causal=1"},
        {"b1 t4 s7 h2 d3", "bthd bshd bshd t:p5 s:p2", "bthd", "bth", "scale=0.6 causal=0"},
        {"b1 t4 s4 h2 r3 d3", "bthrd bshd bshd t:p0? s:p0?", "bthrd", "bthr", "scale=0.6 causal=1"},
        {"b2 t5 s5 h2 d3", "bthd bshd bshd t:p0? s:p0?", "bthd", "bth",
         "scale=0.6 causal=1 dropout=0.3 key=3 block=8 micro_dim=0"},
    };
    char in[100], out[20];
    struct tn_bench *f, *back;
    int64_t D = 3;

    snprintf(in, sizeof in, "%s %s %s %s", c[_i].in, c[_i].lse, c[_i].lse, c[_i].out);
    snprintf(out, sizeof out, "%s bshd bshd", c[_i].out);
    back = BUILD("attn_bwd", c[_i].size, in, out, c[_i].attr, NULL, 0, 0);
    snprintf(out, sizeof out, "%s %s", c[_i].out, c[_i].lse);
    f = ran(BUILD("attention", c[_i].size, c[_i].in, out, c[_i].attr, NULL, 0, 0));
    for (uint32_t i = 0; i < 3; i++)
        take(back, i, f, i);
    take_result(back, 5, f, 1);
    for (int64_t r = 0; r < tn_bench_count(back, 6); r++) {
        double delta = 0;

        for (int64_t d = 0; d < D; d++)
            delta += tn_bench_get(back, 7, r * D + d) * tn_bench_result(f, 0, r * D + d);
        tn_bench_set(back, 6, r, delta);
    }
    run(back);
    for (uint32_t i = 0; i < 3; i++)
        check_slopes(f, i, 1, back, i, (const uint32_t[]){7});
    tn_bench_free(f), tn_bench_free(back);
}
END_TEST

START_TEST(layernorm)
{
    struct tn_bench *f = ran(BUILD("layernorm", "b3 c5", "bc c c", "bc b b", "eps=0.1", NULL, 0, 0));
    struct tn_bench *dx = BUILD("ln_dx", "b3 c5", "bc bc c b b", "bc", NULL, NULL, 0, 0);
    struct tn_bench *dw = BUILD("ln_dw", "b3 c5", "bc bc b b", "c", NULL, NULL, 0, 0);

    take(dx, 1, f, 0), take(dx, 2, f, 1), take_result(dx, 3, f, 1), take_result(dx, 4, f, 2);
    take(dw, 1, f, 0), take_result(dw, 2, f, 1), take_result(dw, 3, f, 2);
    run(dx), run(dw);
    check_slopes(f, 0, 1, dx, 0, (const uint32_t[]){0});
    check_slopes(f, 1, 1, dw, 0, (const uint32_t[]){0});
    tn_bench_free(f), tn_bench_free(dx), tn_bench_free(dw);
}
END_TEST

START_TEST(cross_entropy)
{
    struct tn_bench *f = ran(BUILD("ce", "b7 v5", "bv b:i5", "b", NULL, NULL, 0, 0));
    struct tn_bench *back = BUILD("ce_bwd", "b7 v5", "b bv b:i5", "bv", NULL, NULL, 0, 0);

    take(back, 1, f, 0), take(back, 2, f, 1);
    run(back);
    check_slopes(f, 0, 1, back, 0, (const uint32_t[]){0});
    tn_bench_free(f), tn_bench_free(back);
}
END_TEST

START_TEST(head)
{
    struct tn_bench *f = ran(BUILD("head", "b7 v5@1/8 c3", "bc vc b:i8", "b b", NULL, NULL, 0, 0));
    struct tn_bench *back = BUILD("head_bwd", "b7 v5@1/8 c3", "bc vc b:i8 b b b", "bc vc", NULL, NULL, 0, 0);

    take(back, 0, f, 0), take(back, 1, f, 1), take(back, 2, f, 2), take_result(back, 3, f, 0);
    run(back);
    check_slopes(f, 0, 2, back, 0, (const uint32_t[]){4, 5});
    check_slopes(f, 1, 2, back, 1, (const uint32_t[]){4, 5});
    tn_bench_free(f), tn_bench_free(back);
}
END_TEST

START_TEST(embed)
{
    struct tn_bench *f = ran(BUILD("embed", "v5@1/8 b7 c3", "vc b:i8", "bc", NULL, NULL, 0, 0));
    struct tn_bench *back = BUILD("embed_bwd", "v5@1/8 b7 c3", "bc b:i8 vc?", "vc", NULL, NULL, 0, 0);

    take(back, 1, f, 1);
    run(back);
    check_slopes(f, 0, 1, back, 0, (const uint32_t[]){0});
    tn_bench_free(f), tn_bench_free(back);
}
END_TEST

START_TEST(pick)
{
    struct tn_bench *f = ran(BUILD("pick", "v5@1/8 b7", "bv b:i8", "b", NULL, NULL, 0, 0));
    struct tn_bench *back = BUILD("pick_bwd", "v5@1/8 b7", "b b:i8 bv?", "bv", NULL, NULL, 0, 0);

    take(back, 1, f, 1);
    run(back);
    check_slopes(f, 0, 1, back, 0, (const uint32_t[]){0});
    tn_bench_free(f), tn_bench_free(back);
}
END_TEST

TCase *tn_test_gradient(void)
{
    TCase *t = tcase_create("gradient");

    tcase_add_loop_test(t, attention, 0, 4);
    tcase_add_test(t, layernorm);
    tcase_add_test(t, cross_entropy);
    tcase_add_test(t, head);
    tcase_add_test(t, embed);
    tcase_add_test(t, pick);
    return t;
}

START_TEST(device)
{
    const struct tn_device_api *api = tn_bench_interface(tn_bench_plugin("ref"), TN_DEVICE_ID);
    struct tn_device_info info = {.struct_size = sizeof info};
    struct tn_device *d;
    struct tn_queue *q;
    struct tn_event *e;
    uint32_t score = 0;
    char why[64], *a, *b;

    ck_assert(api->probe(&score, why, sizeof why) == TN_OK && score > 0 && !strcmp(api->kind, ref->device));
    ck_assert_int_eq(api->open(0, &d), TN_OK);
    ck_assert_int_eq(api->info(d, &info), TN_OK);
    ck_assert_uint_eq(info.struct_size, sizeof info);
    ck_assert(info.host_access == 1 && info.alignment == 64 && info.name[0] && info.dtypes >> TN_F32 & 1);
    ck_assert(info.memory_free > 1 << 20 && info.memory_free <= info.memory_total);
    ck_assert(api->alloc(d, 1000, (void **)&a) == TN_OK && api->alloc(d, 0, (void **)&b) == TN_OK);
    ck_assert((uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0 && a != b);
    ck_assert(api->queue(d, &q) == TN_OK && api->event(d, &e) == TN_OK);
    ck_assert_int_eq(api->fill(q, a, 7, 1000), TN_OK);
    ck_assert_int_eq(api->copy(q, a + 500, "tenon", 5, 1), TN_OK);
    ck_assert(api->record(e, q) == TN_OK && api->wait(q, e) == TN_OK && api->sync(q, 1) == TN_OK);
    ck_assert(a[0] == 7 && a[999] == 7 && !memcmp(a + 500, "tenon", 5));
    api->event_close(e), api->queue_close(q), api->free(d, a), api->free(d, b);
    ck_assert_int_eq(api->alloc(d, UINT64_MAX - 8, (void **)&a), TN_ERR_MEMORY);
    ck_assert_int_eq(api->alloc(d, 1ull << 60, (void **)&a), TN_ERR_MEMORY);
    ck_assert_ptr_nonnull(strstr(tn_bench_said(), "1099511627776.0 MiB"));
    api->close(d);
}
END_TEST

/* An older host's info is shorter; what lies behind it is not ours. */
START_TEST(shorter_info)
{
    const struct tn_device_api *api = tn_bench_interface(tn_bench_plugin("ref"), TN_DEVICE_ID);
    struct tn_device_info info;
    struct tn_device *d;

    memset(&info, 0x5a, sizeof info);
    info.struct_size = offsetof(struct tn_device_info, name);
    ck_assert(api->open(0, &d) == TN_OK && api->info(d, &info) == TN_OK);
    ck_assert(info.alignment == 64 && info.name[0] == 0x5a && info.queues == 0x5a5a5a5a);
    api->close(d);
}
END_TEST

START_TEST(declines)
{
    struct tn_bench *b = BUILD("einsum", "b3 c5", "bc bc", "b", NULL, NULL, 0, 0);
    struct tn_bench *unknown = BUILD("fft", "b3", "b", "b", NULL, NULL, 0, 0);

    ck_assert_int_eq(tn_bench_run(unknown, ref), TN_DECLINED);
    tn_bench_set_dtype(b, 0, TN_U8);
    ck_assert_int_eq(tn_bench_run(b, ref), TN_DECLINED);
    tn_bench_free(b), tn_bench_free(unknown);
}
END_TEST

TCase *tn_test_device(void)
{
    TCase *t = tcase_create("device");

    tcase_add_test(t, device);
    tcase_add_test(t, shorter_info);
    tcase_add_test(t, declines);
    return t;
}
